/* `Producer.send` without a coroutine for a record that gets its place at once.
 *
 * A SendMethod stands for the method in Python, a coroutine function, and looks like it. Calling it
 * returns a SendCall, which has the fast path take the record. */
#include "fields.h"
#include "lazy_call.h"

#include <stddef.h>
#include <structmember.h>

/* 3.11 has these, too, but only the limited API of 3.12 names them. */
typedef PyObject *(*call_function)(PyObject *, PyObject *const *, size_t, PyObject *);
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#define HAS_PLACE_BEFORE ((size_t)1 << (8 * sizeof(size_t) - 1))

/* The parameters of send() after self. */
enum { TOPIC, VALUE, KEY, PARTITION, TIMESTAMP_MS, HEADERS, PARTITION_KEY, PARAMETERS };
static const char *const parameters[PARAMETERS]
    = {"topic", "value", "key", "partition", "timestamp_ms", "headers", "partition_key"};

typedef struct {
    PyObject_HEAD
    PyObject *function;
    call_function call;
} SendMethod;

typedef struct {
    LazyCall call;
    PyObject *producer;
    PyObject *given[PARAMETERS]; /* NULL if it was not given */
} SendCall;

static PyTypeObject *send_method_type, *send_call_type;
static PyObject *spare_call;
static PyObject *producer_class; /* the first one seen: see of_class() */
static PyObject *names[PARAMETERS], *fast_path_name, *no_headers, *bound_method;

/* -- the call ----------------------------------------------------------------------------------- */

static PyObject *
make_coroutine(LazyCall *call)
{
    SendCall *self = (SendCall *)call;
    PyObject *args = PyTuple_Pack(1, self->producer), *named = PyDict_New(), *coroutine = NULL;
    int failed = args == NULL || named == NULL;
    for (int at = 0; !failed && at < PARAMETERS; at++)
        if (self->given[at] != NULL)
            failed = PyDict_SetItem(named, names[at], self->given[at]) < 0;
    if (!failed)
        coroutine = PyObject_Call(call->function, args, named);
    Py_XDECREF(args);
    Py_XDECREF(named);
    return coroutine;
}

/* A new reference. */
static PyObject *
fast_path_of(PyObject *producer)
{
    ProducerFields *fields = of_class(producer, producer_fields_type, &producer_class);
    return fields != NULL && fields->fast_path != NULL
               ? Py_NewRef(fields->fast_path)
               : PyObject_GetAttr(producer, fast_path_name); /* of a mock, or one that lacks it */
}

/* Have the fast path take the record. Return its delivery; None if it can't. */
static PyObject *
take_at_once(LazyCall *call)
{
    SendCall *self = (SendCall *)call;
    PyObject **given = self->given;
    if (given[PARTITION_KEY] != NULL && given[PARTITION_KEY] != Py_None)
        Py_RETURN_NONE;
    PyObject *path = fast_path_of(self->producer);
    if (path == NULL)
        return NULL;
#define OR_NONE(at) (given[at] == NULL ? Py_None : given[at])
    PyObject *const args[] = {given[TOPIC],
                              OR_NONE(VALUE),
                              OR_NONE(KEY),
                              given[HEADERS] == NULL ? no_headers : given[HEADERS],
                              OR_NONE(PARTITION),
                              OR_NONE(TIMESTAMP_MS)};
#undef OR_NONE
    PyObject *delivery = append_by(path, args);
    Py_DECREF(path);
    return delivery;
}

static const LazyKind send_call_kind
    = {take_at_once, make_coroutine, 1 + PARAMETERS, &send_call_type, &spare_call};

static PyType_Slot call_slots[] = {
    LAZY_CALL_SLOTS,
    {0, NULL},
};

static PyType_Spec call_spec = {
    .name = "aioprod._native.SendCall",
    .basicsize = sizeof(SendCall),
    .flags = LAZY_CALL_FLAGS,
    .slots = call_slots,
};

/* -- the method --------------------------------------------------------------------------------- */

/* The index of a parameter; -1 for another name. */
static int
parameter_of(PyObject *name)
{
    for (int at = 0; at < PARAMETERS; at++)
        if (name == names[at]) /* as in most programs */
            return at;
    for (int at = 0; at < PARAMETERS; at++)
        if (PyUnicode_CompareWithASCIIString(name, parameters[at]) == 0)
            return at;
    return -1;
}

/* Sort the arguments after the producer by their parameters; false if Python has to refuse them. */
static int
sort_arguments(PyObject *const *args, Py_ssize_t count, PyObject *named, PyObject **given)
{
    if (count > PARAMETERS)
        return 0;
    for (Py_ssize_t at = 0; at < PARAMETERS; at++)
        given[at] = at < count ? args[at] : NULL;
    Py_ssize_t others = named == NULL ? 0 : PyTuple_Size(named);
    for (Py_ssize_t at = 0; at < others; at++) {
        int parameter = parameter_of(PyTuple_GetItem(named, at));
        if (parameter < 0 || given[parameter] != NULL)
            return 0;
        given[parameter] = args[count + at];
    }
    return given[TOPIC] != NULL;
}

/* Call the function in Python. */
static PyObject *
call_function_of(SendMethod *self, PyObject *const *args, Py_ssize_t count, PyObject *named)
{
    PyObject *positional = PyTuple_New(count), *others = PyDict_New(), *answer = NULL;
    int failed = positional == NULL || others == NULL;
    for (Py_ssize_t at = 0; !failed && at < count; at++)
        PyTuple_SetItem(positional, at, Py_NewRef(args[at]));
    for (Py_ssize_t at = 0; !failed && named != NULL && at < PyTuple_Size(named); at++)
        failed = PyDict_SetItem(others, PyTuple_GetItem(named, at), args[count + at]) < 0;
    if (!failed)
        answer = PyObject_Call(self->function, positional, others);
    Py_XDECREF(positional);
    Py_XDECREF(others);
    return answer;
}

static PyObject *
call_method(PyObject *object, PyObject *const *args, size_t counted, PyObject *named)
{
    SendMethod *self = (SendMethod *)object;
    Py_ssize_t count = (Py_ssize_t)(counted & ~HAS_PLACE_BEFORE);
    PyObject *given[PARAMETERS];
    if (count == 0 || !sort_arguments(args + 1, count - 1, named, given))
        return call_function_of(self, args, count, named);
    SendCall *call = (SendCall *)new_lazy_call(&send_call_kind, self->function);
    if (call == NULL)
        return NULL;
    call->producer = Py_NewRef(args[0]);
    for (int at = 0; at < PARAMETERS; at++)
        call->given[at] = Py_XNewRef(given[at]);
    return (PyObject *)call;
}

static PyObject *
call_with_tuple(PyObject *object, PyObject *args, PyObject *named)
{
    return PyObject_Call(((SendMethod *)object)->function, args, named);
}

static PyObject *
bind(PyObject *object, PyObject *instance, PyObject *type)
{
    (void)type;
    return instance == NULL || instance == Py_None
               ? Py_NewRef(object)
               : PyObject_CallFunctionObjArgs(bound_method, object, instance, NULL);
}

/* The attributes of the function. With its __class__ it is a function to inspect, and to
 * unittest.mock, which checks the arguments of functions only. */
static PyObject *
get_of_method(PyObject *object, PyObject *name)
{
    PyObject *function = ((SendMethod *)object)->function;
    if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0
        || PyUnicode_CompareWithASCIIString(name, "__module__") == 0)
        return PyObject_GetAttr(function, name);
    PyObject *own = PyObject_GenericGetAttr(object, name);
    if (own != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return own;
    PyErr_Clear();
    return PyObject_GetAttr(function, name);
}

static int
set_of_method(PyObject *object, PyObject *name, PyObject *value)
{
    return PyObject_SetAttr(((SendMethod *)object)->function, name, value);
}

static PyObject *
get_doc(PyObject *object, void *unused)
{
    (void)unused;
    return PyObject_GetAttrString(((SendMethod *)object)->function, "__doc__");
}

static PyObject *
new_method(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *function;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "SendMethod() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:SendMethod", &function))
        return NULL;
    SendMethod *self = (SendMethod *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self != NULL) {
        self->function = Py_NewRef(function);
        self->call = call_method;
    }
    return (PyObject *)self;
}

OWNS_OBJECTS(SendMethod, function, function)

/* It is copied and pickled by name, as functions are. */
static PyObject *
reduce(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyObject_GetAttrString(((SendMethod *)object)->function, "__qualname__");
}

static PyMethodDef method_methods[] = {
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef method_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(SendMethod, call), READONLY, NULL},
    {"__wrapped__", T_OBJECT_EX, offsetof(SendMethod, function), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef method_getset[] = {
    {"__doc__", get_doc, NULL, NULL, NULL}, /* help() asks for it without get_of_method() */
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot method_slots[] = {
    {Py_tp_new, new_method},
    {Py_tp_methods, method_methods},
    {Py_tp_members, method_members},
    {Py_tp_getset, method_getset},
    {Py_tp_call, call_with_tuple},
    {Py_tp_descr_get, bind},
    {Py_tp_getattro, get_of_method},
    {Py_tp_setattro, set_of_method},
    OWNS_OBJECTS_SLOTS(SendMethod),
    {0, NULL},
};

static PyType_Spec method_spec = {
    .name = "aioprod._native.SendMethod",
    .basicsize = sizeof(SendMethod),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .slots = method_slots,
};

/* -- the module's part -------------------------------------------------------------------------- */

static int
make_names(void)
{
    for (int at = 0; at < PARAMETERS; at++)
        if (names[at] == NULL && (names[at] = PyUnicode_InternFromString(parameters[at])) == NULL)
            return -1;
    if (fast_path_name == NULL)
        fast_path_name = PyUnicode_InternFromString("_fast_path");
    if (no_headers == NULL)
        no_headers = PyTuple_New(0);
    return fast_path_name == NULL || no_headers == NULL ? -1 : 0;
}

int
add_send_method(PyObject *module)
{
    if (bound_method == NULL) {
        PyObject *types = PyImport_ImportModule("types");
        if (types == NULL)
            return -1;
        bound_method = PyObject_GetAttrString(types, "MethodType");
        Py_DECREF(types);
        if (bound_method == NULL)
            return -1;
    }
    return make_names() < 0 || make_type(module, &call_spec, &send_call_type) < 0
                   || add_type(module, &method_spec, &send_method_type) < 0
               ? -1
               : 0;
}
