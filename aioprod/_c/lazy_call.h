/* A call of a coroutine function that makes its coroutine only if it has to wait.
 *
 * It does what the coroutine would do, when it is awaited: it tries to get its result at once, and
 * if it can't, it runs the coroutine. Until it is awaited, it has done nothing.
 *
 * It is for Python 3.11, whose interpreter gets results by `am_send` from any type: see native.py. */
#ifndef AIOPROD_LAZY_CALL_H
#define AIOPROD_LAZY_CALL_H

#include "owned.h"

typedef struct LazyKind LazyKind;

/* What all such calls begin with; the objects that only a kind has follow. */
typedef struct {
    PyObject_HEAD
    const LazyKind *kind;
    int is_begun;
    PyObject *function, *coroutine; /* the latter once it is needed */
} LazyCall;

struct LazyKind {
    /* The result; None if there is none at once, or NULL with an exception. */
    PyObject *(*at_once)(LazyCall *call);
    PyObject *(*make_coroutine)(LazyCall *call);
    int own; /* number of its own objects */
    PyTypeObject **type;
    /* The memory of a call that has ended, for the next one: most are awaited at once. */
    PyObject **spare;
};

/* A call of a kind; the caller sets its own objects, or NULL, at once. NULL with an exception. */
LazyCall *new_lazy_call(const LazyKind *kind, PyObject *function);

int visit_lazy_call(PyObject *object, visitproc visit, void *arg);
int clear_lazy_call(PyObject *object);
void free_lazy_call(PyObject *object);
PySendResult send_to_lazy_call(PyObject *object, PyObject *sent, PyObject **returned);
PyObject *next_of_lazy_call(PyObject *object);
PyObject *show_lazy_call(PyObject *object);
extern PyMethodDef lazy_call_methods[];
extern PyGetSetDef lazy_call_getset[];

#define LAZY_CALL_SLOTS                                                                            \
    {Py_tp_methods, lazy_call_methods}, {Py_tp_getset, lazy_call_getset},                          \
        {Py_tp_repr, show_lazy_call}, {Py_tp_iternext, next_of_lazy_call},                         \
        {Py_am_await, PyObject_SelfIter}, {Py_am_send, send_to_lazy_call},                         \
        {Py_tp_traverse, visit_lazy_call}, {Py_tp_clear, clear_lazy_call},                         \
        {Py_tp_dealloc, free_lazy_call}

#define LAZY_CALL_FLAGS                                                                            \
    (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION                   \
     | Py_TPFLAGS_IMMUTABLETYPE)

#endif
