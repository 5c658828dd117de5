/* What the files of the accelerator share. */
#ifndef AIOPROD_NATIVE_H
#define AIOPROD_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

uint32_t murmur2_of(const unsigned char *data, Py_ssize_t length);

PyObject *murmur2(PyObject *module, PyObject *key);
PyObject *parse_records(PyObject *module, PyObject *args);
PyObject *record_starts(PyObject *module, PyObject *args);
PyObject *cut_records(PyObject *module, PyObject *args);
PyObject *cut_batches(PyObject *module, PyObject *args);
PyObject *batch_places(PyObject *module, PyObject *data);

PyObject *key_partitions(PyObject *module, PyObject *args);
PyObject *row_digest(PyObject *module, PyObject *args);
PyObject *join_batch(PyObject *module, PyObject *args);
PyObject *join_request(PyObject *module, PyObject *args);
PyObject *read_places(PyObject *module, PyObject *args);

/* The fields of a batch's header that are not its size or its checksum. */
enum { HEADER_SIZE = 61 };
typedef struct {
    long long base_offset, base_timestamp, max_timestamp, producer_id;
    int leader_epoch, last_offset_delta, base_sequence, record_count;
    short attributes, producer_epoch;
} Header;

/* Put the header before the records of a batch, which has `size` bytes in all; -1 with an
 * exception. The memory is the caller's. */
int put_header(char *batch, Py_ssize_t size, const Header *header);

/* The checksum of a batch, which is whole but for it; -1 with an exception. The memory is the
 * caller's. */
int64_t checksum_of(const unsigned char *batch, Py_ssize_t size);

/* Import a name once; -1 with an exception. */
int import_once(const char *module, const char *name, PyObject **object);

/* Make a type, unless an earlier execution of the module has made it; -1 with an exception. */
int make_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type);

/* The same, and add it to the module. */
int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type);

int add_cut_records(PyObject *module);
int add_column_batches(PyObject *module);
int add_record_buffer(PyObject *module);
int add_fields(PyObject *module);
int add_deliveries(PyObject *module);
int add_fast_path(PyObject *module);
int add_send_method(PyObject *module);
int add_record_stream(PyObject *module);
int add_produce(PyObject *module);
int add_primitives(PyObject *module);

extern const char murmur2_doc[], parse_records_doc[], cut_records_doc[], cut_batches_doc[],
    batch_places_doc[],
    key_partitions_doc[], row_digest_doc[], join_batch_doc[], join_request_doc[],
    read_places_doc[], record_starts_doc[];

#endif
