/* A call of a coroutine function that makes its coroutine only if it has to wait. */
#include "lazy_call.h"

#include "fields.h"

static PyObject **
first_own(LazyCall *self)
{
    return (PyObject **)(self + 1);
}

static PyObject **
last_own(LazyCall *self)
{
    return first_own(self) + self->kind->own - 1;
}

/* Make the coroutine of a call: 0, or -1 with an exception. The garbage collector visits the call
 * from now on, as the coroutine may lead to the task that awaits it. */
static int
make_coroutine(LazyCall *self)
{
    self->coroutine = self->kind->make_coroutine(self);
    if (self->coroutine == NULL)
        return -1;
    PyObject_GC_Track((PyObject *)self);
    return 0;
}

PySendResult
send_to_lazy_call(PyObject *object, PyObject *sent, PyObject **returned)
{
    LazyCall *self = (LazyCall *)object;
    *returned = NULL;
    if (!self->is_begun) {
        if (sent != Py_None) {
            PyErr_SetString(PyExc_TypeError,
                            "can't send non-None value to a just-started coroutine");
            return PYGEN_ERROR;
        }
        self->is_begun = 1;
        PyObject *result = self->kind->at_once(self);
        if (result == NULL)
            return PYGEN_ERROR;
        if (result != Py_None) {
            /* The garbage collector does not know a call that has ended, which may be kept. */
            clear_objects(first_own(self), last_own(self));
            *returned = result;
            return PYGEN_RETURN;
        }
        Py_DECREF(result);
        if (make_coroutine(self) < 0)
            return PYGEN_ERROR;
    }
    if (self->coroutine == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return PYGEN_ERROR;
    }
    return PyIter_Send(self->coroutine, sent, returned);
}

static PyObject *
send(PyObject *object, PyObject *sent)
{
    PyObject *returned;
    PySendResult kind = send_to_lazy_call(object, sent, &returned);
    return kind == PYGEN_RETURN ? stop_with(returned) : returned;
}

PyObject *
next_of_lazy_call(PyObject *object)
{
    return send(object, Py_None);
}

/* Have the coroutine do what the call does not do itself. */
static PyObject *
pass_on(PyObject *object, const char *method, PyObject *args)
{
    LazyCall *self = (LazyCall *)object;
    if (!self->is_begun) {
        self->is_begun = 1;
        if (make_coroutine(self) < 0)
            return NULL;
    }
    if (self->coroutine == NULL) { /* as a coroutine that has ended */
        if (method[0] == 'c')
            Py_RETURN_NONE;
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return NULL;
    }
    PyObject *function = PyObject_GetAttrString(self->coroutine, method);
    PyObject *answer = function == NULL ? NULL : PyObject_Call(function, args, NULL);
    Py_XDECREF(function);
    return answer;
}

static PyObject *
throw_into(PyObject *object, PyObject *args)
{
    return pass_on(object, "throw", args);
}

static PyObject *
pass_on_without_arguments(PyObject *object, const char *method)
{
    PyObject *none = PyTuple_New(0);
    PyObject *answer = none == NULL ? NULL : pass_on(object, method, none);
    Py_XDECREF(none);
    return answer;
}

static PyObject *
close_call(PyObject *object, PyObject *unused)
{
    (void)unused;
    return pass_on_without_arguments(object, "close");
}

/* For callers of __await__() in Python, who iterate over what it returns. */
static PyObject *
await_call(PyObject *object, PyObject *unused)
{
    (void)unused;
    return pass_on_without_arguments(object, "__await__");
}

/* The attributes of a coroutine, for what asyncio and debuggers show of a task. */
static PyObject *
get_of_coroutine(PyObject *object, void *name)
{
    PyObject *coroutine = ((LazyCall *)object)->coroutine;
    if (coroutine != NULL)
        return PyObject_GetAttrString(coroutine, name);
    return strcmp(name, "cr_running") == 0 ? PyBool_FromLong(0) : Py_NewRef(Py_None);
}

static PyObject *
get_of_function(PyObject *object, void *name)
{
    return PyObject_GetAttrString(((LazyCall *)object)->function, name);
}

PyObject *
show_lazy_call(PyObject *object)
{
    PyObject *name = PyObject_GetAttrString(((LazyCall *)object)->function, "__qualname__");
    PyObject *text
        = name == NULL ? NULL : PyUnicode_FromFormat("<coroutine object %S at %p>", name, object);
    Py_XDECREF(name);
    return text;
}

/* Python warns of a coroutine that was never awaited. */
static void
warn_of_no_await(LazyCall *self)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (make_coroutine(self) < 0)
        PyErr_WriteUnraisable(self->function);
    else {
        PyObject_GC_UnTrack((PyObject *)self); /* the warning may run the garbage collector */
        Py_CLEAR(self->coroutine);
    }
    PyErr_Restore(type, value, traceback);
}

int
visit_lazy_call(PyObject *object, visitproc visit, void *arg)
{
    LazyCall *self = (LazyCall *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->coroutine);
    return visit_objects(first_own(self), last_own(self), visit, arg);
}

int
clear_lazy_call(PyObject *object)
{
    LazyCall *self = (LazyCall *)object;
    Py_CLEAR(self->function);
    Py_CLEAR(self->coroutine);
    clear_objects(first_own(self), last_own(self));
    return 0;
}

void
free_lazy_call(PyObject *object)
{
    LazyCall *self = (LazyCall *)object;
    const LazyKind *kind = self->kind;
    if (!self->is_begun)
        warn_of_no_await(self);
    PyObject_GC_UnTrack(object);
    clear_lazy_call(object);
    if (*kind->spare == NULL)
        *kind->spare = object;
    else
        PyObject_GC_Del(object);
    Py_DECREF(*kind->type);
}

LazyCall *
new_lazy_call(const LazyKind *kind, PyObject *function)
{
    PyObject *object = *kind->spare;
    *kind->spare = NULL;
    LazyCall *self = object == NULL ? PyObject_GC_New(LazyCall, *kind->type)
                                    : (LazyCall *)PyObject_Init(object, *kind->type);
    if (self == NULL)
        return NULL;
    self->kind = kind;
    self->is_begun = 0;
    self->function = Py_NewRef(function);
    self->coroutine = NULL;
    return self;
}

PyMethodDef lazy_call_methods[] = {
    {"send", send, METH_O, NULL},
    {"throw", throw_into, METH_VARARGS, NULL},
    {"close", close_call, METH_NOARGS, NULL},
    {"__await__", await_call, METH_NOARGS | METH_COEXIST, NULL},
    {NULL, NULL, 0, NULL},
};

PyGetSetDef lazy_call_getset[] = {
    {"__name__", get_of_function, NULL, NULL, "__name__"},
    {"__qualname__", get_of_function, NULL, NULL, "__qualname__"},
    {"cr_code", get_of_function, NULL, NULL, "__code__"},
    {"cr_await", get_of_coroutine, NULL, NULL, "cr_await"},
    {"cr_frame", get_of_coroutine, NULL, NULL, "cr_frame"},
    {"cr_origin", get_of_coroutine, NULL, NULL, "cr_origin"},
    {"cr_running", get_of_coroutine, NULL, NULL, "cr_running"},
    {NULL, NULL, NULL, NULL, NULL},
};
