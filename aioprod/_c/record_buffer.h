/* The records of one batch, as aioprod/protocol/record_buffer.py has them. */
#ifndef AIOPROD_RECORD_BUFFER_H
#define AIOPROD_RECORD_BUFFER_H

#include "field.h"

/* What a record has. */
typedef struct {
    Field key, value, headers; /* headers are encoded: NO_HEADERS if there are none */
} Content;

static const Field NO_HEADERS = {"", 1}; /* their number, 0 */

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

/* The kind of a record, and what it counts in size before it is counted exactly, if its value is
 * not null. */
static inline int
kind_of(const Content *record)
{
    return (record->key.size < 0 ? KEYLESS : KEYED)
           | (record->headers.size == NO_HEADERS.size ? 0 : WITH_HEADERS);
}

static inline Py_ssize_t
bound_of(const Content *record)
{
    int64_t size = record->value.size;
    if (record->headers.size != NO_HEADERS.size)
        size += record->headers.size;
    size += record->key.size < 0 ? KEYLESS_OVERHEAD : record->key.size + KEYED_OVERHEAD;
    return (Py_ssize_t)size;
}

/* Set the time of the next records; -1 with an exception. */
int set_time(RecordBuffer *self, double now_s);

/* Set the timestamp of the next records, which is not the time; -1 with an exception. */
int set_timestamp(RecordBuffer *self, int64_t timestamp);

/* Count what the records take, in place of upper bounds: as encode_pending(). */
void count_exactly(RecordBuffer *self);

/* Encode a record of the buffer's kind after the others. `bound` is what it counts in size. -1 with
 * an exception, and nothing has changed. */
int encode_record(RecordBuffer *self, const Content *record, Py_ssize_t bound);

#endif
