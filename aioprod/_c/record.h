/* One record in the bytes of a batch. */
#ifndef AIOPROD_RECORD_H
#define AIOPROD_RECORD_H

#include "varint.h"

/* A length of -1 is a null. Headers are empty if there are none. */
typedef struct {
    int64_t stamp, delta; /* of timestamp and offset */
    const unsigned char *key, *value, *headers;
    Py_ssize_t key_size, value_size, headers_size;
} Record;

/* Read the length of a field, and step over the field; NULL if it is invalid. All negative lengths
 * are nulls, as in Java. */
static inline const unsigned char *
read_field(const unsigned char *start, const unsigned char *end, const unsigned char **field,
           Py_ssize_t *field_size)
{
    int64_t size;
    const unsigned char *at = get(start, end, &size);
    if (at == NULL || size > end - at)
        return NULL;
    *field = at;
    *field_size = size < 0 ? -1 : (Py_ssize_t)size;
    return size > 0 ? at + size : at;
}

/* Read the record at a place, whose offset delta should be at least what is expected. Return the
 * place after it; NULL if it is invalid, or if the source in Python decides. */
static inline const unsigned char *
read_record(const unsigned char *at, const unsigned char *end, int64_t expected, Record *record)
{
    int64_t length;
    at = get(at, end, &length);
    if (at == NULL || length < 1 || length > end - at)
        return NULL;
    const unsigned char *stop = at + length;
    if ((at = get(at + 1, stop, &record->stamp)) == NULL
        || (at = get(at, stop, &record->delta)) == NULL)
        return NULL;
    /* Far from what a clock or an offset shows: the source in Python decides. */
    if (record->stamp > INT64_MAX / 4 || record->stamp < -(INT64_MAX / 4)
        || record->delta > INT64_MAX / 4 || record->delta < expected)
        return NULL;
    if ((at = read_field(at, stop, &record->key, &record->key_size)) == NULL
        || (at = read_field(at, stop, &record->value, &record->value_size)) == NULL)
        return NULL;
    if (at == stop || (*at == 0 && at + 1 != stop))
        return NULL;
    record->headers = at;
    record->headers_size = *at == 0 ? 0 : stop - at;
    return stop;
}

/* A new reference to the bytes of a field, or to None for a null. */
static inline PyObject *
field_object(const unsigned char *field, Py_ssize_t size)
{
    if (size < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)field, size);
}

#endif
