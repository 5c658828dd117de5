/* Parsing of the records of a batch, as aioprod/protocol/record_reader.py has it. */
#include "record.h"

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
add_gap(PyObject *gaps, Py_ssize_t index, int64_t delta)
{
    PyObject *gap = Py_BuildValue("nL", index, (long long)delta);
    int failed = gap == NULL ? -1 : PyList_Append(gaps, gap);
    Py_XDECREF(gap);
    return failed;
}

/* Store one record. -1: an exception. */
static int
store_record(Columns *columns, Py_ssize_t index, const Record *record, int64_t base_timestamp,
             int64_t expected)
{
    if (record->delta != expected && add_gap(columns->gaps, index, record->delta) < 0)
        return -1;
    if (columns->timestamp == NULL || columns->delta != record->stamp) {
        PyObject *timestamp = PyLong_FromLongLong(base_timestamp + record->stamp);
        if (timestamp == NULL)
            return -1;
        Py_XDECREF(columns->timestamp);
        columns->timestamp = timestamp;
        columns->delta = record->stamp;
    }
    if (store(columns->timestamps, index, Py_NewRef(columns->timestamp)) < 0
        || store(columns->keys, index, field_object(record->key, record->key_size)) < 0
        || store(columns->values, index, field_object(record->value, record->value_size)) < 0)
        return -1;
    if (record->headers_size == 0)
        return store(columns->headers, index, Py_NewRef(columns->none));
    columns->with_headers += 1;
    return store(columns->headers, index, field_object(record->headers, record->headers_size));
}

const char record_starts_doc[] = "record_starts(data, start, end, count, /)\n--\n\n"
             "As aioprod.protocol.arrow_reader.record_starts.";

PyObject *
record_starts(PyObject *module, PyObject *args)
{
    Py_buffer data;
    Py_ssize_t start, end, count;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnn:record_starts", &data, &start, &end, &count))
        return NULL;
    /* A record takes at least a byte. */
    PyObject *starts = NULL;
    if (start < 0 || end < start || end > data.len || count < 0 || count > end - start)
        starts = Py_NewRef(Py_None);
    else if ((starts = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t)))) {
        char *place = PyBytes_AsString(starts);
        const unsigned char *bytes = data.buf, *at = bytes + start, *stop = bytes + end;
        for (; count && at != NULL; count--, place += sizeof(int64_t)) {
            int64_t position = at - bytes, length;
            memcpy(place, &position, sizeof position);
            if ((at = get(at, stop, &length)) != NULL) {
                length = length < 0 ? ~length : length; /* its sign is checked later */
                at = length > stop - at ? NULL : at + length;
            }
        }
        if (at != stop) {
            Py_DECREF(starts);
            starts = Py_NewRef(Py_None);
        }
    }
    PyBuffer_Release(&data);
    return starts;
}

const char parse_records_doc[] = "parse_records(body, count, base_timestamp, /)\n--\n\n"
             "Parse the records of a batch: timestamps, keys, values, encoded headers (an empty tuple\n"
             "if there are none), the number of records with headers, and gaps, which are\n"
             "(index, offset delta) of each record whose delta is not that of the record before plus\n"
             "1. None if the records are not valid to their end.";

PyObject *
parse_records(PyObject *module, PyObject *args)
{
    Py_buffer body;
    Py_ssize_t count;
    long long base_timestamp;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nL:parse_records", &body, &count, &base_timestamp))
        return NULL;
    /* A record takes at least 7 bytes: no more is allocated than the bytes are worth. */
    if (count < 0 || count > body.len / 7 || base_timestamp > INT64_MAX / 4
        || base_timestamp < -(INT64_MAX / 4)) {
        PyBuffer_Release(&body);
        Py_RETURN_NONE;
    }
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
        const unsigned char *at = body.buf, *end = at + body.len;
        int64_t expected = 0;
        failed = 0;
        for (Py_ssize_t index = 0; index < count && !failed; index++) {
            Record record;
            if ((at = read_record(at, end, expected, &record)) == NULL)
                failed = 1;
            else {
                failed = store_record(&columns, index, &record, base_timestamp, expected);
                expected = record.delta + 1;
            }
        }
        if (!failed && at != end)
            failed = 1;
    }
    PyBuffer_Release(&body);
    if (!failed)
        result = Py_BuildValue("OOOOnO", columns.timestamps, columns.keys, columns.values,
                               columns.headers, columns.with_headers, columns.gaps);
    else if (failed > 0)
        result = Py_NewRef(Py_None);
    Py_XDECREF(columns.timestamps);
    Py_XDECREF(columns.keys);
    Py_XDECREF(columns.values);
    Py_XDECREF(columns.headers);
    Py_XDECREF(columns.gaps);
    Py_XDECREF(columns.none);
    Py_XDECREF(columns.timestamp);
    return result;
}
