/* The accelerator: the loops that run once for each record, beside their sources in Python.
 *
 * aioprod/native.py says which is used; tests/protocol/test_native*.py hold both against each other.
 *
 * On CPython's stable ABI (3.11): one library for all later versions. The only state is the types.
 * What a function can't do exactly as the source in Python, it leaves to that: parse_records returns
 * None for whatever is not a whole, valid batch, so errors have one source. The interpreter's lock
 * is held throughout, and no Python code runs between looking at an object and using it, but for
 * allocations, which may run the garbage collector; so every object used across one is owned.
 *
 * A list with items that are not set yet is seen by the garbage collector only, which knows of such.
 */
#include "native.h"

static PyMethodDef methods[] = {
    {"murmur2", murmur2, METH_O, murmur2_doc},
    {"encode_records", encode_records, METH_VARARGS, encode_records_doc},
    {"parse_records", parse_records, METH_VARARGS, parse_records_doc},
    {"cut_records", cut_records, METH_VARARGS, cut_records_doc},
    {"key_partitions", key_partitions, METH_VARARGS, key_partitions_doc},
    {NULL, NULL, 0, NULL},
};

static int
make_types(PyObject *module)
{
    ModuleState *state = PyModule_GetState(module);
    state->cut_records_type
        = (PyTypeObject *)PyType_FromModuleAndSpec(module, &cut_records_spec, NULL);
    return state->cut_records_type == NULL ? -1 : 0;
}

static int
visit_types(PyObject *module, visitproc visit, void *arg)
{
    ModuleState *state = PyModule_GetState(module);
    if (state != NULL)
        Py_VISIT(state->cut_records_type);
    return 0;
}

static int
drop_types(PyObject *module)
{
    ModuleState *state = PyModule_GetState(module);
    if (state != NULL)
        Py_CLEAR(state->cut_records_type);
    return 0;
}

static void
free_module(void *module)
{
    drop_types(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, make_types},
    {Py_mod_exec, add_column_batches},
    {Py_mod_exec, add_deliveries},
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "aioprod._native",
    .m_doc = "The accelerator; see aioprod/native.py.",
    .m_size = sizeof(ModuleState),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = visit_types,
    .m_clear = drop_types,
    .m_free = free_module,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&module_def);
}
