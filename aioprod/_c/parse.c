/* Parsing of the records of a batch, as aioprod/protocol/record_reader.py has it. */
#include "varint.h"

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

const char parse_records_doc[] = "parse_records(body, count, base_timestamp, /)\n--\n\n"
             "Parse the records of a batch: timestamps, keys, values, encoded headers (an empty tuple\n"
             "if there are none), the number of records with headers, and gaps, which are\n"
             "(index, offset delta) of each record whose delta is not that of the record before plus\n"
             "1. None if the records are not valid to their end.";

PyObject *
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
