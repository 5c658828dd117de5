/* The fast path of `send`, as aioprod/producer/fast_path.py has it. */
#ifndef _WIN32
#define _GNU_SOURCE /* for dladdr */
#include <dlfcn.h>
#include <time.h>
#endif

#include "fields.h"
#include "owned.h"
#include "record_buffer.h"

/* Headers of more bytes are encoded by the source in Python, and those of more than MOST_KNOWN bytes
 * are not remembered. */
enum { MOST_BYTES = 1024, MOST_KNOWN = 256, MOST_PAIRS = 8 };

typedef struct {
    PyObject_HEAD
    PyObject *topics, *clock, *check, *status, *encode_headers, *take_first;
    /* The first class seen of each: looking whether another class is derived from the base takes
     * 2 % of a record. */
    PyObject *topic_class, *sticky_class, *partition_class, *batch_class, *writer_class;
    /* The headers encoded last, of which each is a pair that can't change, and their bytes. Most
     * records have the same headers, and encoding two takes 0.1 us. */
    PyObject *pairs[MOST_PAIRS];
    Py_ssize_t pair_count, known_size;
    unsigned char known[MOST_KNOWN];
} FastPath;

/* The limit of timestamps, as in fast_path.py. */
static const int64_t FAR_MS = (int64_t)1 << 62;

static PyTypeObject *fast_path_type;
static PyObject *may_append_name;

/* The arguments of append(). */
enum { TOPIC, VALUE, KEY, HEADERS, PARTITION, TIMESTAMP_MS, ARGUMENTS };

/* Encoded headers. */
typedef struct {
    Field field;     /* NO_HEADERS if there are none */
    PyObject *block; /* its bytes, if the source in Python has encoded them */
    unsigned char bytes[MOST_BYTES]; /* else they are here */
} Headers;

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

/* The partition of a record: the given one, or that of its key, or the sticky one; -1 if the slow
 * path has to choose or refuse it. */
static Py_ssize_t
partition_of(FastPath *self, TopicFields *topic, const Field *key, PyObject *given)
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
    if (key->size < 0)
        return sticky->current;
    uint32_t hash = murmur2_of((const unsigned char *)key->data, (Py_ssize_t)key->size);
    return (hash & 0x7fffffff) % topic->count;
}

/* Find the partition of a record and its open batch: 1; 0 if the slow path has to look for them; -1
 * with an exception. No other code runs here but comparisons of the dictionary's keys, which may
 * close the path, as may the clock and the headers. */
static int
find_place(FastPath *self, PyObject *name, const Field *key, PyObject *given, Place *place)
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

/* A header: its name as UTF-8, and its value. 0 if it is not a tuple of the usual types, perhaps
 * with an exception. */
static int
read_header(PyObject *pair, Field *name, Field *value)
{
    if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2)
        return 0;
    PyObject *text = PyTuple_GetItem(pair, 0), *data = PyTuple_GetItem(pair, 1);
    if (!PyUnicode_CheckExact(text) || !(data == Py_None || PyBytes_CheckExact(data)))
        return 0;
    Py_ssize_t size;
    name->data = PyUnicode_AsUTF8AndSize(text, &size);
    name->size = size;
    *value = bytes_field(data == Py_None ? NULL : data);
    return name->data != NULL;
}

/* The items of a list or a tuple. */
typedef struct {
    PyObject *of;
    Py_ssize_t count;
    PyObject *(*item)(PyObject *, Py_ssize_t);
} Items;

/* Whether headers are those encoded last; then, copy the bytes. */
static int
are_known(const FastPath *self, const Items *headers, Headers *encoded)
{
    if (headers->count != self->pair_count)
        return 0;
    for (Py_ssize_t index = 0; index < headers->count; index++)
        if (headers->item(headers->of, index) != self->pairs[index])
            return 0;
    memcpy(encoded->bytes, self->known, (size_t)self->known_size);
    encoded->field = (Field){(const char *)encoded->bytes, self->known_size};
    return 1;
}

static void
remember(FastPath *self, const Items *headers, const Headers *encoded)
{
    if (headers->count > MOST_PAIRS || encoded->field.size > MOST_KNOWN)
        return;
    for (Py_ssize_t index = 0; index < headers->count; index++) {
        PyObject *old = self->pairs[index];
        self->pairs[index] = Py_NewRef(headers->item(headers->of, index));
        Py_XDECREF(old);
    }
    self->pair_count = headers->count;
    self->known_size = (Py_ssize_t)encoded->field.size;
    memcpy(self->known, encoded->bytes, (size_t)self->known_size);
}

/* Encode headers of the usual types, which runs no other code: 1; 0, perhaps with an exception, if
 * the source in Python has to. */
static int
encode_usual_headers(FastPath *self, PyObject *given, Headers *encoded)
{
    Items headers = {given, 0, NULL};
    if (PyTuple_CheckExact(given)) {
        headers.count = PyTuple_Size(given);
        headers.item = PyTuple_GetItem;
    } else if (PyList_CheckExact(given)) {
        headers.count = PyList_Size(given);
        headers.item = PyList_GetItem;
    } else
        return 0;
    Py_ssize_t count = headers.count;
    if (count == 0 || are_known(self, &headers, encoded))
        return 1;
    unsigned char *at = put(encoded->bytes, zigzag(count)), *end = encoded->bytes + MOST_BYTES;
    for (Py_ssize_t index = 0; index < count; index++) {
        Field name, value;
        if (!read_header(headers.item(given, index), &name, &value)
            || size_with_length(&name) + size_with_length(&value) > end - at)
            return 0;
        at = put_field(put_field(at, &name), &value);
    }
    encoded->field = (Field){(const char *)encoded->bytes, at - encoded->bytes};
    remember(self, &headers, encoded);
    return 1;
}

/* Encode headers; -1 with an exception. */
static int
encode_headers(FastPath *self, PyObject *headers, Headers *encoded)
{
    encoded->field = NO_HEADERS;
    encoded->block = NULL;
    if (encode_usual_headers(self, headers, encoded))
        return 0;
    PyErr_Clear();
    int is_true = PyObject_IsTrue(headers);
    if (is_true < 1)
        return is_true;
    encoded->block = PyObject_CallFunctionObjArgs(self->encode_headers, headers, NULL);
    if (encoded->block == NULL)
        return -1;
    if (!PyBytes_Check(encoded->block) || PyBytes_Size(encoded->block) == 0) {
        Py_CLEAR(encoded->block);
        PyErr_SetString(PyExc_TypeError, "encoded headers must be bytes, and begin with a number");
        return -1;
    }
    encoded->field = bytes_field(encoded->block);
    return 0;
}

/* When a record is sent, and its timestamp if one was given. */
typedef struct {
    double now_s;
    int64_t timestamp;
    int is_given;
} Time;

/* The C function of time.time(), if it is the interpreter's own. */
static PyCFunction system_time;

/* Read the system's clock if the clock is time.time(), as its call takes 9 % of a record. Libraries
 * for tests may replace the C function in it; then, it has to be called. */
static int
read_system_clock(PyObject *clock, double *now_s)
{
#ifdef CLOCK_REALTIME
    struct timespec now;
    if (system_time != NULL && PyCFunction_CheckExact(clock)
        && PyCFunction_GetFunction(clock) == system_time
        && clock_gettime(CLOCK_REALTIME, &now) == 0) {
        *now_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        return 1;
    }
#endif
    (void)clock;
    (void)now_s;
    return 0;
}

/* Find the C function of time.time(); -1 with an exception. */
static int
find_system_time(void)
{
#ifdef CLOCK_REALTIME
    Dl_info found, interpreter;
    PyObject *module = PyImport_ImportModule("time");
    PyObject *clock = module == NULL ? NULL : PyObject_GetAttrString(module, "time");
    Py_XDECREF(module);
    if (clock == NULL)
        return -1;
    PyCFunction function = PyCFunction_CheckExact(clock) ? PyCFunction_GetFunction(clock) : NULL;
    if (function != NULL && dladdr((void *)function, &found)
        && dladdr((void *)PyFloat_FromDouble, &interpreter)
        && found.dli_fbase == interpreter.dli_fbase)
        system_time = function;
    Py_DECREF(clock);
#endif
    return 0;
}

static int
read_clock(FastPath *self, double *now_s)
{
    if (read_system_clock(self->clock, now_s))
        return 1;
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

/* Make the batch ready for a record, and return whether it has room. It is full at 15/16, as in
 * batch.py. */
static int
has_room(Place *place, const Content *record)
{
    if (place->batch == NULL)
        return 0;
    RecordBuffer *writer = place->writer;
    int64_t bound = bound_of(record), open_until = place->batch->open_until;
    int is_over = writer->size + bound > open_until, kind = kind_of(record);
    if (is_over || writer->kind != kind) {
        count_exactly(writer);
        if (is_over && (double)(writer->size + bound) > (double)open_until * 15 / 16)
            return 0;
        writer->kind = kind;
    }
    return 1;
}

/* Put a record into a batch that has room. Return its delivery; None if it has to wait. */
static PyObject *
append_to(FastPath *self, Place *place, const Content *record, const Time *time)
{
    RecordBuffer *writer = place->writer;
    int admitted = may_append(self);
    if (admitted < 1)
        return admitted < 0 ? NULL : Py_NewRef(Py_None);
    if (set_time_of_next(self, writer, time) < 0)
        return NULL;
    PyObject *delivery = new_delivery(place->batch, writer->count);
    if (delivery != NULL && encode_record(writer, record, bound_of(record)) < 0)
        Py_CLEAR(delivery);
    return delivery;
}

/* Have a batch opened with a record. Return its delivery; None if it has to wait. */
static PyObject *
open_with(FastPath *self, PartitionFields *partition, PyObject *const *args,
          const Content *record, double now_s)
{
    int sticky = args[KEY] == Py_None && args[PARTITION] == Py_None;
    PyObject *block
        = PyBytes_FromStringAndSize(record->headers.data, (Py_ssize_t)record->headers.size);
    if (block == NULL)
        return NULL;
    PyObject *delivery = PyObject_CallFunction(self->take_first, "OOOOndO", partition, args[KEY],
                                               args[VALUE], block, bound_of(record), now_s,
                                               sticky ? Py_True : Py_False);
    Py_DECREF(block);
    return delivery;
}

static PyObject *
append_at(FastPath *self, PyObject *const *args, const Content *record)
{
    Time time = {0};
    Place place;
    int found = time_of(self, args[TIMESTAMP_MS], &time);
    if (found < 1)
        return found < 0 ? NULL : Py_NewRef(Py_None);
    found = find_place(self, args[TOPIC], &record->key, args[PARTITION], &place);
    PyObject *delivery = NULL;
    if (found == 1 && has_room(&place, record))
        delivery = append_to(self, &place, record, &time);
    else if (found == 1 && !time.is_given)
        delivery = open_with(self, place.partition, args, record, time.now_s);
    else if (found >= 0)
        delivery = Py_NewRef(Py_None);
    leave(&place);
    return delivery;
}

static PyObject *
take(FastPath *self, PyObject *const *args)
{
    PyObject *value = args[VALUE], *key = args[KEY];
    if (!PyBytes_CheckExact(value) || !(key == Py_None || PyBytes_CheckExact(key)))
        Py_RETURN_NONE;
    Headers headers;
    if (encode_headers(self, args[HEADERS], &headers) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError))
            return NULL;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    Content record
        = {bytes_field(key == Py_None ? NULL : key), bytes_field(value), headers.field};
    PyObject *delivery = append_at(self, args, &record);
    Py_XDECREF(headers.block);
    return delivery;
}

static PyObject *
append(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    if (given == ARGUMENTS)
        return take((FastPath *)object, args);
    PyErr_Format(PyExc_TypeError, "append() takes 6 arguments, not %zd", given);
    return NULL;
}

PyObject *
append_by(PyObject *path, PyObject *const *args)
{
    return Py_TYPE(path) == fast_path_type ? take((FastPath *)path, args) : Py_NewRef(Py_None);
}

static PyObject *
close_path(PyObject *object, PyObject *unused)
{
    (void)unused;
    Py_CLEAR(((FastPath *)object)->topics);
    Py_RETURN_NONE;
}

/* -- the type ----------------------------------------------------------------------------------- */

OWNS_OBJECTS(FastPath, topics, pairs[MOST_PAIRS - 1])

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
    if (may_append_name == NULL
        && (may_append_name = PyUnicode_InternFromString("may_append")) == NULL)
        return -1;
    return find_system_time() < 0 ? -1 : add_type(module, &spec, &fast_path_type);
}
