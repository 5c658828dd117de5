/* Batches and Produce requests around encoded records, and responses to them without errors, as
 * aioprod/protocol/record_batch.py, produce_encoder.py and produce_decoder.py have them.
 */
#include "batch.h"
#include "varint.h"

enum { FIRST_FLEXIBLE = 9, FIRST_TOPIC_ID = 13, LAST_VERSION = 13 };
enum { PRODUCE = 0, LONGEST_STRING = 0x7fff, PARTITION_SIZE = 33 };

static PyObject *crc32c, *protocol_error;

/* -- batches ------------------------------------------------------------------------------------ */

/* Bytes of all pieces; -1 with an exception. */
static Py_ssize_t
size_of_pieces(PyObject *pieces)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t at = 0; at < PyList_Size(pieces); at++) {
        Py_ssize_t more = PyObject_Size(PyList_GetItem(pieces, at));
        if (more < 0)
            return -1;
        size += more;
        if (size > INT32_MAX - HEADER_SIZE) {
            PyErr_SetString(PyExc_OverflowError, "a batch of 2 GiB or more");
            return -1;
        }
    }
    return size;
}

static int
copy_pieces(PyObject *pieces, unsigned char *at, Py_ssize_t room)
{
    for (Py_ssize_t index = 0; index < PyList_Size(pieces); index++) {
        Py_buffer piece;
        if (PyObject_GetBuffer(PyList_GetItem(pieces, index), &piece, PyBUF_SIMPLE) < 0)
            return -1;
        int fits = piece.len <= room;
        if (fits)
            memcpy(at, piece.buf, (size_t)piece.len);
        at += piece.len;
        room -= piece.len;
        PyBuffer_Release(&piece);
        if (!fits)
            break;
    }
    if (room != 0) {
        PyErr_SetString(PyExc_ValueError, "the pieces of a batch must be bytes");
        return -1;
    }
    return 0;
}

int64_t
checksum_of(const unsigned char *batch, Py_ssize_t size)
{
    PyObject *checked = PyMemoryView_FromMemory((char *)batch + CHECKED_FROM, size - CHECKED_FROM,
                                                PyBUF_READ);
    PyObject *given = checked == NULL ? NULL : PyObject_CallFunctionObjArgs(crc32c, checked, NULL);
    Py_XDECREF(checked);
    if (given == NULL)
        return -1;
    unsigned long crc = PyLong_AsUnsignedLong(given);
    Py_DECREF(given);
    return crc == (unsigned long)-1 && PyErr_Occurred() ? -1 : (int64_t)crc;
}

int
put_header(char *batch, Py_ssize_t size, const Header *header)
{
    unsigned char *at = put_number((unsigned char *)batch, header->base_offset, 8);
    at = put_number(at, size - LOG_OVERHEAD, 4);
    at = put_number(at, header->leader_epoch, 4);
    *at++ = MAGIC;
    at = put_number(at + 4, header->attributes, 2);
    at = put_number(at, header->last_offset_delta, 4);
    at = put_number(at, header->base_timestamp, 8);
    at = put_number(at, header->max_timestamp, 8);
    at = put_number(at, header->producer_id, 8);
    at = put_number(at, header->producer_epoch, 2);
    at = put_number(at, header->base_sequence, 4);
    put_number(at, header->record_count, 4);
    int64_t crc = checksum_of((unsigned char *)batch, size);
    if (crc < 0)
        return -1;
    put_number((unsigned char *)batch + CRC_AT, crc, 4);
    return 0;
}

const char join_batch_doc[] = "join_batch(body, base_offset, leader_epoch, attributes, "
             "last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, "
             "base_sequence, record_count, /)\n--\n\n"
             "Return a batch: a header and the records.";

PyObject *
join_batch(PyObject *module, PyObject *args)
{
    PyObject *body;
    Header header;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!LihiLLLhii:join_batch", &PyList_Type, &body,
                          &header.base_offset, &header.leader_epoch, &header.attributes,
                          &header.last_offset_delta, &header.base_timestamp,
                          &header.max_timestamp, &header.producer_id, &header.producer_epoch,
                          &header.base_sequence, &header.record_count))
        return NULL;
    Py_ssize_t size = size_of_pieces(body);
    PyObject *batch = size < 0 ? NULL : PyBytes_FromStringAndSize(NULL, HEADER_SIZE + size);
    if (batch == NULL)
        return NULL;
    char *start = PyBytes_AsString(batch);
    if (copy_pieces(body, (unsigned char *)start + HEADER_SIZE, size) < 0
        || put_header(start, HEADER_SIZE + size, &header) < 0)
        Py_CLEAR(batch);
    return batch;
}

/* -- requests ----------------------------------------------------------------------------------- */

/* Bytes that go before the next batch, or to the end. */
typedef struct {
    unsigned char *data;
    Py_ssize_t used, room;
    PyObject *buffers; /* list of those that are complete, with the batches */
    Py_ssize_t size;   /* bytes in it */
} Request;

/* Memory for more bytes, which the caller adds to `used`; NULL with an exception. */
static unsigned char *
more_room(Request *request, Py_ssize_t more)
{
    if (request->used + more > request->room) {
        Py_ssize_t room = 2 * request->room + more + 64;
        unsigned char *larger = PyMem_Realloc(request->data, (size_t)room);
        if (larger == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        request->data = larger;
        request->room = room;
    }
    return request->data + request->used;
}

static int
add_bytes(Request *request, const char *data, Py_ssize_t size)
{
    unsigned char *at = more_room(request, size);
    if (at == NULL)
        return -1;
    memcpy(at, data, (size_t)size);
    request->used += size;
    return 0;
}

/* A number: as a varint if flexible, else in `size` bytes. */
static int
add_count(Request *request, int64_t number, int flexible, int size)
{
    unsigned char *at = more_room(request, 10);
    if (at == NULL)
        return -1;
    unsigned char *end
        = flexible ? put(at, (uint64_t)number + 1) : put_number(at, number, size);
    request->used += end - at;
    return 0;
}

/* The size of bytes, or of a view of bytes; -1 with an exception. */
static Py_ssize_t
size_of_batch(PyObject *batch)
{
    if (PyBytes_Check(batch) || PyMemoryView_Check(batch))
        return PyObject_Size(batch);
    PyErr_SetString(PyExc_TypeError, "a batch must be bytes");
    return -1;
}

/* Complete the bytes, and add a batch after them if there is one. */
static int
end_buffer(Request *request, PyObject *batch)
{
    PyObject *bytes = PyBytes_FromStringAndSize((char *)request->data, request->used);
    int failed = bytes == NULL || PyList_Append(request->buffers, bytes) < 0
                 || (batch != NULL && PyList_Append(request->buffers, batch) < 0);
    Py_XDECREF(bytes);
    request->size += request->used + (batch == NULL ? 0 : PyObject_Size(batch));
    request->used = 0;
    return failed ? -1 : 0;
}

/* The topic's name with its length, or its id as it is. */
static int
add_topic(Request *request, PyObject *topic, int flexible)
{
    char *data;
    Py_ssize_t size;
    if (PyBytes_Check(topic))
        return PyBytes_AsStringAndSize(topic, &data, &size) < 0 ? -1
                                                                : add_bytes(request, data, size);
    const char *text = PyUnicode_AsUTF8AndSize(topic, &size);
    if (text == NULL)
        return -1;
    if (size > LONGEST_STRING) {
        PyErr_Format(protocol_error, "string of %zd bytes, Kafka's limit is %d", size,
                     LONGEST_STRING);
        return -1;
    }
    return add_count(request, size, flexible, 2) < 0 ? -1 : add_bytes(request, text, size);
}

/* An item of a list, which must be a tuple: a new reference. */
static PyObject *
tuple_at(PyObject *list, Py_ssize_t index)
{
    PyObject *item = PyList_GetItem(list, index);
    if (item != NULL && !PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "topics and partitions must be tuples");
        return NULL;
    }
    return Py_XNewRef(item);
}

/* A partition: its number, the size of its batch, and the batch, bytes or a view of bytes. */
static int
add_partition(Request *request, PyObject *partition, int flexible)
{
    int index;
    PyObject *batch;
    Py_ssize_t size = PyArg_ParseTuple(partition, "iO", &index, &batch) ? size_of_batch(batch) : -1;
    return size < 0 || add_count(request, index, 0, 4) < 0
                   || add_count(request, size, flexible, 4) < 0
                   || end_buffer(request, batch) < 0
                   || (flexible && add_bytes(request, "\0", 1) < 0) /* its tagged fields */
               ? -1
               : 0;
}

static int
add_partitions(Request *request, PyObject *partitions, int flexible)
{
    if (add_count(request, PyList_Size(partitions), flexible, 4) < 0)
        return -1;
    for (Py_ssize_t at = 0; at < PyList_Size(partitions); at++) {
        PyObject *partition = tuple_at(partitions, at);
        int failed = partition == NULL || add_partition(request, partition, flexible) < 0;
        Py_XDECREF(partition);
        if (failed)
            return -1;
    }
    return flexible ? add_bytes(request, "\0", 1) : 0; /* the topic's */
}

static int
add_whole_topic(Request *request, PyObject *whole, int flexible)
{
    PyObject *topic, *partitions;
    return !PyArg_ParseTuple(whole, "OO!", &topic, &PyList_Type, &partitions)
                   || add_topic(request, topic, flexible) < 0
                   || add_partitions(request, partitions, flexible) < 0
               ? -1
               : 0;
}

static int
add_topics(Request *request, PyObject *topics, int flexible)
{
    if (add_count(request, PyList_Size(topics), flexible, 4) < 0)
        return -1;
    for (Py_ssize_t at = 0; at < PyList_Size(topics); at++) {
        PyObject *whole = tuple_at(topics, at);
        int failed = whole == NULL || add_whole_topic(request, whole, flexible) < 0;
        Py_XDECREF(whole);
        if (failed)
            return -1;
    }
    return flexible ? add_bytes(request, "\0", 1) : 0; /* the request's */
}

/* Put the size of the whole request into its first buffer, which no other code has seen yet. */
static int
put_size(Request *request)
{
    Py_ssize_t size = request->size - 4;
    if (size > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a request of 2 GiB or more");
        return -1;
    }
    char *start = PyBytes_AsString(PyList_GetItem(request->buffers, 0));
    put_number((unsigned char *)start, size, 4);
    return 0;
}

const char join_request_doc[] = "join_request(version, correlation_id, start, topics, /)\n--\n\n"
             "Return a Produce request with size and header, as buffers.";

PyObject *
join_request(PyObject *module, PyObject *args)
{
    int version, correlation_id;
    PyObject *start, *topics;
    (void)module;
    if (!PyArg_ParseTuple(args, "iiO!O!:join_request", &version, &correlation_id, &PyBytes_Type,
                          &start, &PyList_Type, &topics))
        return NULL;
    Request request = {.buffers = PyList_New(0)};
    if (request.buffers == NULL || add_count(&request, 0, 0, 4) < 0
        || add_count(&request, PRODUCE, 0, 2) < 0 || add_count(&request, version, 0, 2) < 0
        || add_count(&request, correlation_id, 0, 4) < 0
        || add_bytes(&request, PyBytes_AsString(start), PyBytes_Size(start)) < 0
        || add_topics(&request, topics, version >= FIRST_FLEXIBLE) < 0
        || (request.used && end_buffer(&request, NULL) < 0) || put_size(&request) < 0)
        Py_CLEAR(request.buffers);
    PyMem_Free(request.data);
    return request.buffers;
}

/* -- responses ---------------------------------------------------------------------------------- */

/* What is left of a response. */
typedef struct {
    const unsigned char *at, *end;
} Rest;

static int
has(const Rest *rest, Py_ssize_t size)
{
    return rest->end - rest->at >= size;
}

/* As number_at(); the bytes must be there. */
static int64_t
take_number(Rest *rest, int size)
{
    rest->at += size;
    return number_at(rest->at - size, size);
}

/* The name of the topic, or the bytes of its id: a new reference. NULL if it is unusual, perhaps
 * with an exception. */
static PyObject *
take_topic(Rest *rest, int by_id)
{
    Py_ssize_t size = 16;
    if (!by_id) {
        if (!has(rest, 1) || *rest->at < 1 || *rest->at > 0x7f)
            return NULL;
        size = *rest->at++ - 1;
    }
    if (!has(rest, size))
        return NULL;
    const char *start = (const char *)rest->at;
    rest->at += size;
    if (by_id)
        return PyBytes_FromStringAndSize(start, size);
    PyObject *name = PyUnicode_DecodeUTF8(start, size, NULL);
    if (name == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return name;
}

/* 1; 0 if the partition has an error or more fields; -1 with an exception. */
static int
take_partition(Rest *rest, PyObject *topic, PyObject *places)
{
    int index = (int)take_number(rest, 4);
    int64_t error = take_number(rest, 2);
    long long base_offset = take_number(rest, 8), log_append_time = take_number(rest, 8);
    rest->at += 8; /* the log start offset */
    /* No refused records, no message, no tagged fields. */
    if (error != 0 || take_number(rest, 3) != 0x010000)
        return 0;
    PyObject *key = Py_BuildValue("Oi", topic, index);
    PyObject *place = Py_BuildValue("LL", base_offset, log_append_time);
    int failed = key == NULL || place == NULL || PyDict_SetItem(places, key, place) < 0;
    Py_XDECREF(key);
    Py_XDECREF(place);
    return failed ? -1 : 1;
}

static int
take_partitions(Rest *rest, PyObject *topic, PyObject *places)
{
    if (!has(rest, 2))
        return 0;
    Py_ssize_t count = *rest->at++;
    if (count > 0x7f)
        count = (count & 0x7f) | *rest->at++ << 7;
    if (count < 1 || count > 0x3fff || !has(rest, PARTITION_SIZE * (count - 1) + 1))
        return 0;
    for (int usual = 1; --count > 0;)
        if ((usual = take_partition(rest, topic, places)) < 1)
            return usual;
    return *rest->at++ == 0; /* no tagged fields of the topic */
}

static int
take_topics(Rest *rest, int by_id, PyObject *places)
{
    if (!has(rest, 2) || *rest->at++ != 0 || *rest->at < 1 || *rest->at > 0x7f)
        return 0;
    for (int count = *rest->at++; count > 1; count--) {
        PyObject *topic = take_topic(rest, by_id);
        int usual = topic == NULL ? (PyErr_Occurred() ? -1 : 0)
                                  : take_partitions(rest, topic, places);
        Py_XDECREF(topic);
        if (usual < 1)
            return usual;
    }
    return 1;
}

const char read_places_doc[] = "read_places(version, frame, /)\n--\n\n"
             "Return correlation id, throttle time and places of a Produce response without errors;\n"
             "None for any other response.";

PyObject *
read_places(PyObject *module, PyObject *args)
{
    int version;
    char *data;
    Py_ssize_t size;
    PyObject *frame;
    (void)module;
    if (!PyArg_ParseTuple(args, "iO!:read_places", &version, &PyBytes_Type, &frame)
        || PyBytes_AsStringAndSize(frame, &data, &size) < 0)
        return NULL;
    Rest rest = {(unsigned char *)data, (unsigned char *)data + size};
    if (version < FIRST_FLEXIBLE || version > LAST_VERSION || !has(&rest, 4))
        Py_RETURN_NONE;
    int correlation_id = (int)take_number(&rest, 4);
    PyObject *places = PyDict_New();
    int usual = places == NULL ? -1 : take_topics(&rest, version >= FIRST_TOPIC_ID, places);
    if (usual == 1 && rest.end - rest.at == 5 && rest.end[-1] == 0)
        return Py_BuildValue("iiN", correlation_id, (int)take_number(&rest, 4), places);
    Py_XDECREF(places);
    return usual < 0 ? NULL : Py_NewRef(Py_None);
}

/* -- the module's part -------------------------------------------------------------------------- */

int
import_once(const char *module, const char *name, PyObject **found)
{
    PyObject *imported = *found == NULL ? PyImport_ImportModule(module) : NULL;
    if (imported != NULL) {
        *found = PyObject_GetAttrString(imported, name);
        Py_DECREF(imported);
    }
    return *found == NULL ? -1 : 0;
}

int
add_produce(PyObject *module)
{
    (void)module;
    return import_once("aioprod.protocol.checksum", "crc32c", &crc32c) < 0
                   || import_once("aioprod.errors", "ProtocolError", &protocol_error) < 0
               ? -1
               : 0;
}
