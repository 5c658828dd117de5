/* The records of one batch, as aioprod/protocol/record_buffer.py has them. */
#ifndef AIOPROD_RECORD_BUFFER_H
#define AIOPROD_RECORD_BUFFER_H

#include "native.h"

/* Kinds of records, and bytes that are counted for each in addition to its key, value
 * and headers. */
enum { NOTHING = -1, KEYLESS = 0, KEYED = 1, WITH_HEADERS = 2 };
enum { KEYLESS_OVERHEAD = 15, KEYED_OVERHEAD = 17 };

/* Consecutive records often share their timestamp, so each run of them has one. */
typedef struct {
    int64_t *starts, *stamps;
    Py_ssize_t count, room;
} Runs;

typedef struct {
    int32_t *keys, *values; /* bytes, -1 for null; keys is NULL if all are null */
    Py_ssize_t count, room;
} Sizes;

typedef struct {
    PyObject_HEAD
    PyObject *compressed, *timestamps; /* for the source in Python; may be NULL, as None */
    PyObject *pieces;                  /* list of earlier encoded records; may be NULL */
    PyObject *tail;                    /* bytearray of the newest records; may be NULL */
    Py_ssize_t tail_used, tail_room;
    PyObject *blocks;      /* list of free blocks; NULL if this buffer takes none */
    Py_ssize_t block_size; /* bytes of a block */
    PyObject *block;       /* the one taken, whose first bytes are for the header; may be NULL */
    int in_block;          /* the tail is the block, and has all records */
    Py_ssize_t encoded; /* bytes of all records */
    Py_ssize_t size;    /* the same, as the source in Python counts it */
    Py_ssize_t count;
    int kind;
    double until_s;
    long long base_timestamp, max_timestamp;
    int64_t timestamp, delta; /* of the current run */
    Runs runs;
    Sizes sizes;
} RecordBuffer;

extern PyTypeObject *record_buffer_type;

/* The kind of a record, and what it counts in size before it is counted exactly. A key or headers
 * that are NULL are not there. */
static inline int
kind_of(PyObject *key, PyObject *headers)
{
    return (key == NULL ? KEYLESS : KEYED) | (headers == NULL ? 0 : WITH_HEADERS);
}

static inline Py_ssize_t
bound_of(PyObject *key, PyObject *value, PyObject *headers)
{
    return PyBytes_Size(value) + (headers == NULL ? 0 : PyBytes_Size(headers))
           + (key == NULL ? KEYLESS_OVERHEAD : PyBytes_Size(key) + KEYED_OVERHEAD);
}

/* Set the time of the next records; -1 with an exception. */
int set_time(RecordBuffer *self, double now_s);

/* Set the timestamp of the next records, which is not the time; -1 with an exception. */
int set_timestamp(RecordBuffer *self, int64_t timestamp);

/* Encode a record after the others: value is bytes; so are key and headers, or NULL. `bound` is
 * what it counts in size. -1 with an exception, and nothing has changed. */
int encode_record(RecordBuffer *self, PyObject *key, PyObject *value, PyObject *headers,
                  Py_ssize_t bound);

#endif
