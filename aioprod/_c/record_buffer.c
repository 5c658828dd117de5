/* The records of one batch: see record_buffer.h.
 *
 * Each record is encoded as it comes, while the source in Python gathers many. `size` and `kind` are
 * those that the source has at the same time, so that batches end at the same records.
 */
#include "record_buffer.h"
#include "field.h"

#include <structmember.h>

/* Longer sequences of numbers are arrays: a list takes twice the memory, and a small array more
 * time than a tuple. */
#define LONGEST_TUPLE 8
#define FIRST_ROOM 256
#define LARGEST_STEP (1 << 20)
/* Fewer bytes of records take no block, nor do batches that may be larger: they would take all of
 * the block's memory with their first records. */
#define SMALL 1024
#define LARGEST_BLOCK (1 << 18)
/* A block has a byte that no record uses: see has_views(). */
#define SPARE 1
/* More free blocks are not kept. */
#define MOST_FREE_BYTES (4 << 20)

PyTypeObject *record_buffer_type;
static PyObject *array_type;

/* -- memory ------------------------------------------------------------------------------------- */

/* Room for at least `needed`, at most doubled. */
static Py_ssize_t
next_room(Py_ssize_t room, Py_ssize_t needed)
{
    Py_ssize_t step = room < LARGEST_STEP ? room : LARGEST_STEP;
    return room + step > needed ? room + step : needed;
}

static int
grow(void **data, Py_ssize_t room, size_t width)
{
    void *larger = PyMem_Realloc(*data, (size_t)room * width);
    if (larger == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *data = larger;
    return 0;
}

/* -- blocks ------------------------------------------------------------------------------------- */

/* Whether a view of the block is left, such as one that a transport has not sent yet. If so, the
 * bytes in it must not change. A bytearray with views refuses to be resized. */
static int
has_views(PyObject *block)
{
    Py_ssize_t size = PyByteArray_Size(block);
    int has = PyByteArray_Resize(block, size - SPARE) < 0 || PyByteArray_Resize(block, size) < 0;
    PyErr_Clear();
    return has;
}

/* Take a free block, or make one; -1 with an exception. */
static int
take_block(RecordBuffer *self)
{
    Py_ssize_t free = PyList_Size(self->blocks), size = self->block_size + SPARE;
    PyObject *last = free > 0 ? PyList_GetItem(self->blocks, free - 1) : NULL;
    if (last != NULL && PyByteArray_Check(last) && PyByteArray_Size(last) == size) {
        self->block = Py_NewRef(last);
        return PyList_SetSlice(self->blocks, free - 1, free, NULL);
    }
    self->block = PyByteArray_FromStringAndSize(NULL, size);
    return self->block == NULL ? -1 : 0;
}

/* Give the block back, if there is one, unless bytes of it are still to be sent. */
static void
give_back(RecordBuffer *self)
{
    if (self->block != NULL && !has_views(self->block)
        && (PyList_Size(self->blocks) + 1) * self->block_size <= MOST_FREE_BYTES
        && PyList_Append(self->blocks, self->block) < 0)
        PyErr_Clear();
    Py_CLEAR(self->block);
    Py_CLEAR(self->blocks); /* it takes no other */
    self->in_block = 0;
}

/* Move the records into a block, after the room for the header; -1 with an exception. */
static int
move_into_block(RecordBuffer *self)
{
    if (take_block(self) < 0)
        return -1;
    PyObject *earlier = self->tail;
    if (earlier != NULL)
        memcpy(PyByteArray_AsString(self->block) + HEADER_SIZE, PyByteArray_AsString(earlier),
               (size_t)self->tail_used);
    self->tail = Py_NewRef(self->block);
    Py_XDECREF(earlier);
    self->tail_used += HEADER_SIZE;
    self->tail_room = self->block_size;
    self->in_block = 1;
    return 0;
}

/* -- the newest records ------------------------------------------------------------------------- */

static int
add_piece(RecordBuffer *self, PyObject *piece)
{
    if (self->pieces == NULL && (self->pieces = PyList_New(0)) == NULL)
        return -1;
    return PyList_Append(self->pieces, piece);
}

/* A part of the block: a new reference; NULL with an exception. */
static PyObject *
view_of_block(RecordBuffer *self, Py_ssize_t from)
{
    PyObject *whole = PyMemoryView_FromObject(self->block);
    PyObject *part
        = whole == NULL ? NULL : PySequence_GetSlice(whole, from, self->tail_used);
    Py_XDECREF(whole);
    return part;
}

static int
end_tail(RecordBuffer *self)
{
    if (self->tail == NULL)
        return 0;
    if (!self->in_block && PyByteArray_Resize(self->tail, self->tail_used) < 0)
        return -1;
    PyObject *piece
        = self->in_block ? view_of_block(self, HEADER_SIZE) : Py_NewRef(self->tail);
    int failed = piece == NULL || add_piece(self, piece) < 0;
    Py_XDECREF(piece);
    if (failed) {
        self->tail_room = self->tail_used;
        return -1;
    }
    Py_CLEAR(self->tail);
    self->tail_used = self->tail_room = 0;
    self->in_block = 0;
    return 0;
}

static int
make_room_in_tail(RecordBuffer *self, Py_ssize_t more)
{
    if (more > PY_SSIZE_T_MAX / 2 - self->tail_used) {
        PyErr_SetString(PyExc_OverflowError, "the records are too large");
        return -1;
    }
    Py_ssize_t needed = self->tail_used + more;
    if (needed <= self->tail_room)
        return 0;
    if (self->in_block) { /* it is full */
        if (end_tail(self) < 0)
            return -1;
        needed = more;
    } else if (self->blocks != NULL && self->block == NULL && self->pieces == NULL
               && needed > SMALL && needed <= self->block_size - HEADER_SIZE)
        return move_into_block(self);
    if (self->tail == NULL
        && (self->tail = PyByteArray_FromStringAndSize(NULL, 0)) == NULL)
        return -1;
    Py_ssize_t room = self->tail_room ? next_room(self->tail_room, needed)
                      : needed > FIRST_ROOM ? needed
                                            : FIRST_ROOM;
    if (PyByteArray_Resize(self->tail, room) < 0)
        return -1;
    self->tail_room = room;
    return 0;
}

static int
make_room_for_sizes(Sizes *sizes, int with_key)
{
    if (sizes->count == sizes->room) {
        Py_ssize_t room = next_room(sizes->room, 8);
        if (grow((void **)&sizes->values, room, sizeof *sizes->values) < 0
            || (sizes->keys != NULL
                && grow((void **)&sizes->keys, room, sizeof *sizes->keys) < 0))
            return -1;
        sizes->room = room;
    }
    if (with_key && sizes->keys == NULL) {
        if (grow((void **)&sizes->keys, sizes->room, sizeof *sizes->keys) < 0)
            return -1;
        for (Py_ssize_t at = 0; at < sizes->count; at++)
            sizes->keys[at] = -1;
    }
    return 0;
}

/* -- timestamps --------------------------------------------------------------------------------- */

static int
start_run(RecordBuffer *self, int64_t timestamp)
{
    Runs *runs = &self->runs;
    int64_t base = self->base_timestamp;
    if (base < 0 ? timestamp > INT64_MAX + base : timestamp < INT64_MIN + base) {
        PyErr_Format(PyExc_OverflowError, "timestamp %lld is more than 64 bits away from %lld",
                     (long long)timestamp, (long long)base);
        return -1;
    }
    int is_new = runs->starts[runs->count - 1] != self->count;
    if (is_new && runs->count == runs->room) {
        Py_ssize_t room = next_room(runs->room, 8);
        if (grow((void **)&runs->starts, room, sizeof *runs->starts) < 0
            || grow((void **)&runs->stamps, room, sizeof *runs->stamps) < 0)
            return -1;
        runs->room = room;
    }
    runs->count += is_new;
    runs->starts[runs->count - 1] = self->count;
    runs->stamps[runs->count - 1] = timestamp;
    self->timestamp = timestamp;
    self->delta = timestamp - base;
    if (timestamp > self->max_timestamp)
        self->max_timestamp = timestamp;
    return 0;
}

int
set_time(RecordBuffer *self, double now_s)
{
    double milliseconds = now_s * 1000;
    if (!(milliseconds >= -0x1p63 && milliseconds < 0x1p63)) {
        PyErr_SetString(milliseconds == milliseconds ? PyExc_OverflowError : PyExc_ValueError,
                        "the time is not a number of milliseconds");
        return -1;
    }
    int64_t timestamp = (int64_t)milliseconds;
    if (timestamp != self->timestamp && start_run(self, timestamp) < 0)
        return -1;
    self->until_s = (double)(timestamp + 1) / 1000;
    return 0;
}

int
set_timestamp(RecordBuffer *self, int64_t timestamp)
{
    if (timestamp == self->timestamp)
        return 0;
    if (start_run(self, timestamp) < 0)
        return -1;
    self->until_s = 0;
    return 0;
}

/* -- records ------------------------------------------------------------------------------------ */

/* Encode a record whose kind is set; -1 with an exception. */
static int
encode(RecordBuffer *self, const Content *record)
{
    const Field *key = &record->key, *value = &record->value, *headers = &record->headers;
    if (key->size > INT32_MAX || value->size > INT32_MAX || headers->size > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a field of 2 GiB or more");
        return -1;
    }
    if (self->count < 0 || self->count >= INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the batch takes no more records");
        return -1;
    }
    int64_t body = 1 + size_of(zigzag(self->delta)) + size_of(zigzag(self->count))
                   + size_with_length(key) + size_with_length(value) + headers->size;
    int64_t whole = size_of(zigzag(body)) + body;
    if (make_room_in_tail(self, (Py_ssize_t)whole) < 0
        || make_room_for_sizes(&self->sizes, key->size >= 0) < 0)
        return -1;
    unsigned char *at = (unsigned char *)PyByteArray_AsString(self->tail) + self->tail_used;
    at = put(at, zigzag(body));
    *at++ = 0;
    at = put(at, zigzag(self->delta));
    at = put(at, zigzag(self->count));
    at = put_field(put_field(at, key), value);
    memcpy(at, headers->data, (size_t)headers->size);
    self->tail_used += (Py_ssize_t)whole;
    self->encoded += (Py_ssize_t)whole;
    self->sizes.values[self->sizes.count] = (int32_t)value->size;
    if (self->sizes.keys != NULL)
        self->sizes.keys[self->sizes.count] = (int32_t)key->size;
    self->sizes.count++;
    self->count++;
    return 0;
}

int
encode_record(RecordBuffer *self, const Content *record, Py_ssize_t bound)
{
    if (encode(self, record) < 0)
        return -1;
    self->size += bound;
    return 0;
}

void
count_exactly(RecordBuffer *self)
{
    self->size = self->encoded;
    self->kind = NOTHING;
}

static PyObject *
add(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    RecordBuffer *self = (RecordBuffer *)object;
    if (given < 3 || given > 4) {
        PyErr_Format(PyExc_TypeError, "add() takes 3 or 4 arguments, not %zd", given);
        return NULL;
    }
    long long timestamp = PyLong_AsLongLong(args[0]);
    if (timestamp == -1 && PyErr_Occurred())
        return NULL;
    PyObject *key = args[1] == Py_None ? NULL : args[1];
    PyObject *value = args[2] == Py_None ? NULL : args[2];
    PyObject *headers = given < 4 ? NULL : args[3];
    if ((key != NULL && !PyBytes_Check(key)) || (value != NULL && !PyBytes_Check(value))
        || (headers != NULL && !PyBytes_Check(headers))) {
        PyErr_SetString(PyExc_TypeError, "key, value and headers must be bytes");
        return NULL;
    }
    Content record = {bytes_field(key), bytes_field(value),
                      headers == NULL ? NO_HEADERS : bytes_field(headers)};
    int kind = value == NULL ? NOTHING : kind_of(&record);
    if (kind != self->kind)
        count_exactly(self);
    if (set_timestamp(self, timestamp) < 0 || encode(self, &record) < 0)
        return NULL;
    if (value == NULL)
        count_exactly(self);
    else {
        self->kind = kind;
        self->size += bound_of(&record);
    }
    Py_RETURN_NONE;
}

/* Add a value: 1; 0 if it does not fit; -1 with an exception. */
static int
add_value(RecordBuffer *self, PyObject *value, Py_ssize_t room, double now_s)
{
    if (value == NULL)
        return -1;
    if (!PyBytes_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "values must be bytes");
        return -1;
    }
    Content record = {bytes_field(NULL), bytes_field(value), NO_HEADERS};
    Py_ssize_t bound = bound_of(&record);
    if (self->size + bound > room)
        return 0;
    if ((now_s >= self->until_s && set_time(self, now_s) < 0)
        || encode_record(self, &record, bound) < 0)
        return -1;
    return 1;
}

static PyObject *
add_values(PyObject *object, PyObject *args)
{
    PyObject *values;
    Py_ssize_t at, room;
    double now_s;
    if (!PyArg_ParseTuple(args, "O!nnd:add_values", &PyList_Type, &values, &at, &room, &now_s))
        return NULL;
    /* Nothing here runs other code, so the list keeps its items. */
    Py_ssize_t first = at, count = PyList_Size(values);
    int added = 1;
    while (at < count
           && (added = add_value((RecordBuffer *)object, PyList_GetItem(values, at), room, now_s))
                  > 0)
        at++;
    if (added < 0 && at == first)
        return NULL;
    PyErr_Clear(); /* those before it are added; the call for the rest raises it */
    return PyLong_FromSsize_t(at);
}

static PyObject *
at(PyObject *object, PyObject *now)
{
    double now_s = PyFloat_AsDouble(now);
    if ((now_s == -1 && PyErr_Occurred()) || set_time((RecordBuffer *)object, now_s) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
encode_pending(PyObject *object, PyObject *unused)
{
    (void)unused;
    count_exactly((RecordBuffer *)object);
    Py_RETURN_NONE;
}

/* -- encoded records ---------------------------------------------------------------------------- */

static PyObject *
take(PyObject *object, PyObject *encoded)
{
    RecordBuffer *self = (RecordBuffer *)object;
    if (!PyBytes_Check(encoded)) {
        PyErr_SetString(PyExc_TypeError, "encoded records must be bytes");
        return NULL;
    }
    if (end_tail(self) < 0 || add_piece(self, encoded) < 0)
        return NULL;
    self->encoded += PyBytes_Size(encoded);
    self->size = self->encoded;
    Py_RETURN_NONE;
}

static PyObject *
pieces(PyObject *object, PyObject *unused)
{
    RecordBuffer *self = (RecordBuffer *)object;
    (void)unused;
    count_exactly(self);
    if (end_tail(self) < 0 || (self->pieces == NULL && (self->pieces = PyList_New(0)) == NULL))
        return NULL;
    return Py_NewRef(self->pieces);
}

/* The batch as bytes, of records that are all in a tail outside of a block: few ones. */
static PyObject *
seal_small(RecordBuffer *self, const Header *header)
{
    Py_ssize_t size = HEADER_SIZE + self->tail_used;
    PyObject *batch = PyBytes_FromStringAndSize(NULL, size);
    if (batch == NULL)
        return NULL;
    char *start = PyBytes_AsString(batch);
    memcpy(start + HEADER_SIZE, PyByteArray_AsString(self->tail), (size_t)self->tail_used);
    if (put_header(start, size, header) < 0)
        Py_CLEAR(batch);
    return batch;
}

/* Make a batch of the records: a view of it in their block, or bytes if they are few and in none;
 * None if they are in several pieces, or a view of an earlier batch is left in the block. */
static PyObject *
seal(PyObject *object, PyObject *args)
{
    RecordBuffer *self = (RecordBuffer *)object;
    Header header = {.base_offset = 0, .leader_epoch = -1};
    if (!PyArg_ParseTuple(args, "hLhi:seal", &header.attributes, &header.producer_id,
                          &header.producer_epoch, &header.base_sequence))
        return NULL;
    count_exactly(self);
    int is_small = !self->in_block && self->tail != NULL && self->pieces == NULL;
    if (!is_small && (!self->in_block || has_views(self->block)))
        Py_RETURN_NONE;
    header.base_timestamp = self->base_timestamp;
    header.max_timestamp = self->max_timestamp;
    header.record_count = (int)self->count;
    header.last_offset_delta = (int)self->count - 1;
    if (is_small)
        return seal_small(self, &header);
    if (put_header(PyByteArray_AsString(self->block), self->tail_used, &header) < 0)
        return NULL;
    return view_of_block(self, 0);
}

static void
free_sizes(Sizes *sizes)
{
    PyMem_Free(sizes->keys);
    PyMem_Free(sizes->values);
    memset(sizes, 0, sizeof *sizes);
}

static PyObject *
release(PyObject *object, PyObject *unused)
{
    RecordBuffer *self = (RecordBuffer *)object;
    (void)unused;
    Py_CLEAR(self->pieces);
    Py_CLEAR(self->tail);
    Py_CLEAR(self->compressed);
    self->tail_used = self->tail_room = 0;
    give_back(self);
    free_sizes(&self->sizes);
    self->encoded = self->size;
    self->kind = NOTHING;
    Py_RETURN_NONE;
}

/* -- what Python reads -------------------------------------------------------------------------- */

/* The numbers, of 32 or 64 bits: a sequence. */
static PyObject *
sequence_of(const void *numbers, Py_ssize_t count, size_t width)
{
    if (count > LONGEST_TUPLE)
        return PyObject_CallFunction(array_type, "sy#", width == sizeof(int32_t) ? "i" : "q",
                                     numbers, count * (Py_ssize_t)width);
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t at = 0; tuple != NULL && at < count; at++) {
        PyObject *number = PyLong_FromLongLong(width == sizeof(int32_t)
                                                   ? ((const int32_t *)numbers)[at]
                                                   : ((const int64_t *)numbers)[at]);
        if (number == NULL || PyTuple_SetItem(tuple, at, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *
get_key_sizes(PyObject *object, void *closure)
{
    const Sizes *sizes = &((RecordBuffer *)object)->sizes;
    (void)closure;
    return sequence_of(sizes->keys, sizes->keys == NULL ? 0 : sizes->count, sizeof *sizes->keys);
}

static PyObject *
get_value_sizes(PyObject *object, void *closure)
{
    const Sizes *sizes = &((RecordBuffer *)object)->sizes;
    (void)closure;
    return sequence_of(sizes->values, sizes->count, sizeof *sizes->values);
}

static PyObject *
get_timestamp_runs(PyObject *object, void *closure)
{
    RecordBuffer *self = (RecordBuffer *)object;
    PyObject *starts, *stamps;
    (void)closure;
    if (self->timestamps != NULL && self->timestamps != Py_None) {
        starts = PyObject_CallFunction((PyObject *)&PyRange_Type, "n", self->count);
        stamps = Py_NewRef(self->timestamps);
    } else {
        starts = sequence_of(self->runs.starts, self->runs.count, sizeof *self->runs.starts);
        stamps = sequence_of(self->runs.stamps, self->runs.count, sizeof *self->runs.stamps);
    }
    PyObject *both = starts == NULL || stamps == NULL ? NULL : PyTuple_Pack(2, starts, stamps);
    Py_XDECREF(starts);
    Py_XDECREF(stamps);
    return both;
}

/* -- the type ----------------------------------------------------------------------------------- */

static PyObject *
new_buffer(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"base_timestamp", "blocks", "block_size", NULL};
    long long base;
    PyObject *blocks = Py_None;
    Py_ssize_t block_size = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "L|On:RecordBuffer", names, &base, &blocks,
                                     &block_size))
        return NULL;
    if (blocks != Py_None && (!PyList_Check(blocks) || block_size > PY_SSIZE_T_MAX / 2)) {
        PyErr_SetString(PyExc_TypeError, "blocks must be a list, and their size a number");
        return NULL;
    }
    RecordBuffer *self = (RecordBuffer *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL)
        return NULL;
    self->base_timestamp = self->max_timestamp = self->timestamp = base;
    self->kind = NOTHING;
    self->blocks
        = blocks == Py_None || block_size > LARGEST_BLOCK ? NULL : Py_NewRef(blocks);
    self->block_size = block_size;
    Runs *runs = &self->runs;
    if (grow((void **)&runs->starts, 1, sizeof *runs->starts) < 0
        || grow((void **)&runs->stamps, 1, sizeof *runs->stamps) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    runs->count = runs->room = 1;
    runs->starts[0] = 0;
    runs->stamps[0] = base;
    return (PyObject *)self;
}

static void
free_buffer(PyObject *object)
{
    RecordBuffer *self = (RecordBuffer *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_CLEAR(self->compressed);
    Py_CLEAR(self->timestamps);
    Py_CLEAR(self->pieces);
    Py_CLEAR(self->tail);
    Py_CLEAR(self->block);
    Py_CLEAR(self->blocks);
    PyMem_Free(self->runs.starts);
    PyMem_Free(self->runs.stamps);
    free_sizes(&self->sizes);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"base_timestamp", T_LONGLONG, offsetof(RecordBuffer, base_timestamp), READONLY, NULL},
    {"max_timestamp", T_LONGLONG, offsetof(RecordBuffer, max_timestamp), 0, NULL},
    {"count", T_PYSSIZET, offsetof(RecordBuffer, count), 0, NULL},
    {"size", T_PYSSIZET, offsetof(RecordBuffer, size), READONLY, NULL},
    {"kind", T_INT, offsetof(RecordBuffer, kind), READONLY, NULL},
    {"until_s", T_DOUBLE, offsetof(RecordBuffer, until_s), READONLY, NULL},
    {"compressed", T_OBJECT, offsetof(RecordBuffer, compressed), 0, NULL},
    {"timestamps", T_OBJECT, offsetof(RecordBuffer, timestamps), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"key_sizes", get_key_sizes, NULL, NULL, NULL},
    {"value_sizes", get_value_sizes, NULL, NULL, NULL},
    {"timestamp_runs", get_timestamp_runs, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"add", (PyCFunction)(void (*)(void))add, METH_FASTCALL, NULL},
    {"add_values", add_values, METH_VARARGS, NULL},
    {"at", at, METH_O, NULL},
    {"encode_pending", encode_pending, METH_NOARGS, NULL},
    {"take", take, METH_O, NULL},
    {"pieces", pieces, METH_NOARGS, NULL},
    {"seal", seal, METH_VARARGS, NULL},
    {"release", release, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "As aioprod.protocol.record_buffer.RecordBuffer."},
    {Py_tp_new, new_buffer},
    {Py_tp_members, members},
    {Py_tp_getset, getset},
    {Py_tp_methods, methods},
    {Py_tp_dealloc, free_buffer},
    {0, NULL},
};

/* Not known to the garbage collector: nothing that it owns leads back to it. */
static PyType_Spec spec = {
    .name = "aioprod._native.RecordBuffer",
    .basicsize = sizeof(RecordBuffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

int
add_record_buffer(PyObject *module)
{
    if (array_type == NULL) {
        PyObject *arrays = PyImport_ImportModule("array");
        if (arrays == NULL)
            return -1;
        array_type = PyObject_GetAttrString(arrays, "array");
        Py_DECREF(arrays);
        if (array_type == NULL)
            return -1;
    }
    return add_type(module, &spec, &record_buffer_type);
}
