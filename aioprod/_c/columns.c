/* Opening of Arrow columns, and the partitions of keys. */
#include "columns.h"

int
invalid(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

int
invalid_offsets(void)
{
    return invalid("an Arrow column has offsets outside its data");
}

static int
number_attribute(PyObject *array, const char *name, Py_ssize_t *number)
{
    PyObject *found = PyObject_GetAttrString(array, name);
    if (found == NULL)
        return -1;
    *number = PyLong_AsSsize_t(found);
    Py_DECREF(found);
    if (*number == -1 && PyErr_Occurred())
        return -1;
    return *number < 0 ? invalid("an Arrow column has a negative size") : 0;
}

static int
open_buffer(PyObject *buffers, Py_ssize_t index, Py_buffer *view)
{
    PyObject *buffer = PySequence_GetItem(buffers, index);
    if (buffer == NULL)
        return -1;
    int failed = buffer == Py_None ? 0 : PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE);
    Py_DECREF(buffer);
    return failed;
}

/* The buffers of a pyarrow.Array, its place in them and its length; NULL with an exception. */
static PyObject *
open_array(PyObject *array, Py_ssize_t *first, Py_ssize_t *count)
{
    if (number_attribute(array, "offset", first) < 0 || (*count = PyObject_Size(array)) < 0)
        return NULL;
    /* No buffer is larger, and sums of these do not overflow. */
    if (*first > PY_SSIZE_T_MAX / 64 || *count > PY_SSIZE_T_MAX / 64) {
        invalid_offsets();
        return NULL;
    }
    return PyObject_CallMethod(array, "buffers", NULL);
}

int
open_binary(Binary *column, PyObject *array)
{
    Py_ssize_t nulls;
    PyObject *buffers = open_array(array, &column->first, &column->count);
    if (buffers == NULL)
        return -1;
    int failed = number_attribute(array, "null_count", &nulls) < 0
                 || (nulls && open_buffer(buffers, 0, &column->validity) < 0)
                 || open_buffer(buffers, 1, &column->offsets) < 0
                 || open_buffer(buffers, 2, &column->data) < 0;
    Py_DECREF(buffers);
    if (failed)
        return -1;
    Py_ssize_t end = column->first + column->count;
    if (column->count
        && (column->offsets.len / (Py_ssize_t)sizeof(int32_t) <= end
            || (column->validity.buf != NULL && column->validity.len < (end + 7) / 8)))
        return invalid_offsets();
    return 0;
}

int
open_numbers(Numbers *column, PyObject *array, Py_ssize_t width)
{
    PyObject *buffers = open_array(array, &column->first, &column->count);
    if (buffers == NULL)
        return -1;
    int failed = open_buffer(buffers, 1, &column->data);
    Py_DECREF(buffers);
    if (failed < 0)
        return -1;
    return column->data.len / width < column->first + column->count ? invalid_offsets() : 0;
}

void
close_binary(Binary *column)
{
    PyBuffer_Release(&column->validity);
    PyBuffer_Release(&column->offsets);
    PyBuffer_Release(&column->data);
}

const char key_partitions_doc[] =
    "key_partitions(keys, partitions, /)\n--\n\n"
    "As aioprod.producer.arrow_partitions.key_partitions.";

PyObject *
key_partitions(PyObject *module, PyObject *args)
{
    PyObject *array, *chosen = NULL;
    int partitions;
    Binary keys = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "Oi:key_partitions", &array, &partitions))
        return NULL;
    if (partitions < 1) {
        PyErr_SetString(PyExc_ValueError, "partitions must be at least 1");
        return NULL;
    }
    if (open_binary(&keys, array) == 0)
        chosen = PyBytes_FromStringAndSize(NULL, keys.count * (Py_ssize_t)sizeof(int32_t));
    for (Py_ssize_t row = 0; chosen != NULL && row < keys.count; row++) {
        Field key;
        if (field_of(&keys, row, &key) < 0) {
            Py_CLEAR(chosen);
            break;
        }
        int32_t partition = 0;
        if (key.size >= 0)
            partition = (int32_t)((murmur2_of((const unsigned char *)key.data, key.size)
                                   & 0x7fffffff) % (uint32_t)partitions);
        memcpy(PyBytes_AsString(chosen) + row * (Py_ssize_t)sizeof partition, &partition,
               sizeof partition);
    }
    close_binary(&keys);
    return chosen;
}
