/* Cutting of records out of a batch, as aioprod/consumer/records.py has it.
 *
 * The first pass checks all records and makes nothing but their headers. The second one makes the
 * records that are asked for: just before they are used, out of the bytes of the response, whose
 * memory the exported buffer keeps in place.
 *
 * A record is made by tuple's own tp_new from one tuple of fields, of which each record replaces
 * some. The garbage collector does not know that tuple, so no other code can refer to it; and it
 * does not know the records: their fields can't be part of a cycle.
 */
#include "record.h"

/* The fields of a ConsumerRecord. */
enum { OFFSET = 2, TIMESTAMP = 3, KEY = 5, VALUE = 6, HEADERS = 7, FIELDS = 9 };

typedef struct {
    PyObject_HEAD
    Py_buffer body;
    const unsigned char *at;
    PyObject *record_type;
    PyObject *arguments; /* of tp_new: the tuple of fields */
    PyObject *headers;   /* of each record; NULL if no record has some */
    Py_ssize_t index;    /* of the next record */
    Py_ssize_t left;     /* records that are not taken yet */
    int64_t expected;    /* the offset delta of the next record, unless there is a gap */
    int64_t base_offset, base_timestamp;
    int64_t stamp;       /* the timestamp delta of the fields */
    int same_timestamp;  /* all records have the timestamp of the template */
    int busy;
} CutRecords;

static PyTypeObject *cut_records_type;

static void
end_cutting(CutRecords *self)
{
    self->left = 0;
    if (self->body.obj != NULL)
        PyBuffer_Release(&self->body);
}

static void
cut_dealloc(PyObject *object)
{
    CutRecords *self = (CutRecords *)object;
    PyTypeObject *type = Py_TYPE(object);
    end_cutting(self);
    Py_XDECREF(self->arguments);
    Py_XDECREF(self->headers);
    Py_XDECREF(self->record_type);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* Put a new reference into the fields. */
static int
set_field(CutRecords *self, Py_ssize_t field, PyObject *item)
{
    return item == NULL ? -1
                        : PyTuple_SetItem(PyTuple_GetItem(self->arguments, 0), field, item);
}

static int
set_none(CutRecords *self, Py_ssize_t field)
{
    return set_field(self, field, Py_NewRef(Py_None));
}

/* Headers by their bytes. 1: they are invalid; -1: an exception. */
static int
add_headers(CutRecords *self, Py_ssize_t index, Py_ssize_t count, PyObject *blocks,
            const Record *record, const Record *before)
{
    PyObject *headers;
    if (self->headers == NULL) {
        PyObject *none = PyTuple_New(0);
        if (none == NULL || (self->headers = PyList_New(count)) == NULL) {
            Py_XDECREF(none);
            return -1;
        }
        for (Py_ssize_t other = 0; other < count; other++)
            PyList_SetItem(self->headers, other, Py_NewRef(none));
        Py_DECREF(none);
    }
    if (before->headers_size == record->headers_size
        && memcmp(before->headers, record->headers, (size_t)record->headers_size) == 0)
        headers = Py_XNewRef(PyList_GetItem(self->headers, index - 1));
    else {
        PyObject *block = field_object(record->headers, record->headers_size);
        if (block == NULL)
            return -1;
        headers = PyObject_GetItem(blocks, block);
        Py_DECREF(block);
    }
    if (headers != NULL)
        return PyList_SetItem(self->headers, index, headers);
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear(); /* the source in Python meets and reports it again */
    return 1;
}

/* The first pass. 1: a record is invalid; -1: an exception. */
static int
check(CutRecords *self, Py_ssize_t count, int64_t last_delta, int64_t start, PyObject *blocks)
{
    const unsigned char *at = self->body.buf, *end = at + self->body.len;
    Record record = {0}, before;
    int64_t expected = 0;
    self->at = at;
    for (Py_ssize_t index = 0; index < count; index++) {
        before = record;
        if ((at = read_record(at, end, expected, &record)) == NULL)
            return 1;
        int failed = record.headers_size
                         ? add_headers(self, index, count, blocks, &record, &before)
                         : 0;
        if (failed)
            return failed;
        expected = record.delta + 1;
        if (record.delta < start) {
            self->at = at;
            self->index = index + 1;
            self->expected = expected;
        }
    }
    self->left = count - self->index;
    return at != end || expected - 1 > last_delta;
}

/* The template's fields, copied for this batch. */
static int
copy_fields(CutRecords *self, PyObject *template)
{
    PyObject *fields = PyTuple_New(FIELDS);
    if (fields == NULL)
        return -1;
    PyObject_GC_UnTrack(fields);
    for (Py_ssize_t field = 0; field < FIELDS; field++)
        PyTuple_SetItem(fields, field, Py_NewRef(PyTuple_GetItem(template, field)));
    if ((self->arguments = PyTuple_New(1)) == NULL) {
        Py_DECREF(fields);
        return -1;
    }
    PyObject_GC_UnTrack(self->arguments);
    return PyTuple_SetItem(self->arguments, 0, fields);
}

static PyObject *
next_record(CutRecords *self)
{
    static newfunc new_tuple = NULL;
    Record record;
    const unsigned char *end = (unsigned char *)self->body.buf + self->body.len;
    if (new_tuple == NULL)
        new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    self->at = read_record(self->at, end, self->expected, &record);
    if (self->at == NULL) {
        PyErr_SetString(PyExc_SystemError, "a batch changed while its records were read");
        return NULL;
    }
    self->expected = record.delta + 1;
    if (self->stamp != record.stamp && !self->same_timestamp) {
        if (set_field(self, TIMESTAMP, PyLong_FromLongLong(self->base_timestamp + record.stamp)))
            return NULL;
        self->stamp = record.stamp;
    }
    if (set_field(self, OFFSET, PyLong_FromLongLong(self->base_offset + record.delta))
        || set_field(self, KEY, field_object(record.key, record.key_size))
        || set_field(self, VALUE, field_object(record.value, record.value_size)))
        return NULL;
    if (self->headers != NULL
        && set_field(self, HEADERS, Py_XNewRef(PyList_GetItem(self->headers, self->index))))
        return NULL;
    self->index += 1;
    self->left -= 1;
    PyObject *made = new_tuple((PyTypeObject *)self->record_type, self->arguments, NULL);
    if (made != NULL)
        PyObject_GC_UnTrack(made);
    return made;
}

/* The next records in a list, at most `most`. */
static PyObject *
cut_take(PyObject *object, PyObject *argument)
{
    CutRecords *self = (CutRecords *)object;
    Py_ssize_t most = PyLong_AsSsize_t(argument);
    if (most == -1 && PyErr_Occurred())
        return NULL;
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "take() was called while it runs");
        return NULL;
    }
    most = most < 0 ? 0 : most > self->left ? self->left : most;
    PyObject *records = PyList_New(most);
    self->busy = 1;
    for (Py_ssize_t place = 0; records != NULL && place < most; place++) {
        PyObject *record = next_record(self);
        if (record == NULL || PyList_SetItem(records, place, record) < 0) {
            Py_DECREF(records);
            records = NULL;
            end_cutting(self);
        }
    }
    self->busy = 0;
    if (set_none(self, KEY) || set_none(self, VALUE)) { /* they may be large */
        Py_XDECREF(records);
        records = NULL;
    }
    if (self->left == 0)
        end_cutting(self);
    return records;
}

static PyObject *
cut_left(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(((CutRecords *)object)->left);
}

static PyMethodDef cut_methods[] = {
    {"take", cut_take, METH_O, "take(most, /)\n--\n\nReturn the next records, at most `most`."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef cut_getters[] = {
    {"left", cut_left, NULL, "The number of records that are not taken yet.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot cut_slots[] = {
    {Py_tp_dealloc, cut_dealloc},
    {Py_tp_methods, cut_methods},
    {Py_tp_getset, cut_getters},
    {0, NULL},
};

static PyType_Spec cut_records_spec = {
    .name = "aioprod._native.CutRecords",
    .basicsize = sizeof(CutRecords),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = cut_slots,
};

int
add_cut_records(PyObject *module)
{
    return make_type(module, &cut_records_spec, &cut_records_type);
}

const char cut_records_doc[] = "cut_records(template, body, count, last_delta, start, same_timestamp, blocks, /)\n--\n\n"
             "As aioprod.consumer.records.cut_records. None if the records are not valid to their\n"
             "end.";

PyObject *
cut_records(PyObject *module, PyObject *args)
{
    PyObject *template, *blocks;
    Py_ssize_t count;
    long long last_delta, start;
    int same_timestamp, failed = -1;
    CutRecords *self = (CutRecords *)PyType_GenericAlloc(cut_records_type, 0);
    (void)module;
    if (self == NULL)
        return NULL;
    if (!PyArg_ParseTuple(args, "O!y*nLLpO:cut_records", &PyTuple_Type, &template, &self->body,
                          &count, &last_delta, &start, &same_timestamp, &blocks))
        goto end;
    if (PyTuple_Size(template) != FIELDS) {
        PyErr_SetString(PyExc_ValueError, "template must have 9 fields");
        goto end;
    }
    self->record_type = Py_NewRef((PyObject *)Py_TYPE(template));
    self->base_offset = PyLong_AsLongLong(PyTuple_GetItem(template, OFFSET));
    self->base_timestamp = PyLong_AsLongLong(PyTuple_GetItem(template, TIMESTAMP));
    if (PyErr_Occurred() || copy_fields(self, template) < 0)
        goto end;
    self->same_timestamp = same_timestamp;
    /* A record takes at least 7 bytes: no more is allocated than the bytes are worth. */
    failed = count < 0 || count > self->body.len / 7 || self->base_timestamp > INT64_MAX / 4
             || self->base_timestamp < -(INT64_MAX / 4) || self->base_offset < 0
             || self->base_offset > INT64_MAX / 2
                 ? 1
                 : check(self, count, last_delta, start, blocks);
    if (!failed && self->left == 0)
        end_cutting(self);
end:
    if (!failed)
        return (PyObject *)self;
    Py_DECREF(self);
    if (failed < 0)
        return NULL;
    Py_RETURN_NONE;
}
