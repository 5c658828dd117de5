/* What deliveries and the fast path read, as aioprod/producer/shared_fields.py has it. */
#ifndef AIOPROD_FIELDS_H
#define AIOPROD_FIELDS_H

#include "native.h"

/* Objects are NULL until they are set. */
typedef struct {
    PyObject_HEAD
    PyObject *writer, *topic, *partition, *starts, *timestamps, *key_sizes, *value_sizes;
    /* These and the four before them begin with the values of new_batch_fields(). */
    PyObject *parts, *closed, *grown, *in_flight, *may_be_stored, *in_doubt, *seen, *identity,
        *encoded, *error, *waiters, *callbacks, *attempts, *base_sequence, *retry_at,
        *first_sent_at, *unanswered_at;
    long long base_offset;
    Py_ssize_t open_until;
} BatchFields;

typedef struct {
    PyObject_HEAD
    PyObject *open;
} PartitionFields;

typedef struct {
    PyObject_HEAD
    Py_ssize_t current;
} StickyFields;

typedef struct {
    PyObject_HEAD
    PyObject *queues, *sticky;
    Py_ssize_t count;
} TopicFields;

typedef struct {
    PyObject_HEAD
    PyObject *fast_path;
} ProducerFields;

extern PyTypeObject *batch_fields_type, *partition_fields_type, *sticky_fields_type,
    *topic_fields_type, *producer_fields_type;

/* The object if its class is `known`, which is set if it is not yet, or is derived from a base;
 * else NULL. */
static inline void *
of_class(PyObject *object, PyTypeObject *base, PyObject **known)
{
    if (object == NULL || (PyObject *)Py_TYPE(object) == *known)
        return object;
    if (!PyObject_TypeCheck(object, base))
        return NULL;
    if (*known == NULL)
        *known = Py_NewRef((PyObject *)Py_TYPE(object));
    return object;
}

/* A delivery of the record at an index of a batch: a new reference. */
PyObject *new_delivery(BatchFields *batch, Py_ssize_t index);

/* Raise StopIteration with a result, which it takes over, and return NULL. */
PyObject *stop_with(PyObject *result);

/* Have a FastPath take a record, with the arguments of its append(). Return the delivery; None if
 * it can't, or is none. */
PyObject *append_by(PyObject *path, PyObject *const *args);

#endif
