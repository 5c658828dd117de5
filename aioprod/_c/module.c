/* The accelerator: code that runs once per record, batch or request, as do its sources in
 * Python.
 *
 * aioprod/native.py says which is used; tests/protocol/test_native*.py compare both.
 *
 * On CPython's stable ABI (3.11): one library for all later versions. The only state is the types
 * and what they need, in static variables: slots of types, unlike functions, do not get the module.
 * Another interpreter in the process must not use them, and gets no accelerator.
 *
 * What a function can't do exactly as the source in Python, it leaves to that: parse_records returns
 * None for whatever is not a whole, valid batch, so errors have one source. The thread has the
 * GIL throughout, and no Python code runs between looking at an object and using it, but for
 * allocations, which may run the garbage collector; so every object used across one is owned.
 *
 * A list with items that are not set yet is seen by the garbage collector only, which knows of such.
 */
#include "native.h"

static PyMethodDef methods[] = {
    {"murmur2", murmur2, METH_O, murmur2_doc},
    {"parse_records", parse_records, METH_VARARGS, parse_records_doc},
    {"record_starts", record_starts, METH_VARARGS, record_starts_doc},
    {"cut_records", cut_records, METH_VARARGS, cut_records_doc},
    {"cut_batches", cut_batches, METH_VARARGS, cut_batches_doc},
    {"batch_places", batch_places, METH_O, batch_places_doc},
    {"key_partitions", key_partitions, METH_VARARGS, key_partitions_doc},
    {"row_digest", row_digest, METH_VARARGS, row_digest_doc},
    {"join_batch", join_batch, METH_VARARGS, join_batch_doc},
    {"join_request", join_request, METH_VARARGS, join_request_doc},
    {"read_places", read_places, METH_VARARGS, read_places_doc},
    {NULL, NULL, 0, NULL},
};

/* The first interpreter that executes the module owns it. */
static int
refuse_other_interpreters(PyObject *module)
{
    static int64_t owner = -1;
    int64_t id = PyInterpreterState_GetID(PyInterpreterState_Get());
    (void)module;
    if (owner < 0)
        owner = id;
    if (owner == id)
        return 0;
    PyErr_SetString(PyExc_ImportError, "another interpreter of this process uses it");
    return -1;
}

/* From the headers of 3.12 on, Py_RETURN_NONE counts no reference, with which earlier versions free
   None some day; and those of 3.13 on leave out what 3.12 and earlier need for "#" in formats. */
static int
refuse_older_versions(PyObject *module)
{
    (void)module;
    if (Py_Version >> 16 >= PY_VERSION_HEX >> 16)
        return 0;
    PyErr_Format(PyExc_ImportError, "it was built with Python %d.%d and needs it or a newer one",
                 PY_MAJOR_VERSION, PY_MINOR_VERSION);
    return -1;
}

int
make_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    if (*type == NULL)
        *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type == NULL ? -1 : 0;
}

int
add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    return make_type(module, spec, type) < 0
               ? -1
               : PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, (PyObject *)*type);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, refuse_older_versions},
    {Py_mod_exec, refuse_other_interpreters},
    {Py_mod_exec, add_cut_records},
    {Py_mod_exec, add_column_batches},
    {Py_mod_exec, add_record_buffer},
    {Py_mod_exec, add_fields},
    {Py_mod_exec, add_deliveries},
    {Py_mod_exec, add_fast_path},
    {Py_mod_exec, add_send_method},
    {Py_mod_exec, add_record_stream},
    {Py_mod_exec, add_produce},
    {Py_mod_exec, add_primitives},
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "aioprod._native",
    .m_doc = "The accelerator; see aioprod/native.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&module_def);
}
