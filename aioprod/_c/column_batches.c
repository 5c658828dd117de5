/* Encoding of rows of Arrow columns, as aioprod/protocol/arrow_records.py has it.
 *
 * A ColumnBatches owns views of the columns' memory until it is freed. That may change at any time,
 * so each write is checked against the memory that is left.
 */
#include "columns.h"

typedef struct {
    PyObject_HEAD
    int has_key, has_headers, has_timestamps, has_order;
    Binary key, value, names, header_values;
    Numbers header_offsets, timestamps, order;
    Py_ssize_t count, batches;
    Py_ssize_t *cuts; /* batches + 1 of them */
} ColumnBatches;

/* -- headers ---------------------------------------------------------------------------------- */

static int
headers_of(const ColumnBatches *self, Py_ssize_t row, int32_t *start, int32_t *end)
{
    read_number(&self->header_offsets, row, start, sizeof *start);
    read_number(&self->header_offsets, row + 1, end, sizeof *end);
    return *start < 0 || *end < *start || *end > self->names.count ? invalid_offsets() : 0;
}

/* The bytes of a row's headers with their count; -1 with an exception. */
static int64_t
headers_size(const ColumnBatches *self, Py_ssize_t row)
{
    int32_t start, end;
    if (headers_of(self, row, &start, &end) < 0)
        return -1;
    int64_t size = size_of(zigzag(end - start));
    for (int32_t index = start; index < end; index++) {
        Field name, value;
        if (field_of(&self->names, index, &name) < 0
            || field_of(&self->header_values, index, &value) < 0)
            return -1;
        size += size_with_length(&name) + size_with_length(&value);
    }
    return size;
}

/* Write a row's headers into exactly `size` bytes; -1 with an exception. */
static int
put_headers(const ColumnBatches *self, Py_ssize_t row, unsigned char *at, int64_t size)
{
    int32_t start, end;
    unsigned char *stop = at + size;
    if (headers_of(self, row, &start, &end) < 0)
        return -1;
    if (size_of(zigzag(end - start)) > stop - at)
        return invalid("an Arrow column changed while it was encoded");
    at = put(at, zigzag(end - start));
    for (int32_t index = start; index < end; index++) {
        Field name, value;
        if (field_of(&self->names, index, &name) < 0
            || field_of(&self->header_values, index, &value) < 0)
            return -1;
        if (size_with_length(&name) + size_with_length(&value) > stop - at)
            return invalid("an Arrow column changed while it was encoded");
        at = put_field(put_field(at, &name), &value);
    }
    return at == stop ? 0 : invalid("an Arrow column changed while it was encoded");
}

/* -- rows ------------------------------------------------------------------------------------- */

/* The row of the record at a position; -1 with an exception. */
static inline Py_ssize_t
row_at(const ColumnBatches *self, Py_ssize_t position)
{
    uint64_t row;
    if (!self->has_order)
        return position;
    read_number(&self->order, position, &row, sizeof row);
    return row < (uint64_t)self->count ? (Py_ssize_t)row : invalid_offsets();
}

/* The fields of a row, and the bytes of its headers; -1 with an exception. */
static inline int
fields_of(const ColumnBatches *self, Py_ssize_t row, Field *key, Field *value, int64_t *headers)
{
    key->data = NULL;
    key->size = -1;
    *headers = 1;
    if (row < 0 || (self->has_key && field_of(&self->key, row, key) < 0)
        || field_of(&self->value, row, value) < 0
        || (self->has_headers && (*headers = headers_size(self, row)) < 0))
        return -1;
    return 0;
}

/* The bytes of the columns of a row that are there, with their lengths; -1 with an exception. */
static int64_t
columns_size(const ColumnBatches *self, Py_ssize_t row)
{
    Field key, value;
    int64_t headers;
    if (fields_of(self, row, &key, &value, &headers) < 0)
        return -1;
    return (self->has_key ? size_with_length(&key) : 0) + size_with_length(&value)
           + (self->has_headers ? headers : 0);
}

static int64_t
delta_of(const ColumnBatches *self, Py_ssize_t position, Py_ssize_t start)
{
    int64_t base, timestamp;
    if (!self->has_timestamps)
        return 0;
    read_number(&self->timestamps, start, &base, sizeof base);
    read_number(&self->timestamps, position, &timestamp, sizeof timestamp);
    return (int64_t)((uint64_t)timestamp - (uint64_t)base);
}

/* Measure (out is NULL) or write the records of a batch into `room` bytes; -1 with an exception. */
static Py_ssize_t
encode(const ColumnBatches *self, Py_ssize_t start, Py_ssize_t end, unsigned char *out,
       Py_ssize_t room)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t position = start; position < end; position++) {
        Field key, value;
        int64_t headers, row = row_at(self, position);
        if (fields_of(self, row, &key, &value, &headers) < 0)
            return -1;
        uint64_t delta = zigzag(delta_of(self, position, start)), offset = zigzag(position - start);
        int64_t size = 1 + size_of(delta) + size_of(offset) + size_with_length(&key)
                       + size_with_length(&value) + headers;
        int64_t whole = size_of(zigzag(size)) + size;
        if (whole > room - total)
            return invalid(out == NULL ? "the records of a batch are too large"
                                       : "an Arrow column changed while it was encoded");
        if (out != NULL) {
            unsigned char *at = put(out + total, zigzag(size));
            *at++ = 0;
            at = put_field(put_field(put(put(at, delta), offset), &key), &value);
            if (!self->has_headers)
                *at = 0;
            else if (put_headers(self, row, at, headers) < 0)
                return -1;
        }
        total += whole;
    }
    return total;
}

/* -- batches ---------------------------------------------------------------------------------- */

/* Cut the rows into batches, in at most as many steps as there are rows. `overhead`: bytes of a
 * record in addition to the fields that are columns, without its length and its offset delta. */
static int
cut(ColumnBatches *self, PyObject *ends, int64_t limit, int64_t overhead)
{
    int64_t smallest = INT64_MAX, largest = 0, size;
    Py_ssize_t groups = PyList_Size(ends), position = 0;
    for (Py_ssize_t row = 0; row < self->count; row++) {
        if ((size = columns_size(self, row)) < 0)
            return -1;
        smallest = size < smallest ? size : smallest;
        largest = size > largest ? size : largest;
    }
    int64_t most = limit / smallest + 1;
    overhead += size_of(zigzag(most < self->count ? most : self->count));
    overhead += size_of(zigzag(largest + overhead));
    for (Py_ssize_t group = 0; group < groups; group++) {
        Py_ssize_t end = PyLong_AsSsize_t(PyList_GetItem(ends, group));
        int64_t filled = 0;
        if (end == -1 && PyErr_Occurred())
            return -1;
        if (end <= position || end > self->count)
            return invalid("ends must be ascending, up to the number of rows");
        for (self->cuts[self->batches++] = position; position < end; position++) {
            Py_ssize_t row = row_at(self, position);
            if (row < 0 || (size = columns_size(self, row)) < 0)
                return -1;
            if (filled > limit - size - overhead && position != self->cuts[self->batches - 1]) {
                self->cuts[self->batches++] = position;
                filled = 0;
            }
            filled += size + overhead;
        }
    }
    self->cuts[self->batches] = position;
    return position == self->count ? 0
                                   : invalid("ends must be ascending, up to the number of rows");
}

static int
open_headers(ColumnBatches *self, PyObject *headers)
{
    PyObject *offsets, *names, *values;
    if (!PyTuple_Check(headers) || !PyArg_ParseTuple(headers, "OOO", &offsets, &names, &values)) {
        PyErr_SetString(PyExc_TypeError, "headers must be offsets, names and values");
        return -1;
    }
    if (open_numbers(&self->header_offsets, offsets, sizeof(int32_t)) < 0
        || open_binary(&self->names, names) < 0 || open_binary(&self->header_values, values) < 0)
        return -1;
    if (self->header_offsets.count != self->count + 1
        || self->names.count != self->header_values.count)
        return invalid("the columns must have the same length");
    self->has_headers = 1;
    return 0;
}

static int
open_columns(ColumnBatches *self, PyObject *key, PyObject *value, PyObject *headers,
             PyObject *timestamps, PyObject *order)
{
    if (open_binary(&self->value, value) < 0)
        return -1;
    self->count = self->value.count;
    self->has_key = key != Py_None;
    self->has_timestamps = timestamps != Py_None;
    self->has_order = order != Py_None;
    if ((self->has_key && open_binary(&self->key, key) < 0)
        || (self->has_timestamps
            && open_numbers(&self->timestamps, timestamps, sizeof(int64_t)) < 0)
        || (self->has_order && open_numbers(&self->order, order, sizeof(uint64_t)) < 0)
        || (headers != Py_None && open_headers(self, headers) < 0))
        return -1;
    if ((self->has_key && self->key.count != self->count)
        || (self->has_timestamps && self->timestamps.count != self->count)
        || (self->has_order && self->order.count != self->count) || self->count < 1)
        return invalid("the columns must have the same length, and at least one row");
    return 0;
}

static PyObject *
column_batches_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *key, *value, *headers, *timestamps, *order, *ends;
    long long limit;
    int delta_size;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    if (keywords != NULL && PyDict_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "ColumnBatches takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOOOO!Li:ColumnBatches", &key, &value, &headers, &timestamps,
                          &order, &PyList_Type, &ends, &limit, &delta_size))
        return NULL;
    ColumnBatches *self = (ColumnBatches *)allocate(type, 0); /* all zero */
    if (self == NULL)
        return NULL;
    if (limit < 0 || delta_size < 1 || delta_size > 10) {
        invalid("limit and delta_size must be positive");
        goto failed;
    }
    if (open_columns(self, key, value, headers, timestamps, order) < 0)
        goto failed;
    /* Each batch has a row. */
    self->cuts = PyMem_Calloc((size_t)self->count + 1, sizeof *self->cuts);
    if (self->cuts == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    if (cut(self, ends, limit, 1 + delta_size + !self->has_key + !self->has_headers) < 0)
        goto failed;
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static void
column_batches_dealloc(PyObject *object)
{
    ColumnBatches *self = (ColumnBatches *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    close_binary(&self->key);
    close_binary(&self->value);
    close_binary(&self->names);
    close_binary(&self->header_values);
    PyBuffer_Release(&self->header_offsets.data);
    PyBuffer_Release(&self->timestamps.data);
    PyBuffer_Release(&self->order.data);
    PyMem_Free(self->cuts);
    release(object);
    Py_DECREF(type);
}

static PyObject *
column_batches_cuts(PyObject *object, void *closure)
{
    ColumnBatches *self = (ColumnBatches *)object;
    PyObject *cuts = PyList_New(self->batches + 1);
    (void)closure;
    for (Py_ssize_t index = 0; cuts != NULL && index <= self->batches; index++) {
        PyObject *row = PyLong_FromSsize_t(self->cuts[index]);
        if (row == NULL || PyList_SetItem(cuts, index, row) < 0) {
            Py_DECREF(cuts);
            return NULL;
        }
    }
    return cuts;
}

static PyObject *
column_batches_body(PyObject *object, PyObject *number)
{
    ColumnBatches *self = (ColumnBatches *)object;
    Py_ssize_t index = PyLong_AsSsize_t(number);
    if (index == -1 && PyErr_Occurred())
        return NULL;
    if (index < 0 || index >= self->batches) {
        PyErr_SetString(PyExc_IndexError, "there is no such batch");
        return NULL;
    }
    Py_ssize_t start = self->cuts[index], end = self->cuts[index + 1];
    Py_ssize_t total = encode(self, start, end, NULL, PY_SSIZE_T_MAX / 2);
    if (total < 0)
        return NULL;
    PyObject *body = PyBytes_FromStringAndSize(NULL, total);
    if (body == NULL)
        return NULL;
    Py_ssize_t written = encode(self, start, end, (unsigned char *)PyBytes_AsString(body), total);
    if (written != total) {
        if (written >= 0)
            invalid("an Arrow column changed while it was encoded");
        Py_DECREF(body);
        return NULL;
    }
    return body;
}

static PyGetSetDef column_batches_attributes[] = {
    {"cuts", column_batches_cuts, NULL,
     "The rows at which batches begin, and the number of rows.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef column_batches_methods[] = {
    {"body", column_batches_body, METH_O,
     "body(index, /)\n--\n\nReturn the encoded records of a batch."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot column_batches_slots[] = {
    {Py_tp_doc, "As aioprod.protocol.arrow_records.ColumnBatches; encodes each batch when it is "
                "asked for."},
    {Py_tp_new, column_batches_new},
    {Py_tp_dealloc, column_batches_dealloc},
    {Py_tp_getset, column_batches_attributes},
    {Py_tp_methods, column_batches_methods},
    {0, NULL},
};

/* Not known to the garbage collector: it owns only memory, whose owners know of no Python objects
 * that could own it. */
static PyType_Spec column_batches_spec = {
    .name = "aioprod._native.ColumnBatches",
    .basicsize = sizeof(ColumnBatches),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = column_batches_slots,
};

int
add_column_batches(PyObject *module)
{
    static PyTypeObject *type;
    return add_type(module, &column_batches_spec, &type);
}
