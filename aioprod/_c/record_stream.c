/* What `async for` takes the records of a consumer from: without a coroutine for a record that is
 * ready.
 *
 * A RecordStream stands for the consumer. Its `__anext__` returns a NextCall, which takes the record,
 * and if none is ready, runs the consumer's own `__anext__`. */
#include "lazy_call.h"

typedef struct {
    PyObject_HEAD
    PyObject *consumer, *function; /* the latter is its class's __anext__ */
    PyObject *records, *popleft;   /* a deque and its method */
} RecordStream;

typedef struct {
    LazyCall call;
    PyObject *stream;
} NextCall;

static PyTypeObject *record_stream_type, *next_call_type;
static PyObject *spare_call;

/* -- the call ----------------------------------------------------------------------------------- */

static PyObject *
take_at_once(LazyCall *call)
{
    RecordStream *stream = (RecordStream *)((NextCall *)call)->stream;
    Py_ssize_t ready = PyObject_Size(stream->records);
    if (ready <= 0)
        return ready < 0 ? NULL : Py_NewRef(Py_None);
    return PyObject_CallNoArgs(stream->popleft);
}

static PyObject *
make_coroutine(LazyCall *call)
{
    RecordStream *stream = (RecordStream *)((NextCall *)call)->stream;
    return PyObject_CallFunctionObjArgs(call->function, stream->consumer, NULL);
}

static const LazyKind next_call_kind
    = {take_at_once, make_coroutine, 1, &next_call_type, &spare_call};

static PyType_Slot call_slots[] = {
    LAZY_CALL_SLOTS,
    {0, NULL},
};

static PyType_Spec call_spec = {
    .name = "aioprod._native.NextCall",
    .basicsize = sizeof(NextCall),
    .flags = LAZY_CALL_FLAGS,
    .slots = call_slots,
};

/* -- the stream --------------------------------------------------------------------------------- */

static PyObject *
next_call(PyObject *object)
{
    NextCall *call
        = (NextCall *)new_lazy_call(&next_call_kind, ((RecordStream *)object)->function);
    if (call != NULL)
        call->stream = Py_NewRef(object);
    return (PyObject *)call;
}

static PyObject *
new_stream(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *consumer, *records;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "RecordStream() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OO:RecordStream", &consumer, &records))
        return NULL;
    RecordStream *self = (RecordStream *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL)
        return NULL;
    self->consumer = Py_NewRef(consumer);
    self->records = Py_NewRef(records);
    self->function = PyObject_GetAttrString((PyObject *)Py_TYPE(consumer), "__anext__");
    self->popleft = PyObject_GetAttrString(records, "popleft");
    if (self->function == NULL || self->popleft == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

OWNS_OBJECTS(RecordStream, consumer, popleft)

static PyType_Slot stream_slots[] = {
    {Py_tp_new, new_stream},
    {Py_am_aiter, PyObject_SelfIter},
    {Py_am_anext, next_call},
    OWNS_OBJECTS_SLOTS(RecordStream),
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "aioprod._native.RecordStream",
    .basicsize = sizeof(RecordStream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = stream_slots,
};

int
add_record_stream(PyObject *module)
{
    return make_type(module, &call_spec, &next_call_type) < 0
                   || add_type(module, &stream_spec, &record_stream_type) < 0
               ? -1
               : 0;
}
