/* The accelerator: the three loops that run once for each record, beside their sources in Python.
 *
 * aioprod/native.py says which is used; tests/protocol/test_native.py holds both against each other.
 *
 * Only functions without state, on CPython's stable ABI (3.11): one library for all later versions.
 * What a function can't do exactly as the source in Python, it leaves to that: parse_records returns
 * None for whatever is not a whole, valid batch, so errors have one source. The interpreter's lock
 * is held throughout, and no Python code runs between looking at an object and using it, but for
 * allocations, which may run the garbage collector; so every object used across one is owned.
 *
 * A list with items that are not set yet is seen by the garbage collector only, which knows of such.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* -- murmur2 ------------------------------------------------------------------------------------ */

static uint32_t
murmur2_of(const unsigned char *data, Py_ssize_t length)
{
    const uint32_t m = 0x5bd1e995;
    uint32_t h = 0x9747b28c ^ (uint32_t)length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t k = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16
                     | (uint32_t)data[3] << 24;
        k *= m;
        k ^= k >> 24;
        k *= m;
        h = h * m ^ k;
    }
    switch (length) {
    case 3:
        h ^= (uint32_t)data[2] << 16; /* fall through */
    case 2:
        h ^= (uint32_t)data[1] << 8; /* fall through */
    case 1:
        h = (h ^ data[0]) * m;
    }
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

PyDoc_STRVAR(murmur2_doc, "murmur2(key, /)\n--\n\n"
                          "Return the hash of a key, as Java's client computes it, without its sign.");

static PyObject *
murmur2(PyObject *module, PyObject *key)
{
    char *data;
    Py_ssize_t length;
    (void)module;
    if (PyBytes_AsStringAndSize(key, &data, &length) < 0)
        return NULL;
    return PyLong_FromUnsignedLong(murmur2_of((unsigned char *)data, length) & 0x7fffffff);
}

/* -- varints ------------------------------------------------------------------------------------ */

static uint64_t
zigzag(int64_t number)
{
    return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

static Py_ssize_t
size_of(uint64_t code)
{
    Py_ssize_t size = 1;
    while (code >>= 7)
        size++;
    return size;
}

static unsigned char *
put(unsigned char *at, uint64_t code)
{
    while (code > 0x7f) {
        *at++ = (unsigned char)(code | 0x80);
        code >>= 7;
    }
    *at++ = (unsigned char)code;
    return at;
}

/* Read a varint of at most ten bytes; NULL at the end of the bytes, or if it is longer. */
static const unsigned char *
get(const unsigned char *at, const unsigned char *end, int64_t *number)
{
    uint64_t code = 0;
    for (int shift = 0; at < end && shift < 64; shift += 7) {
        unsigned char byte = *at++;
        if (shift == 63 && byte > 1)
            return NULL;
        code |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(code >> 1) ^ -(int64_t)(code & 1);
            return at;
        }
    }
    return NULL;
}

/* -- encoding ----------------------------------------------------------------------------------- */

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

PyDoc_STRVAR(encode_records_doc,
             "encode_records(first, keys, values, headers, starts, timestamp_deltas, /)\n--\n\n"
             "As aioprod.protocol.record_encoder.encode_records; all sequences are lists.");

static PyObject *
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

/* -- parsing ------------------------------------------------------------------------------------ */

typedef struct {
    PyObject *timestamps, *keys, *values, *headers, *gaps;
    PyObject *none;          /* an empty tuple, for records without headers */
    PyObject *timestamp;     /* of the last record, which most following ones share */
    int64_t delta;           /* of that timestamp */
    Py_ssize_t with_headers; /* how many records have some */
} Columns;

/* Put a new reference at an index; the list takes it over even on failure. */
static int
store(PyObject *list, Py_ssize_t index, PyObject *item)
{
    return item == NULL ? -1 : PyList_SetItem(list, index, item);
}

static int
store_shared(PyObject *list, Py_ssize_t index, PyObject *item)
{
    Py_INCREF(item);
    return PyList_SetItem(list, index, item);
}

/* Bytes of a field, or None for a null. 1: the field is invalid; -1: an exception. */
static int
store_field(PyObject *list, Py_ssize_t index, const unsigned char **at, const unsigned char *end)
{
    int64_t size;
    const unsigned char *start = *at;
    *at = get(start, end, &size);
    /* A null has one form; the source in Python refuses others. */
    if (*at == NULL || size < -1 || size > end - *at || (size == -1 && *at != start + 1))
        return 1;
    if (size == -1)
        return store_shared(list, index, Py_None);
    const char *data = (const char *)*at;
    *at += size;
    return store(list, index, PyBytes_FromStringAndSize(data, (Py_ssize_t)size));
}

static int
add_gap(PyObject *gaps, Py_ssize_t index, int64_t delta)
{
    PyObject *gap = Py_BuildValue("nL", index, (long long)delta);
    int failed = gap == NULL ? -1 : PyList_Append(gaps, gap);
    Py_XDECREF(gap);
    return failed;
}

/* One record. 0: stored; 1: invalid, or not for here; -1: an exception. */
static int
parse_record(Columns *columns, Py_ssize_t index, const unsigned char **position,
             const unsigned char *end, int64_t base_timestamp, int64_t *expected)
{
    int64_t length, stamp, delta;
    const unsigned char *at = get(*position, end, &length);
    if (at == NULL || length < 1 || length > end - at)
        return 1;
    const unsigned char *stop = at + length;
    if ((at = get(at + 1, stop, &stamp)) == NULL || (at = get(at, stop, &delta)) == NULL)
        return 1;
    /* Far from what a clock or an offset shows: the source in Python decides. */
    if (stamp > INT64_MAX / 4 || stamp < -(INT64_MAX / 4) || delta > INT64_MAX / 4
        || delta < *expected)
        return 1;
    if (delta != *expected && add_gap(columns->gaps, index, delta) < 0)
        return -1;
    *expected = delta + 1;
    if (columns->timestamp == NULL || columns->delta != stamp) {
        PyObject *timestamp = PyLong_FromLongLong(base_timestamp + stamp);
        if (timestamp == NULL)
            return -1;
        Py_XDECREF(columns->timestamp);
        columns->timestamp = timestamp;
        columns->delta = stamp;
    }
    int failed = store_shared(columns->timestamps, index, columns->timestamp);
    if (failed || (failed = store_field(columns->keys, index, &at, stop))
        || (failed = store_field(columns->values, index, &at, stop)))
        return failed;
    if (at == stop || (*at == 0 && at + 1 != stop))
        return 1;
    *position = stop;
    if (*at == 0)
        return store_shared(columns->headers, index, columns->none);
    columns->with_headers += 1;
    return store(columns->headers, index,
                 PyBytes_FromStringAndSize((const char *)at, stop - at));
}

PyDoc_STRVAR(parse_records_doc,
             "parse_records(body, count, base_timestamp, /)\n--\n\n"
             "Parse the records of a batch: timestamps, keys, values, encoded headers (an empty tuple\n"
             "if there are none), the number of records with headers, and gaps, which are\n"
             "(index, offset delta) of each record whose delta is not that of the record before plus\n"
             "1. None if the records are not valid to their end.");

static PyObject *
parse_records(PyObject *module, PyObject *args)
{
    PyObject *body;
    char *data;
    Py_ssize_t count, size;
    long long base_timestamp;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnL:parse_records", &body, &count, &base_timestamp)
        || PyBytes_AsStringAndSize(body, &data, &size) < 0)
        return NULL;
    /* A record takes at least 7 bytes: no more is allocated than the bytes are worth. */
    if (count < 0 || count > size / 7 || base_timestamp > INT64_MAX / 4
        || base_timestamp < -(INT64_MAX / 4))
        Py_RETURN_NONE;
    Columns columns = {
        .timestamps = PyList_New(count),
        .keys = PyList_New(count),
        .values = PyList_New(count),
        .headers = PyList_New(count),
        .gaps = PyList_New(0),
        .none = PyTuple_New(0),
    };
    PyObject *result = NULL;
    int failed = -1;
    if (columns.timestamps && columns.keys && columns.values && columns.headers && columns.gaps
        && columns.none) {
        const unsigned char *at = (unsigned char *)data, *end = at + size;
        int64_t expected = 0;
        failed = 0;
        for (Py_ssize_t index = 0; index < count && !failed; index++)
            failed = parse_record(&columns, index, &at, end, base_timestamp, &expected);
        if (!failed && at != end)
            failed = 1;
    }
    if (!failed)
        result = Py_BuildValue("OOOOnO", columns.timestamps, columns.keys, columns.values,
                               columns.headers, columns.with_headers, columns.gaps);
    else if (failed > 0) {
        Py_INCREF(Py_None);
        result = Py_None;
    }
    Py_XDECREF(columns.timestamps);
    Py_XDECREF(columns.keys);
    Py_XDECREF(columns.values);
    Py_XDECREF(columns.headers);
    Py_XDECREF(columns.gaps);
    Py_XDECREF(columns.none);
    Py_XDECREF(columns.timestamp);
    return result;
}

/* -- the module --------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"murmur2", murmur2, METH_O, murmur2_doc},
    {"encode_records", encode_records, METH_VARARGS, encode_records_doc},
    {"parse_records", parse_records, METH_VARARGS, parse_records_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "aioprod._native",
    .m_doc = "The accelerator; see aioprod/native.py.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&module_def);
}
