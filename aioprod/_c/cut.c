/* Cutting of records out of one batch, or a run of plain ones, as aioprod/consumer/records.py has it.
 *
 * The first pass checks all records and makes nothing but their headers. The second one makes the
 * records that are asked for: just before they are used, out of the bytes of the response, whose
 * memory the exported buffer keeps in place. It reads the headers of batches again.
 *
 * A record is made by tuple's own tp_new from one tuple of fields, of which each record replaces
 * some. The garbage collector does not know that tuple, so no other code can refer to it; and it
 * does not know the records, nor the lists of them, which no other code changes: their fields can't
 * be part of a cycle.
 */
#include "batch.h"
#include "record.h"

/* The fields of a ConsumerRecord. */
enum {
    TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, VALUE, HEADERS, LEADER_EPOCH, FIELDS
};

typedef struct {
    PyObject_HEAD
    Py_buffer body;
    const unsigned char *at, *stop; /* the next record, and the end of its batch */
    PyObject *record_type;
    PyObject *arguments;   /* of tp_new: the tuple of fields */
    PyObject *fields;      /* that tuple, which the arguments own */
    PyObject *headers;     /* of each record; NULL if no record has some */
    Py_ssize_t index;      /* of the next record */
    Py_ssize_t left;       /* records that are not taken yet */
    Py_ssize_t batch_left; /* records of the batch that were not reached */
    int64_t start;         /* records with a smaller offset are skipped */
    int64_t expected;      /* the offset delta of the next record, unless there is a gap */
    int64_t base_offset, base_timestamp;
    int64_t stamp;         /* the timestamp delta of the fields */
    int32_t leader_epoch;  /* of the fields */
    int same_timestamp;    /* all records of the batch have the timestamp of the fields */
    int busy;
} CutRecords;

static PyTypeObject *cut_records_type;
static PyObject *consumer_record;

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
    return item == NULL ? -1 : PyTuple_SetItem(self->fields, field, item);
}

static int
set_none(CutRecords *self, Py_ssize_t field)
{
    return set_field(self, field, Py_NewRef(Py_None));
}

/* Add the headers of a record, by their bytes. 1: they are invalid; -1: an exception. */
static int
add_headers(CutRecords *self, Py_ssize_t index, PyObject *blocks, const Record *record,
            const Record *before)
{
    PyObject *headers;
    if (self->headers == NULL && (self->headers = PyList_New(0)) == NULL)
        return -1;
    while (PyList_Size(self->headers) < index + (record->headers_size == 0)) {
        PyObject *none = PyTuple_New(0);
        int failed = none == NULL ? -1 : PyList_Append(self->headers, none);
        Py_XDECREF(none);
        if (failed)
            return -1;
    }
    if (record->headers_size == 0)
        return 0;
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
    if (headers != NULL) {
        int failed = PyList_Append(self->headers, headers);
        Py_DECREF(headers);
        return failed;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear(); /* the source in Python meets and reports it again */
    return 1;
}

/* Check the records of a batch, and count those to take. 1: one is invalid; -1: an exception. */
static int
check(CutRecords *self, const unsigned char *at, const unsigned char *end, Py_ssize_t count,
      int64_t last_delta, int64_t start, Py_ssize_t *seen, PyObject *blocks)
{
    Record record = {0}, before;
    int64_t expected = 0;
    Py_ssize_t left = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        before = record;
        if ((at = read_record(at, end, expected, &record)) == NULL)
            return 1;
        int failed = record.headers_size || self->headers != NULL
                         ? add_headers(self, *seen + index, blocks, &record, &before)
                         : 0;
        if (failed)
            return failed;
        expected = record.delta + 1;
        left += record.delta >= start;
    }
    if (at != end || expected - 1 > last_delta)
        return 1;
    self->left += left;
    *seen += count;
    return 0;
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
    self->fields = fields;
    return PyTuple_SetItem(self->arguments, 0, fields);
}

/* Go to the records of the next batch that has some; -1 with an exception. */
static int
enter_batch(CutRecords *self)
{
    BatchHead head;
    do {
        if (!read_head(self->at, (unsigned char *)self->body.buf + self->body.len, &head)) {
            self->at = NULL;
            return 0;
        }
        self->at = head.end;
    } while (head.attributes & CONTROL || head.record_count == 0);
    self->at = head.records;
    self->stop = head.end;
    self->batch_left = head.record_count;
    self->expected = self->stamp = 0;
    self->base_offset = head.base_offset;
    self->base_timestamp = head.base_timestamp;
    self->same_timestamp = (head.attributes & LOG_APPEND_TIME) != 0;
    if (self->leader_epoch != head.leader_epoch
        && set_field(self, LEADER_EPOCH, PyLong_FromLong(head.leader_epoch)))
        return -1;
    self->leader_epoch = head.leader_epoch;
    int64_t timestamp = self->same_timestamp ? head.max_timestamp : head.base_timestamp;
    return set_field(self, TIMESTAMP_TYPE, PyLong_FromLong(self->same_timestamp))
                   || set_field(self, TIMESTAMP, PyLong_FromLongLong(timestamp))
               ? -1
               : 0;
}

/* Read the next record to take; -1 with an exception. */
static int
reach_record(CutRecords *self, Record *record)
{
    do {
        if (self->batch_left == 0 && enter_batch(self) < 0)
            return -1;
        if (self->at != NULL)
            self->at = read_record(self->at, self->stop, self->expected, record);
        if (self->at == NULL) {
            PyErr_SetString(PyExc_SystemError, "a batch changed while its records were read");
            return -1;
        }
        self->expected = record->delta + 1;
        self->batch_left -= 1;
        self->index += 1;
    } while (self->base_offset + record->delta < self->start);
    return 0;
}

static PyObject *
next_record(CutRecords *self)
{
    static newfunc new_tuple = NULL;
    Record record;
    if (new_tuple == NULL)
        new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    if (reach_record(self, &record) < 0)
        return NULL;
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
        && set_field(self, HEADERS, Py_XNewRef(PyList_GetItem(self->headers, self->index - 1))))
        return NULL;
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
    if (records != NULL)
        PyObject_GC_UnTrack(records);
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

/* The result of a function below: 0 is a success, 1 means that the source in Python decides. */
static PyObject *
cut(CutRecords *self, int failed)
{
    if (failed) {
        Py_DECREF(self);
        return failed < 0 ? NULL : Py_NewRef(Py_None);
    }
    if (self->left == 0)
        end_cutting(self);
    return (PyObject *)self;
}

const char cut_records_doc[] = "cut_records(template, body, count, last_delta, start, same_timestamp, blocks, /)\n--\n\n"
             "As aioprod.consumer.records.cut_records. None if the records are not valid to their\n"
             "end.";

PyObject *
cut_records(PyObject *module, PyObject *args)
{
    PyObject *template, *blocks;
    Py_ssize_t count, seen = 0;
    long long last_delta, start;
    CutRecords *self = (CutRecords *)PyType_GenericAlloc(cut_records_type, 0);
    (void)module;
    if (self == NULL)
        return NULL;
    if (!PyArg_ParseTuple(args, "O!y*nLLpO:cut_records", &PyTuple_Type, &template, &self->body,
                          &count, &last_delta, &start, &self->same_timestamp, &blocks))
        return cut(self, -1);
    if (PyTuple_Size(template) != FIELDS) {
        PyErr_SetString(PyExc_ValueError, "template must have 9 fields");
        return cut(self, -1);
    }
    self->record_type = Py_NewRef((PyObject *)Py_TYPE(template));
    self->base_offset = PyLong_AsLongLong(PyTuple_GetItem(template, OFFSET));
    self->base_timestamp = PyLong_AsLongLong(PyTuple_GetItem(template, TIMESTAMP));
    if (PyErr_Occurred() || copy_fields(self, template) < 0)
        return cut(self, -1);
    /* A record takes at least 7 bytes: no more is counted than the bytes are worth. */
    if (count < 0 || count > self->body.len / 7 || self->base_timestamp > INT64_MAX / 4
        || self->base_timestamp < -(INT64_MAX / 4) || self->base_offset < 0
        || self->base_offset > INT64_MAX / 2)
        return cut(self, 1);
    start = start < 0 ? 0 : start > INT64_MAX / 4 ? INT64_MAX / 4 + 1 : start;
    self->start = self->base_offset + start;
    self->at = self->body.buf;
    self->stop = self->at + self->body.len;
    self->batch_left = count;
    return cut(self, check(self, self->at, self->stop, count, last_delta, start, &seen, blocks));
}

/* How far the batches of a run are checked. */
typedef struct {
    const unsigned char *at;   /* the first batch that is not */
    const unsigned char *crcs; /* from here on no checksums are verified */
    Py_ssize_t passed, seen;   /* checked batches and records */
    Py_ssize_t batches;        /* up to the last one with records; what follows is of that one */
    int64_t offset;            /* after it */
    int32_t leader_epoch;
} Run;

/* Check the next batch. 1: the run ends before it; -1: an exception. */
static int
check_next(CutRecords *self, Run *run, int every, PyObject *blocks)
{
    BatchHead head;
    const unsigned char *end = (unsigned char *)self->body.buf + self->body.len;
    int others = every ? CODEC_BITS : CODEC_BITS | TRANSACTIONAL | CONTROL;
    if (!read_head(run->at, end, &head) || head.attributes & others
        || head.last_offset < self->start
        || (end - head.end >= 8 && number_at(head.end, 8) <= head.last_offset))
        return 1;
    if (run->at < run->crcs) {
        int64_t crc = checksum_of(run->at, head.end - run->at);
        if (crc != head.crc)
            return crc < 0 ? -1 : 1;
    }
    run->at = head.end;
    run->passed += 1;
    if (head.attributes & CONTROL || head.record_count == 0)
        return 0;
    int failed = check(self, head.records, head.end, head.record_count,
                       head.last_offset - head.base_offset, self->start - head.base_offset,
                       &run->seen, blocks);
    if (failed)
        return failed;
    run->batches = run->passed;
    run->offset = head.last_offset + 1;
    run->leader_epoch = head.leader_epoch;
    return 0;
}

const char cut_batches_doc[] = "cut_batches(tp, data, place, most, start, crcs, every, blocks, /)\n--\n\n"
             "As aioprod.consumer.records.cut_batches. None if there is no record to take before the\n"
             "first batch that is not plain or not valid.";

PyObject *
cut_batches(PyObject *module, PyObject *args)
{
    PyObject *tp, *blocks;
    Py_ssize_t place, most, crcs;
    long long start;
    int every, failed = 0;
    Run run = {0};
    CutRecords *self = (CutRecords *)PyType_GenericAlloc(cut_records_type, 0);
    (void)module;
    if (self == NULL)
        return NULL;
    if (!PyArg_ParseTuple(args, "O!y*nnLnpO:cut_batches", &PyTuple_Type, &tp, &self->body, &place,
                          &most, &start, &crcs, &every, &blocks)
        || import_once("aioprod.types", "ConsumerRecord", &consumer_record) < 0)
        return cut(self, -1);
    if (place < 0 || place > self->body.len || crcs < 0 || crcs > self->body.len) {
        PyErr_SetString(PyExc_ValueError, "a place is not in the data");
        return cut(self, -1);
    }
    self->record_type = Py_NewRef(consumer_record);
    self->leader_epoch = -1;
    self->start = start < 0 ? 0 : start;
    run.at = self->at = (unsigned char *)self->body.buf + place;
    run.crcs = (unsigned char *)self->body.buf + crcs;
    while (!failed && run.at - self->at < most)
        failed = check_next(self, &run, every, blocks);
    if (failed < 0 || self->left == 0)
        return cut(self, failed < 0 ? -1 : 1);
    PyObject *template
        = Py_BuildValue("OOiiiOO()i", PyTuple_GetItem(tp, TOPIC), PyTuple_GetItem(tp, PARTITION), 0,
                        0, 0, Py_None, Py_None, -1);
    if (template == NULL || copy_fields(self, template) < 0) {
        Py_XDECREF(template);
        return cut(self, -1);
    }
    Py_DECREF(template);
    return Py_BuildValue("NnLi", cut(self, 0), run.batches, (long long)run.offset,
                         (int)run.leader_epoch);
}

const char batch_places_doc[]
    = "batch_places(data, /)\n--\n\nAs aioprod.protocol.batch_cursor.batch_places.";

PyObject *
batch_places(PyObject *module, PyObject *data)
{
    Py_buffer buffer;
    (void)module;
    if (PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *places = PyList_New(0);
    const unsigned char *first = buffer.buf, *at = first, *end = first + buffer.len;
    while (places != NULL && end - at >= HEADER_SIZE) {
        const unsigned char *following = end_of_batch(at, end);
        int impossible = number_at(at + 8, 4) < HEADER_SIZE - LOG_OVERHEAD;
        if ((following == NULL && !impossible) || (at > first && at[MAGIC_AT] < MAGIC))
            break;
        PyObject *place = PyLong_FromSsize_t(at - first);
        if (place == NULL || PyList_Append(places, place) < 0)
            Py_CLEAR(places);
        Py_XDECREF(place);
        if (impossible)
            break;
        at = following;
    }
    PyBuffer_Release(&buffer);
    return places;
}
