/* Deliveries, as aioprod/producer/delivery.py has them.
 *
 * A Delivery has no header for the garbage collector, which would visit the hundreds of
 * thousands that a program may keep. So a cycle through one is never found: aioprod lets a batch
 * refer to nothing, after its end, that may lead to a delivery (errors are copied for each caller).
 *
 * A delivery with an outcome is also the iterator for which `await` asks it: another object for each
 * `await` takes 10 of 104 ns.
 */
#include "fields.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    BatchFields *batch; /* NULL until it is set */
    Py_ssize_t index;
} Delivery;

static PyTypeObject *delivery_type, *metadata_type;
static PyObject *wait_name, *value_name;

/* -- exceptions with results --------------------------------------------------------------------- */

/* Raise an exception, without its old traceback, with a result; -1 with another one. */
static int
raise_stop(PyObject *stop, PyObject *result)
{
    if (stop == NULL || PyObject_SetAttr(stop, value_name, result) < 0)
        return -1;
    PyErr_Restore(Py_NewRef(PyExc_StopIteration), Py_NewRef(stop), NULL);
    return 0;
}

PyObject *
stop_with(PyObject *result)
{
    PyObject *stop = PyObject_CallNoArgs(PyExc_StopIteration);
    raise_stop(stop, result);
    Py_XDECREF(stop);
    Py_DECREF(result);
    return NULL;
}

/* An exception that has no other references. Creating one for each result takes 90 ns. It keeps the
 * last result, which is metadata: some text and numbers. */
static PyObject *spare_stop;

/* As stop_with(), with metadata. */
static PyObject *
stop_with_metadata(PyObject *metadata)
{
    PyObject *stop = spare_stop;
    spare_stop = NULL;
    if (stop == NULL || Py_REFCNT(stop) > 1) {
        Py_XDECREF(stop);
        stop = PyObject_CallNoArgs(PyExc_StopIteration);
    }
    if (raise_stop(stop, metadata) == 0)
        spare_stop = stop;
    else
        Py_XDECREF(stop);
    Py_DECREF(metadata);
    return NULL;
}

/* -- metadata ----------------------------------------------------------------------------------- */

/* The timestamp of a record: a new reference. */
static PyObject *
timestamp_of(PyObject *starts, PyObject *timestamps, Py_ssize_t index)
{
    Py_ssize_t low = 0, high = PySequence_Size(timestamps);
    if (high < 0)
        return NULL;
    while (high - low > 1) {
        Py_ssize_t middle = low + (high - low) / 2;
        PyObject *start = PySequence_GetItem(starts, middle);
        if (start == NULL)
            return NULL;
        Py_ssize_t number = PyNumber_AsSsize_t(start, PyExc_OverflowError);
        Py_DECREF(start);
        if (number == -1 && PyErr_Occurred())
            return NULL;
        if (number <= index)
            low = middle;
        else
            high = middle;
    }
    return PySequence_GetItem(timestamps, low);
}

static PyObject *
size_of_field(PyObject *sizes, Py_ssize_t index)
{
    Py_ssize_t count = PySequence_Size(sizes);
    return count > 0 ? PySequence_GetItem(sizes, index) : count == 0 ? PyLong_FromLong(-1) : NULL;
}

/* The sum may need 64 bits without a sign. */
static PyObject *
offset_of(long long base, Py_ssize_t index)
{
    return index < 0 ? PyLong_FromLongLong(base + index)
                     : PyLong_FromUnsignedLongLong((unsigned long long)base + (size_t)index);
}

static PyObject *
metadata_of(BatchFields *batch, Py_ssize_t index)
{
    if (!batch->topic || !batch->partition || !batch->starts || !batch->timestamps
        || !batch->key_sizes || !batch->value_sizes) {
        PyErr_SetString(PyExc_AttributeError, "the batch has no outcome");
        return NULL;
    }
    /* Sequences of other types may run code, which may replace them and the batch. */
    PyObject *starts = Py_NewRef(batch->starts), *timestamps = Py_NewRef(batch->timestamps),
             *key_sizes = Py_NewRef(batch->key_sizes), *value_sizes = Py_NewRef(batch->value_sizes);
    PyObject *fields[] = {
        Py_NewRef(batch->topic),
        Py_NewRef(batch->partition),
        offset_of(batch->base_offset, index),
        timestamp_of(starts, timestamps, index),
        size_of_field(key_sizes, index),
        size_of_field(value_sizes, index),
    };
    Py_DECREF(starts);
    Py_DECREF(timestamps);
    Py_DECREF(key_sizes);
    Py_DECREF(value_sizes);
    const Py_ssize_t count = sizeof(fields) / sizeof(*fields);
    int failed = 0;
    for (Py_ssize_t at = 0; at < count; at++)
        failed |= fields[at] == NULL;
    /* As tuple.__new__, without a tuple of arguments: RecordMetadata is a tuple with names. */
    PyObject *metadata = failed ? NULL : PyType_GenericAlloc(metadata_type, count);
    for (Py_ssize_t at = 0; at < count; at++) {
        if (metadata == NULL)
            Py_XDECREF(fields[at]);
        else
            PyTuple_SetItem(metadata, at, fields[at]); /* takes it over, and can't fail */
    }
    return metadata;
}

/* -- Delivery ---------------------------------------------------------------------------- */

/* For `await`: an iterator. */
static PyObject *
await_delivery(PyObject *object)
{
    BatchFields *batch = ((Delivery *)object)->batch;
    if (batch == NULL) {
        PyErr_SetString(PyExc_AttributeError, "_batch");
        return NULL;
    }
    return batch->base_offset < 0 ? PyObject_CallMethodObjArgs(object, wait_name, NULL)
                                  : Py_NewRef(object);
}

/* For callers of __await__() in Python, who may iterate over what it returns. */
static PyObject *
wait_for_delivery(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyObject_CallMethodObjArgs(object, wait_name, NULL);
}

/* The metadata of a record that is stored, as the iterator's result. */
static PyObject *
result_of(PyObject *object)
{
    Delivery *self = (Delivery *)object;
    if (self->batch != NULL && self->batch->base_offset >= 0)
        return metadata_of(self->batch, self->index);
    PyErr_SetString(PyExc_TypeError, "a Delivery is not an iterator: await it");
    return NULL;
}

/* CPython 3.11 asks by `send`, which needs no exception. */
static PySendResult
send_result(PyObject *object, PyObject *sent, PyObject **returned)
{
    (void)sent;
    *returned = result_of(object);
    return *returned == NULL ? PYGEN_ERROR : PYGEN_RETURN;
}

/* CPython asks by `next` since 3.12. */
static PyObject *
next_result(PyObject *object)
{
    PyObject *metadata = result_of(object);
    return metadata == NULL ? NULL : stop_with_metadata(metadata);
}

/* The metadata of a record that is stored; None if it has failed, or its offset is not known. */
static PyObject *
stored(PyObject *object, PyObject *unused)
{
    Delivery *self = (Delivery *)object;
    (void)unused;
    if (self->batch == NULL || self->batch->base_offset < 0)
        Py_RETURN_NONE;
    return metadata_of(self->batch, self->index);
}

static PyObject *
get_batch(PyObject *object, void *closure)
{
    PyObject *batch = (PyObject *)((Delivery *)object)->batch;
    (void)closure;
    if (batch == NULL)
        PyErr_SetString(PyExc_AttributeError, "_batch");
    return Py_XNewRef(batch);
}

static int
set_batch(PyObject *object, PyObject *given, void *closure)
{
    (void)closure;
    if (given == NULL || !PyObject_TypeCheck(given, batch_fields_type)) {
        PyErr_SetString(PyExc_TypeError, "_batch must be a BatchFields");
        return -1;
    }
    PyObject *old = (PyObject *)((Delivery *)object)->batch;
    ((Delivery *)object)->batch = (BatchFields *)Py_NewRef(given);
    Py_XDECREF(old);
    return 0;
}

PyObject *
new_delivery(BatchFields *batch, Py_ssize_t index)
{
    Delivery *self = PyObject_New(Delivery, delivery_type);
    if (self != NULL) {
        self->batch = (BatchFields *)Py_NewRef((PyObject *)batch);
        self->index = index;
    }
    return (PyObject *)self;
}

static void
free_delivery(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_CLEAR(((Delivery *)object)->batch);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMemberDef delivery_members[] = {
    {"_index", T_PYSSIZET, offsetof(Delivery, index), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef delivery_methods[] = {
    {"_stored", stored, METH_NOARGS, NULL},
    {"__await__", wait_for_delivery, METH_NOARGS | METH_COEXIST, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef delivery_getset[] = {
    {"_batch", get_batch, set_batch, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot delivery_slots[] = {
    {Py_tp_doc, "As aioprod.producer.delivery.Delivery."},
    {Py_tp_members, delivery_members},
    {Py_tp_methods, delivery_methods},
    {Py_tp_getset, delivery_getset},
    {Py_tp_dealloc, free_delivery},
    {Py_tp_iternext, next_result},
    {Py_am_await, await_delivery},
    {Py_am_send, send_result},
    {0, NULL},
};

static PyType_Spec delivery_spec = {
    .name = "aioprod._native.Delivery",
    .basicsize = sizeof(Delivery),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = delivery_slots,
};

/* -- the module's part -------------------------------------------------------------------------- */

int
add_deliveries(PyObject *module)
{
    if (wait_name == NULL && (wait_name = PyUnicode_InternFromString("_wait")) == NULL)
        return -1;
    if (value_name == NULL && (value_name = PyUnicode_InternFromString("value")) == NULL)
        return -1;
    if (metadata_type == NULL) {
        PyObject *types = PyImport_ImportModule("aioprod.types");
        if (types == NULL)
            return -1;
        metadata_type = (PyTypeObject *)PyObject_GetAttrString(types, "RecordMetadata");
        Py_DECREF(types);
        if (metadata_type == NULL)
            return -1;
    }
    return add_type(module, &delivery_spec, &delivery_type);
}
