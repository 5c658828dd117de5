/* Encoding of many records, as aioprod/protocol/record_encoder.py has it. */
#include "varint.h"

typedef struct {
    int64_t first;
    PyObject *keys, *values, *headers; /* lists; keys and headers may be NULL */
    PyObject *starts, *deltas;         /* lists of numbers, of the same length */
    Py_ssize_t count;
} Records;

/* A field's bytes. The list owns the object, and nothing changes the list meanwhile. */
static int
field_of(PyObject *list, Py_ssize_t index, char **data, Py_ssize_t *size)
{
    PyObject *item = PyList_GetItem(list, index);
    return item == NULL ? -1 : PyBytes_AsStringAndSize(item, data, size);
}

/* An item that is an int, so that reading it runs no other code; -1 with an exception. */
static int
number_of(PyObject *list, Py_ssize_t index, int64_t *number)
{
    PyObject *item = PyList_GetItem(list, index);
    if (item == NULL)
        return -1;
    if (!PyLong_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "starts and timestamp_deltas must be numbers");
        return -1;
    }
    *number = PyLong_AsLongLong(item);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

/* The timestamp delta of each record in turn: `at` is the run of records with the same one. */
static int
delta_of(const Records *records, Py_ssize_t index, Py_ssize_t *at, int64_t *delta)
{
    Py_ssize_t runs = PyList_Size(records->starts);
    int moved = *at < 0;
    while (*at + 1 < runs) {
        int64_t start;
        if (number_of(records->starts, *at + 1, &start) < 0)
            return -1;
        if (start > index)
            break;
        *at += 1;
        moved = 1;
    }
    return moved ? number_of(records->deltas, *at, delta) : 0;
}

/* What a record has behind its length. */
static int64_t
body_size(int64_t delta, int64_t offset, int64_t key, int64_t value, Py_ssize_t headers)
{
    return 1 + size_of(zigzag(delta)) + size_of(zigzag(offset)) + size_of(zigzag(key))
           + (key > 0 ? key : 0) + size_of(zigzag(value)) + value + headers;
}

/* Measure (out is NULL) or write all records; -1 with an exception. */
static Py_ssize_t
encode(const Records *records, unsigned char *out)
{
    unsigned char *at = out;
    Py_ssize_t total = 0, run = -1;
    int64_t delta = 0;
    for (Py_ssize_t index = 0; index < records->count; index++) {
        char *key = NULL, *value, *headers = "";
        Py_ssize_t key_size = -1, value_size, headers_size = 1;
        if (delta_of(records, index, &run, &delta) < 0
            || (records->keys && field_of(records->keys, index, &key, &key_size) < 0)
            || (records->headers && field_of(records->headers, index, &headers, &headers_size) < 0)
            || field_of(records->values, index, &value, &value_size) < 0)
            return -1;
        int64_t offset = records->first + index;
        int64_t size = body_size(delta, offset, key_size, value_size, headers_size);
        if (out == NULL) {
            if (size > PY_SSIZE_T_MAX - 10 - total) {
                PyErr_SetString(PyExc_OverflowError, "the records are too large");
                return -1;
            }
            total += size_of(zigzag(size)) + (Py_ssize_t)size;
            continue;
        }
        at = put(at, zigzag(size));
        *at++ = 0;
        at = put(at, zigzag(delta));
        at = put(at, zigzag(offset));
        at = put(at, zigzag(key_size));
        if (key_size > 0) {
            memcpy(at, key, (size_t)key_size);
            at += key_size;
        }
        at = put(at, zigzag(value_size));
        memcpy(at, value, (size_t)value_size);
        at += value_size;
        memcpy(at, headers, (size_t)headers_size);
        at += headers_size;
    }
    return out == NULL ? total : at - out;
}

static int
is_list_of(PyObject *given, Py_ssize_t count, const char *name)
{
    if (!PyList_Check(given))
        PyErr_Format(PyExc_TypeError, "%s must be a list", name);
    else if (PyList_Size(given) != count)
        PyErr_Format(PyExc_ValueError, "%s must have %zd items", name, count);
    else
        return 1;
    return 0;
}

const char encode_records_doc[] = "encode_records(first, keys, values, headers, starts, timestamp_deltas, /)\n--\n\n"
             "As aioprod.protocol.record_encoder.encode_records; all sequences are lists.";

PyObject *
encode_records(PyObject *module, PyObject *args)
{
    Records records;
    PyObject *keys, *headers;
    long long first;
    (void)module;
    if (!PyArg_ParseTuple(args, "LOOOOO:encode_records", &first, &keys, &records.values, &headers,
                          &records.starts, &records.deltas))
        return NULL;
    if (!PyList_Check(records.values) || (records.count = PyList_Size(records.values)) < 1) {
        PyErr_SetString(PyExc_ValueError, "values must be a list of at least one");
        return NULL;
    }
    if (!PyList_Check(keys) || !PyList_Check(headers) || !PyList_Check(records.starts)) {
        PyErr_SetString(PyExc_TypeError, "keys, headers and starts must be lists");
        return NULL;
    }
    Py_ssize_t runs = PyList_Size(records.starts);
    records.first = first;
    records.keys = PyList_Size(keys) ? keys : NULL;
    records.headers = PyList_Size(headers) ? headers : NULL;
    if (runs < 1 || !is_list_of(records.deltas, runs, "timestamp_deltas")
        || (records.keys && !is_list_of(keys, records.count, "keys"))
        || (records.headers && !is_list_of(headers, records.count, "headers"))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "starts must have at least one item");
        return NULL;
    }
    Py_ssize_t total = encode(&records, NULL);
    if (total < 0)
        return NULL;
    PyObject *encoded = PyBytes_FromStringAndSize(NULL, total);
    if (encoded == NULL)
        return NULL;
    /* Making bytes runs no other code, so the second pass meets the same objects. */
    if (encode(&records, (unsigned char *)PyBytes_AsString(encoded)) != total) {
        Py_DECREF(encoded);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_SystemError, "records changed while they were encoded");
        return NULL;
    }
    return encoded;
}
