/* The reader and the writer of the protocol's primitive types.
 *
 * What is not there, or does not fit, is left to the methods of the source in Python: they raise the
 * errors. A method that calls its source has changed nothing before.
 */
#include "big_endian.h"
#include "varint.h"

#include <structmember.h>

static PyTypeObject *reader_type, *writer_type;

/* Call a method of the source, with up to two arguments. */
static PyObject *
from_source(const char *type, const char *method, PyObject *self, PyObject *first, PyObject *second)
{
    PyObject *native = PyImport_ImportModule("aioprod.native"), *sources = NULL, *source = NULL;
    PyObject *function = NULL, *result = NULL;
    if (native != NULL && (sources = PyObject_GetAttrString(native, "python_sources")) != NULL
        && (source = PyMapping_GetItemString(sources, type)) != NULL
        && (function = PyObject_GetAttrString(source, method)) != NULL)
        result = PyObject_CallFunctionObjArgs(function, self, first, second, NULL);
    Py_XDECREF(native);
    Py_XDECREF(sources);
    Py_XDECREF(source);
    Py_XDECREF(function);
    return result;
}

/* -- reader ------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *data;
    Py_buffer view; /* of data */
    Py_ssize_t offset;
} Reader;

static int
init_reader(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "offset", NULL};
    Reader *self = (Reader *)object;
    PyObject *data;
    Py_ssize_t offset = 0;
    if (self->data != NULL) {
        PyErr_SetString(PyExc_TypeError, "a reader has its data already");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|n", names, &data, &offset))
        return -1;
    self->offset = offset;
    self->data = PyByteArray_Check(data) ? PyMemoryView_FromObject(data) : Py_NewRef(data);
    return self->data == NULL ? -1 : PyObject_GetBuffer(self->data, &self->view, PyBUF_SIMPLE);
}

static void
free_reader(PyObject *object)
{
    Reader *self = (Reader *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyBuffer_Release(&self->view);
    Py_XDECREF(self->data);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* The next bytes, of which there are at least `size`; NULL if there are not. */
static const unsigned char *
next_bytes(const Reader *self, Py_ssize_t size)
{
    if (size < 0 || self->offset < 0 || size > self->view.len - self->offset)
        return NULL;
    return (const unsigned char *)self->view.buf + self->offset;
}

/* Read a big-endian number; 0 if it is not there. */
static int
read_number(Reader *self, int size, long long *number)
{
    const unsigned char *at = next_bytes(self, size);
    if (at == NULL)
        return 0;
    *number = number_at(at, size);
    self->offset += size;
    return 1;
}

/* Read an unsigned number of variable length; 0 if it has no end, or has more than 32 bits. */
static int
read_uvarint(Reader *self, long long *number)
{
    const unsigned char *at = next_bytes(self, 1), *first = self->view.buf;
    uint64_t code;
    if (at == NULL || (at = get_code(at, first + self->view.len, &code)) == NULL
        || code > UINT32_MAX)
        return 0;
    *number = (long long)code;
    self->offset = at - first;
    return 1;
}

/* Read the length before text, bytes or the elements of an array; 0 if it is not there. */
static int
read_length(Reader *self, int size, long long *length)
{
    if (size > 0)
        return read_number(self, size, length);
    if (!read_uvarint(self, length))
        return 0;
    --*length;
    return 1;
}

#define READS(name, read)                                                                          \
    static PyObject *reader_##name(PyObject *object, PyObject *unused)                             \
    {                                                                                              \
        long long number;                                                                          \
        (void)unused;                                                                              \
        return read ? PyLong_FromLongLong(number)                                                  \
                    : from_source("Reader", #name, object, NULL, NULL);                            \
    }
READS(int8, read_number((Reader *)object, 1, &number))
READS(int16, read_number((Reader *)object, 2, &number))
READS(int32, read_number((Reader *)object, 4, &number))
READS(int64, read_number((Reader *)object, 8, &number))
READS(uvarint, read_uvarint((Reader *)object, &number))

static PyObject *
reader_boolean(PyObject *object, PyObject *unused)
{
    long long number;
    (void)unused;
    return read_number((Reader *)object, 1, &number)
               ? PyBool_FromLong(number != 0)
               : from_source("Reader", "boolean", object, NULL, NULL);
}

/* Bytes of the data as `data[from:to]` has them. */
static PyObject *
slice(Reader *self, const unsigned char *from, Py_ssize_t size)
{
    PyObject *part = PyBytes_CheckExact(self->data)
                         ? PyBytes_FromStringAndSize((const char *)from, size)
                         : PySequence_GetSlice(self->data, self->offset, self->offset + size);
    if (part != NULL)
        self->offset += size;
    return part;
}

static PyObject *
reader_take(PyObject *object, PyObject *length)
{
    Reader *self = (Reader *)object;
    Py_ssize_t size = PyLong_Check(length) ? PyLong_AsSsize_t(length) : -1;
    const unsigned char *at = next_bytes(self, size);
    if (at != NULL)
        return slice(self, at, size);
    PyErr_Clear();
    return from_source("Reader", "_take", object, length, NULL);
}

typedef PyObject *(*MakeText)(const char *, Py_ssize_t);

static PyObject *
text_of(const char *from, Py_ssize_t size)
{
    return PyUnicode_DecodeUTF8(from, size, NULL);
}

/* Read text or bytes after their length, of `size` bytes; 0 for one of variable length. */
static PyObject *
read_text(PyObject *object, int size, MakeText make, int nullable, const char *name)
{
    Reader *self = (Reader *)object;
    Py_ssize_t start = self->offset;
    long long length;
    if (read_length(self, size, &length)) {
        if (nullable && length == -1)
            return Py_NewRef(Py_None);
        const unsigned char *at = next_bytes(self, (Py_ssize_t)length);
        PyObject *text = at == NULL ? NULL : make((const char *)at, (Py_ssize_t)length);
        if (text != NULL) {
            self->offset += (Py_ssize_t)length;
            return text;
        }
        self->offset = start;
        if (at != NULL && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            return NULL;
        PyErr_Clear();
    }
    return from_source("Reader", name, object, NULL, NULL);
}

#define READS_TEXT(name, size, make, nullable)                                                     \
    static PyObject *reader_##name(PyObject *object, PyObject *unused)                             \
    {                                                                                              \
        (void)unused;                                                                              \
        return read_text(object, size, make, nullable, #name);                                     \
    }
READS_TEXT(string, 2, text_of, 0)
READS_TEXT(nullable_string, 2, text_of, 1)
READS_TEXT(compact_string, 0, text_of, 0)
READS_TEXT(compact_nullable_string, 0, text_of, 1)
READS_TEXT(bytes_, 4, PyBytes_FromStringAndSize, 0)
READS_TEXT(nullable_bytes, 4, PyBytes_FromStringAndSize, 1)
READS_TEXT(compact_bytes, 0, PyBytes_FromStringAndSize, 0)
READS_TEXT(compact_nullable_bytes, 0, PyBytes_FromStringAndSize, 1)

static PyObject *
read_array_length(PyObject *object, PyObject *compact, long long least, const char *name)
{
    Reader *self = (Reader *)object;
    Py_ssize_t start = self->offset;
    int is_compact = PyObject_IsTrue(compact);
    long long length;
    if (is_compact < 0)
        return NULL;
    if (read_length(self, is_compact ? 0 : 4, &length) && length >= least
        && length <= self->view.len - self->offset)
        return PyLong_FromLongLong(length);
    self->offset = start;
    return from_source("Reader", name, object, compact, NULL);
}

static PyObject *
reader_nullable_array_length(PyObject *object, PyObject *compact)
{
    return read_array_length(object, compact, -1, "nullable_array_length");
}

static PyObject *
reader_array_length(PyObject *object, PyObject *compact)
{
    return read_array_length(object, compact, 0, "array_length");
}

/* Whether the next byte says that there are no tagged fields; goes past it. */
static int
has_no_tags(Reader *self)
{
    const unsigned char *at = next_bytes(self, 1);
    if (at == NULL || *at != 0)
        return 0;
    self->offset++;
    return 1;
}

static PyObject *
reader_tagged_fields(PyObject *object, PyObject *unused)
{
    (void)unused;
    return has_no_tags((Reader *)object)
               ? PyTuple_New(0)
               : from_source("Reader", "tagged_fields", object, NULL, NULL);
}

static PyObject *
reader_skip_tagged_fields(PyObject *object, PyObject *unused)
{
    (void)unused;
    return has_no_tags((Reader *)object)
               ? Py_NewRef(Py_None)
               : from_source("Reader", "skip_tagged_fields", object, NULL, NULL);
}

static PyObject *
reader_remaining(PyObject *object, void *unused)
{
    Reader *self = (Reader *)object;
    (void)unused;
    return PyLong_FromSsize_t(self->view.len - self->offset);
}

static PyMemberDef reader_members[] = {
    {"data", T_OBJECT, offsetof(Reader, data), READONLY, NULL},
    {"offset", T_PYSSIZET, offsetof(Reader, offset), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef reader_getset[] = {
    {"remaining", reader_remaining, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef reader_methods[] = {
    {"int8", reader_int8, METH_NOARGS, NULL},
    {"int16", reader_int16, METH_NOARGS, NULL},
    {"int32", reader_int32, METH_NOARGS, NULL},
    {"int64", reader_int64, METH_NOARGS, NULL},
    {"uvarint", reader_uvarint, METH_NOARGS, NULL},
    {"boolean", reader_boolean, METH_NOARGS, NULL},
    {"_take", reader_take, METH_O, NULL},
    {"string", reader_string, METH_NOARGS, NULL},
    {"nullable_string", reader_nullable_string, METH_NOARGS, NULL},
    {"compact_string", reader_compact_string, METH_NOARGS, NULL},
    {"compact_nullable_string", reader_compact_nullable_string, METH_NOARGS, NULL},
    {"bytes_", reader_bytes_, METH_NOARGS, NULL},
    {"nullable_bytes", reader_nullable_bytes, METH_NOARGS, NULL},
    {"compact_bytes", reader_compact_bytes, METH_NOARGS, NULL},
    {"compact_nullable_bytes", reader_compact_nullable_bytes, METH_NOARGS, NULL},
    {"nullable_array_length", reader_nullable_array_length, METH_O, NULL},
    {"array_length", reader_array_length, METH_O, NULL},
    {"tagged_fields", reader_tagged_fields, METH_NOARGS, NULL},
    {"skip_tagged_fields", reader_skip_tagged_fields, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, "As aioprod.protocol.primitives.Reader."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, init_reader},
    {Py_tp_members, reader_members},
    {Py_tp_getset, reader_getset},
    {Py_tp_methods, reader_methods},
    {Py_tp_dealloc, free_reader},
    {0, NULL},
};

/* -- writer ------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *buffer; /* a bytearray */
} Writer;

static PyObject *
new_writer(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Writer *self = (Writer *)PyType_GenericNew(type, args, kwargs);
    if (self != NULL && (self->buffer = PyByteArray_FromStringAndSize(NULL, 0)) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int
init_writer(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    (void)self;
    return PyArg_ParseTupleAndKeywords(args, kwargs, "", names) ? 0 : -1;
}

static void
free_writer(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((Writer *)object)->buffer);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* Append the bytes of a head, and then others. */
static PyObject *
append(PyObject *object, const unsigned char *head, const unsigned char *head_end,
       const char *rest, Py_ssize_t size)
{
    Py_ssize_t head_size = head_end - head;
    PyObject *buffer = ((Writer *)object)->buffer;
    if (buffer == NULL || !PyByteArray_Check(buffer)) {
        PyErr_SetString(PyExc_TypeError, "the buffer must be a bytearray");
        return NULL;
    }
    Py_ssize_t end = PyByteArray_Size(buffer);
    if (PyByteArray_Resize(buffer, end + head_size + size) < 0)
        return NULL;
    char *at = PyByteArray_AsString(buffer) + end;
    memcpy(at, head, (size_t)head_size);
    if (size > 0)
        memcpy(at + head_size, rest, (size_t)size);
    return Py_NewRef(Py_None);
}

/* A number from `least` to `most`; 0 if it is another one, or none. */
static int
number_of(PyObject *value, long long least, long long most, long long *number)
{
    if (!PyLong_Check(value))
        return 0;
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && *number >= least && *number <= most;
}

#define WRITES(name, size, least, most)                                                            \
    static PyObject *writer_##name(PyObject *object, PyObject *value)                              \
    {                                                                                              \
        unsigned char bytes[size];                                                                 \
        long long number;                                                                          \
        if (!number_of(value, least, most, &number))                                               \
            return from_source("Writer", #name, object, value, NULL);                              \
        return append(object, bytes, put_number(bytes, number, size), NULL, 0);                    \
    }
WRITES(int8, 1, INT8_MIN, INT8_MAX)
WRITES(int16, 2, INT16_MIN, INT16_MAX)
WRITES(int32, 4, INT32_MIN, INT32_MAX)
WRITES(int64, 8, INT64_MIN, INT64_MAX)

static PyObject *
writer_uvarint(PyObject *object, PyObject *value)
{
    unsigned char bytes[5];
    long long number;
    if (!number_of(value, 0, UINT32_MAX, &number))
        return from_source("Writer", "uvarint", object, value, NULL);
    return append(object, bytes, put(bytes, (uint64_t)number), NULL, 0);
}

static PyObject *
writer_boolean(PyObject *object, PyObject *value)
{
    int is_true = PyObject_IsTrue(value);
    unsigned char byte = is_true > 0;
    return is_true < 0 ? NULL : append(object, &byte, &byte + 1, NULL, 0);
}

/* Write text after its length, which is of variable length if `compact`. */
static PyObject *
write_text(PyObject *object, PyObject *value, int compact, int nullable, const char *name)
{
    unsigned char head[8] = {0xff, 0xff};
    if (nullable && value == Py_None) {
        head[0] = compact ? 0 : 0xff;
        return append(object, head, head + (compact ? 1 : 2), NULL, 0);
    }
    Py_ssize_t size = 0;
    const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &size) : NULL;
    if (text == NULL || size > INT16_MAX) {
        PyErr_Clear();
        return from_source("Writer", name, object, value, NULL);
    }
    unsigned char *end = compact ? put(head, (uint64_t)size + 1) : put_number(head, size, 2);
    return append(object, head, end, text, size);
}

#define WRITES_TEXT(name, compact, nullable)                                                       \
    static PyObject *writer_##name(PyObject *object, PyObject *value)                              \
    {                                                                                              \
        return write_text(object, value, compact, nullable, #name);                                \
    }
WRITES_TEXT(string, 0, 0)
WRITES_TEXT(nullable_string, 0, 1)
WRITES_TEXT(compact_string, 1, 0)
WRITES_TEXT(compact_nullable_string, 1, 1)

static PyObject *
writer_array_length(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    unsigned char bytes[5];
    long long length;
    int compact = count == 2 ? PyObject_IsTrue(args[1]) : 0;
    if (compact < 0)
        return NULL;
    if (count != 2 || !number_of(args[0], -1, INT32_MAX, &length))
        return from_source("Writer", "array_length", object, count > 0 ? args[0] : NULL,
                           count > 1 ? args[1] : NULL);
    unsigned char *end = compact ? put(bytes, (uint64_t)length + 1) : put_number(bytes, length, 4);
    return append(object, bytes, end, NULL, 0);
}

static PyObject *
writer_no_tagged_fields(PyObject *object, PyObject *unused)
{
    (void)unused;
    unsigned char none = 0;
    return append(object, &none, &none + 1, NULL, 0);
}

static PyObject *
writer_tagged_fields(PyObject *object, PyObject *fields)
{
    return PyDict_Check(fields) && PyDict_Size(fields) == 0
               ? writer_no_tagged_fields(object, NULL)
               : from_source("Writer", "tagged_fields", object, fields, NULL);
}

static PyMemberDef writer_members[] = {
    {"buffer", T_OBJECT_EX, offsetof(Writer, buffer), 0, NULL}, /* `+=` sets it */
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef writer_methods[] = {
    {"int8", writer_int8, METH_O, NULL},
    {"int16", writer_int16, METH_O, NULL},
    {"int32", writer_int32, METH_O, NULL},
    {"int64", writer_int64, METH_O, NULL},
    {"uvarint", writer_uvarint, METH_O, NULL},
    {"boolean", writer_boolean, METH_O, NULL},
    {"string", writer_string, METH_O, NULL},
    {"nullable_string", writer_nullable_string, METH_O, NULL},
    {"compact_string", writer_compact_string, METH_O, NULL},
    {"compact_nullable_string", writer_compact_nullable_string, METH_O, NULL},
    {"array_length", (PyCFunction)(void (*)(void))writer_array_length, METH_FASTCALL, NULL},
    {"tagged_fields", writer_tagged_fields, METH_O, NULL},
    {"no_tagged_fields", writer_no_tagged_fields, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_doc, "As aioprod.protocol.primitives.Writer."},
    {Py_tp_new, new_writer},
    {Py_tp_init, init_writer},
    {Py_tp_members, writer_members},
    {Py_tp_methods, writer_methods},
    {Py_tp_dealloc, free_writer},
    {0, NULL},
};

/* Neither is known to the garbage collector: nothing that they own leads back to them. */
static PyType_Spec reader_spec = {
    .name = "aioprod._native.Reader",
    .basicsize = sizeof(Reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = reader_slots,
};

static PyType_Spec writer_spec = {
    .name = "aioprod._native.Writer",
    .basicsize = sizeof(Writer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = writer_slots,
};

int
add_primitives(PyObject *module)
{
    return add_type(module, &reader_spec, &reader_type) < 0
               ? -1
               : add_type(module, &writer_spec, &writer_type);
}
