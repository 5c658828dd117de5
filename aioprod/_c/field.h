/* A key, a value, or the name of a header, as records have it: its length and its bytes. */
#ifndef AIOPROD_FIELD_H
#define AIOPROD_FIELD_H

#include "varint.h"

typedef struct {
    const char *data;
    int64_t size; /* -1: null */
} Field;

/* The field of bytes; a null if there are none. */
static inline Field
bytes_field(PyObject *bytes)
{
    char *data = NULL;
    Py_ssize_t size = -1;
    if (bytes != NULL)
        PyBytes_AsStringAndSize(bytes, &data, &size); /* of bytes it can't fail */
    return (Field){data, size};
}

static inline int64_t
size_with_length(const Field *field)
{
    return size_of(zigzag(field->size)) + (field->size > 0 ? field->size : 0);
}

static inline unsigned char *
put_field(unsigned char *at, const Field *field)
{
    at = put(at, zigzag(field->size));
    if (field->size <= 0)
        return at;
    memcpy(at, field->data, (size_t)field->size);
    return at + field->size;
}

#endif
