/* The fast path of `send`, as aioprod/producer/fast_path.py has it. */
#include "field.h"
#include "fields.h"
#include "owned.h"
#include "record_buffer.h"

typedef struct {
    PyObject_HEAD
    PyObject *topics, *clock, *check, *status, *encode_headers, *take_first;
    /* The first class seen of each: looking whether another class is derived from the base takes
     * 2 % of a record. */
    PyObject *topic_class, *sticky_class, *partition_class, *batch_class, *writer_class;
} FastPath;

/* The limit of timestamps, as in fast_path.py. */
static const int64_t FAR_MS = (int64_t)1 << 62;

static PyTypeObject *fast_path_type;
static PyObject *no_headers, *may_append_name;

/* Where a record goes. The objects are owned. */
typedef struct {
    PyObject *topics;
    PartitionFields *partition;
    BatchFields *batch; /* NULL if none is open */
    RecordBuffer *writer;
} Place;

static void
leave(Place *place)
{
    Py_XDECREF(place->topics);
    Py_XDECREF((PyObject *)place->partition);
    Py_XDECREF((PyObject *)place->batch);
    Py_XDECREF((PyObject *)place->writer);
}

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

/* The partition of a record: the given one, or that of its key, or the sticky one; -1 if the slow
 * path has to choose or refuse it. */
static Py_ssize_t
partition_of(FastPath *self, TopicFields *topic, PyObject *key, PyObject *given)
{
    if (given != Py_None) {
        int overflow;
        long partition
            = PyLong_CheckExact(given) ? PyLong_AsLongAndOverflow(given, &overflow) : -1;
        return partition < topic->count ? partition : -1;
    }
    StickyFields *sticky = of_class(topic->sticky, sticky_fields_type, &self->sticky_class);
    if (sticky == NULL)
        return -1;
    if (key == NULL)
        return sticky->current;
    char *data = PyBytes_AsString(key); /* a key is of exactly this type, so it can't fail */
    return (murmur2_of((unsigned char *)data, PyBytes_Size(key)) & 0x7fffffff) % topic->count;
}

/* Find the partition of a record and its open batch: 1; 0 if the slow path has to look for them; -1
 * with an exception. No other code runs here but comparisons of the dictionary's keys, which may
 * close the path, as may the clock and the headers. */
static int
find_place(FastPath *self, PyObject *name, PyObject *key, PyObject *given, Place *place)
{
    memset(place, 0, sizeof *place);
    if (self->topics == NULL || !PyUnicode_CheckExact(name))
        return 0;
    place->topics = Py_NewRef(self->topics);
    PyObject *found = PyDict_GetItemWithError(place->topics, name);
    TopicFields *topic = of_class(found, topic_fields_type, &self->topic_class);
    if (topic == NULL || topic->count < 1 || topic->queues == NULL || !PyList_Check(topic->queues))
        return PyErr_Occurred() ? -1 : 0;
    Py_ssize_t partition = partition_of(self, topic, key, given);
    if (partition < 0 || partition >= PyList_Size(topic->queues))
        return 0;
    PartitionFields *queue
        = of_class(PyList_GetItem(topic->queues, partition), partition_fields_type,
                   &self->partition_class);
    if (queue == NULL)
        return 0;
    place->partition = (PartitionFields *)Py_NewRef((PyObject *)queue);
    BatchFields *batch = of_class(queue->open, batch_fields_type, &self->batch_class);
    RecordBuffer *writer
        = batch == NULL ? NULL : of_class(batch->writer, record_buffer_type, &self->writer_class);
    if (writer != NULL) {
        place->batch = (BatchFields *)Py_NewRef((PyObject *)batch);
        place->writer = (RecordBuffer *)Py_NewRef((PyObject *)writer);
    }
    return 1;
}

/* A header: its name as UTF-8, and its value, NULL for null. 0 if it is not a tuple of the usual
 * types, perhaps with an exception. */
static int
read_header(PyObject *headers, Py_ssize_t index, Field *name, Field *value)
{
    PyObject *pair = PyTuple_Check(headers) ? PyTuple_GetItem(headers, index)
                                            : PyList_GetItem(headers, index);
    if (pair == NULL || !PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2)
        return 0;
    PyObject *text = PyTuple_GetItem(pair, 0), *data = PyTuple_GetItem(pair, 1);
    if (!PyUnicode_CheckExact(text) || !(data == Py_None || PyBytes_CheckExact(data)))
        return 0;
    Py_ssize_t size;
    name->data = PyUnicode_AsUTF8AndSize(text, &size);
    name->size = size;
    value->data = data == Py_None ? NULL : PyBytes_AsString(data);
    value->size = data == Py_None ? -1 : PyBytes_Size(data);
    return name->data != NULL;
}

/* Encode headers of the usual types, which runs no other code: a new reference; NULL if the source
 * in Python has to. */
static PyObject *
encode_usual_headers(PyObject *headers)
{
    if (!PyTuple_CheckExact(headers) && !PyList_CheckExact(headers))
        return NULL;
    Py_ssize_t count = PyObject_Size(headers);
    int64_t size = size_of(zigzag(count));
    Field name, value;
    if (count == 0)
        return NULL;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (!read_header(headers, at, &name, &value) || size > INT32_MAX)
            return NULL;
        size += size_with_length(&name) + size_with_length(&value);
    }
    PyObject *block = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (block == NULL)
        return NULL;
    unsigned char *end = put((unsigned char *)PyBytes_AsString(block), zigzag(count));
    for (Py_ssize_t at = 0; at < count && read_header(headers, at, &name, &value); at++)
        end = put_field(put_field(end, &name), &value);
    return block;
}

/* The encoded headers, or NULL if there are none or with an exception: a new reference. */
static PyObject *
encode_headers(FastPath *self, PyObject *headers)
{
    if (PyTuple_CheckExact(headers) && PyTuple_Size(headers) == 0)
        return NULL;
    PyObject *usual = encode_usual_headers(headers);
    if (usual != NULL)
        return usual;
    PyErr_Clear();
    if (PyObject_IsTrue(headers) < 1)
        return NULL;
    PyObject *block = PyObject_CallFunctionObjArgs(self->encode_headers, headers, NULL);
    if (block != NULL && !PyBytes_Check(block)) {
        Py_CLEAR(block);
        PyErr_SetString(PyExc_TypeError, "encoded headers must be bytes");
    }
    if (block != NULL && PyBytes_Size(block) == 1)
        Py_CLEAR(block); /* their number, 0 */
    return block;
}

/* When a record is sent, and its timestamp if one was given. */
typedef struct {
    double now_s;
    int64_t timestamp;
    int is_given;
} Time;

static int
read_clock(FastPath *self, double *now_s)
{
    PyObject *given = PyObject_CallNoArgs(self->clock);
    if (given == NULL)
        return -1;
    *now_s = PyFloat_AsDouble(given);
    Py_DECREF(given);
    return *now_s == -1 && PyErr_Occurred() ? -1 : 1;
}

/* Read the timestamp, or the clock if there is none: 1; 0 if the slow path has to refuse it; -1
 * with an exception. */
static int
time_of(FastPath *self, PyObject *timestamp_ms, Time *time)
{
    int overflow;
    time->is_given = timestamp_ms != Py_None;
    if (!time->is_given)
        return read_clock(self, &time->now_s);
    if (!PyLong_CheckExact(timestamp_ms))
        return 0;
    time->timestamp = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow);
    return !overflow && time->timestamp >= -FAR_MS && time->timestamp < FAR_MS;
}

static int
check_loop(FastPath *self)
{
    PyObject *answer = PyObject_CallNoArgs(self->check);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* Check the event loop if it was not checked in this millisecond, and set the time of the next
 * record; -1 with an exception. */
static int
set_time_of_next(FastPath *self, RecordBuffer *writer, const Time *time)
{
    if (time->is_given)
        return check_loop(self) < 0 ? -1 : set_timestamp(writer, time->timestamp);
    if (!(time->now_s >= writer->until_s)) /* as in fast_path.py, also for NaN */
        return 0;
    return check_loop(self) < 0 ? -1 : set_time(writer, time->now_s);
}

/* Whether the producer's status admits records; -1 with an exception. */
static int
may_append(FastPath *self)
{
    if (self->status == Py_None)
        return 1;
    PyObject *answer = PyObject_GetAttr(self->status, may_append_name);
    int is_true = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return is_true;
}

/* Put a record into an open batch. Return its delivery; None if it has to wait. */
static PyObject *
append_to(FastPath *self, Place *place, PyObject *key, PyObject *value, PyObject *block,
          Py_ssize_t bound, const Time *time)
{
    RecordBuffer *writer = place->writer;
    if (writer->size + bound > place->batch->open_until || writer->kind != kind_of(key, block))
        Py_RETURN_NONE;
    int admitted = may_append(self);
    if (admitted < 1)
        return admitted < 0 ? NULL : Py_NewRef(Py_None);
    if (set_time_of_next(self, writer, time) < 0)
        return NULL;
    PyObject *delivery = new_delivery(place->batch, writer->count);
    if (delivery != NULL && encode_record(writer, key, value, block, bound) < 0)
        Py_CLEAR(delivery);
    return delivery;
}

static PyObject *
append_at(FastPath *self, PyObject *name, PyObject *key, PyObject *value, PyObject *block,
          PyObject *partition, PyObject *timestamp_ms)
{
    Time time;
    Place place;
    int found = time_of(self, timestamp_ms, &time);
    if (found < 1)
        return found < 0 ? NULL : Py_NewRef(Py_None);
    found = find_place(self, name, key, partition, &place);
    if (found < 1 || (place.batch == NULL && time.is_given)) {
        leave(&place);
        return found < 0 ? NULL : Py_NewRef(Py_None);
    }
    Py_ssize_t bound = bound_of(key, value, block);
    PyObject *delivery
        = place.batch != NULL
              ? append_to(self, &place, key, value, block, bound, &time)
              : PyObject_CallFunction(self->take_first, "OOOOnd", place.partition,
                                      key == NULL ? Py_None : key, value,
                                      block == NULL ? no_headers : block, bound, time.now_s);
    leave(&place);
    return delivery;
}

static PyObject *
append(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    FastPath *self = (FastPath *)object;
    if (given != 6) {
        PyErr_Format(PyExc_TypeError, "append() takes 6 arguments, not %zd", given);
        return NULL;
    }
    PyObject *topic = args[0], *value = args[1], *key = args[2];
    if (!PyBytes_CheckExact(value) || !(key == Py_None || PyBytes_CheckExact(key)))
        Py_RETURN_NONE;
    PyObject *block = encode_headers(self, args[3]);
    if (block == NULL && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError))
            return NULL;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *delivery
        = append_at(self, topic, key == Py_None ? NULL : key, value, block, args[4], args[5]);
    Py_XDECREF(block);
    return delivery;
}

static PyObject *
close_path(PyObject *object, PyObject *unused)
{
    (void)unused;
    Py_CLEAR(((FastPath *)object)->topics);
    Py_RETURN_NONE;
}

/* -- the type ----------------------------------------------------------------------------------- */

OWNS_OBJECTS(FastPath, topics, writer_class)

static PyObject *
new_fast_path(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"topics", "clock", "check", "status", "encode_headers", "take_first",
                            NULL};
    PyObject *given[6];
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!OOOOO:FastPath", names, &PyDict_Type,
                                     &given[0], &given[1], &given[2], &given[3], &given[4],
                                     &given[5]))
        return NULL;
    FastPath *self = (FastPath *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    for (int at = 0; self != NULL && at < 6; at++)
        (&self->topics)[at] = Py_NewRef(given[at]);
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL, NULL},
    {"close", close_path, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "As aioprod.producer.fast_path.FastPath."},
    {Py_tp_new, new_fast_path},
    {Py_tp_methods, methods},
    OWNS_OBJECTS_SLOTS(FastPath),
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "aioprod._native.FastPath",
    .basicsize = sizeof(FastPath),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int
add_fast_path(PyObject *module)
{
    if (no_headers == NULL && (no_headers = PyBytes_FromStringAndSize("\0", 1)) == NULL)
        return -1;
    if (may_append_name == NULL
        && (may_append_name = PyUnicode_InternFromString("may_append")) == NULL)
        return -1;
    return add_type(module, &spec, &fast_path_type);
}
