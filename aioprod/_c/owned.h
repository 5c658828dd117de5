/* Types that the garbage collector visits: their objects lie one after the other in the struct. */
#ifndef AIOPROD_OWNED_H
#define AIOPROD_OWNED_H

#include "native.h"

static inline int
visit_objects(PyObject **first, PyObject **last, visitproc visit, void *arg)
{
    for (PyObject **at = first; at <= last; at++)
        Py_VISIT(*at);
    return 0;
}

static inline void
clear_objects(PyObject **first, PyObject **last)
{
    for (PyObject **at = first; at <= last; at++)
        Py_CLEAR(*at);
}

/* Defines visit_ and clear_ for a type whose objects are the fields from first to last. */
#define VISITS_OBJECTS(Type, first, last)                                                          \
    static int visit_##Type(PyObject *object, visitproc visit, void *arg)                          \
    {                                                                                              \
        Py_VISIT(Py_TYPE(object));                                                                 \
        return visit_objects(&((Type *)object)->first, &((Type *)object)->last, visit, arg);       \
    }                                                                                              \
    static int clear_##Type(PyObject *object)                                                      \
    {                                                                                              \
        clear_objects(&((Type *)object)->first, &((Type *)object)->last);                          \
        return 0;                                                                                  \
    }

/* The same, and free_. */
#define OWNS_OBJECTS(Type, first, last)                                                            \
    VISITS_OBJECTS(Type, first, last)                                                              \
    static void free_##Type(PyObject *object)                                                      \
    {                                                                                              \
        PyTypeObject *type = Py_TYPE(object);                                                      \
        PyObject_GC_UnTrack(object);                                                               \
        clear_##Type(object);                                                                      \
        ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);                                      \
        Py_DECREF(type);                                                                           \
    }

#define OWNS_OBJECTS_SLOTS(Type)                                                                   \
    {Py_tp_traverse, visit_##Type}, {Py_tp_clear, clear_##Type}, {Py_tp_dealloc, free_##Type}

#endif
