/* The base classes of batches, partitions and topics: see fields.h. */
#include "fields.h"
#include "owned.h"

#include <structmember.h>

PyTypeObject *batch_fields_type, *partition_fields_type, *sticky_fields_type, *topic_fields_type;

#define BASE_CLASS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE)

/* -- batches ------------------------------------------------------------------------------------ */

OWNS_OBJECTS(BatchFields, writer, value_sizes)

static PyMemberDef batch_members[] = {
    {"writer", T_OBJECT_EX, offsetof(BatchFields, writer), 0, NULL},
    {"open_until", T_PYSSIZET, offsetof(BatchFields, open_until), 0, NULL},
    {"topic", T_OBJECT_EX, offsetof(BatchFields, topic), 0, NULL},
    {"partition", T_OBJECT_EX, offsetof(BatchFields, partition), 0, NULL},
    {"starts", T_OBJECT_EX, offsetof(BatchFields, starts), 0, NULL},
    {"timestamps", T_OBJECT_EX, offsetof(BatchFields, timestamps), 0, NULL},
    {"key_sizes", T_OBJECT_EX, offsetof(BatchFields, key_sizes), 0, NULL},
    {"value_sizes", T_OBJECT_EX, offsetof(BatchFields, value_sizes), 0, NULL},
    {"base_offset", T_LONGLONG, offsetof(BatchFields, base_offset), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "As aioprod.producer.shared_fields.BatchFields."},
    {Py_tp_members, batch_members},
    OWNS_OBJECTS_SLOTS(BatchFields),
    {0, NULL},
};

static PyType_Spec batch_spec = {
    .name = "aioprod._native.BatchFields",
    .basicsize = sizeof(BatchFields),
    .flags = BASE_CLASS | Py_TPFLAGS_HAVE_GC,
    .slots = batch_slots,
};

/* -- partitions --------------------------------------------------------------------------------- */

OWNS_OBJECTS(PartitionFields, open, open)

static PyMemberDef partition_members[] = {
    {"open", T_OBJECT, offsetof(PartitionFields, open), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot partition_slots[] = {
    {Py_tp_doc, "As aioprod.producer.shared_fields.PartitionFields."},
    {Py_tp_members, partition_members},
    OWNS_OBJECTS_SLOTS(PartitionFields),
    {0, NULL},
};

static PyType_Spec partition_spec = {
    .name = "aioprod._native.PartitionFields",
    .basicsize = sizeof(PartitionFields),
    .flags = BASE_CLASS | Py_TPFLAGS_HAVE_GC,
    .slots = partition_slots,
};

/* -- topics ------------------------------------------------------------------------------------- */

static void
free_sticky(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMemberDef sticky_members[] = {
    {"current", T_PYSSIZET, offsetof(StickyFields, current), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot sticky_slots[] = {
    {Py_tp_doc, "As aioprod.producer.shared_fields.StickyFields."},
    {Py_tp_members, sticky_members},
    {Py_tp_dealloc, free_sticky},
    {0, NULL},
};

static PyType_Spec sticky_spec = {
    .name = "aioprod._native.StickyFields",
    .basicsize = sizeof(StickyFields),
    .flags = BASE_CLASS,
    .slots = sticky_slots,
};

OWNS_OBJECTS(TopicFields, queues, sticky)

static PyMemberDef topic_members[] = {
    {"count", T_PYSSIZET, offsetof(TopicFields, count), 0, NULL},
    {"queues", T_OBJECT_EX, offsetof(TopicFields, queues), 0, NULL},
    {"sticky", T_OBJECT_EX, offsetof(TopicFields, sticky), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot topic_slots[] = {
    {Py_tp_doc, "As aioprod.producer.shared_fields.TopicFields."},
    {Py_tp_members, topic_members},
    OWNS_OBJECTS_SLOTS(TopicFields),
    {0, NULL},
};

static PyType_Spec topic_spec = {
    .name = "aioprod._native.TopicFields",
    .basicsize = sizeof(TopicFields),
    .flags = BASE_CLASS | Py_TPFLAGS_HAVE_GC,
    .slots = topic_slots,
};

int
add_fields(PyObject *module)
{
    return add_type(module, &batch_spec, &batch_fields_type) < 0
                   || add_type(module, &partition_spec, &partition_fields_type) < 0
                   || add_type(module, &sticky_spec, &sticky_fields_type) < 0
                   || add_type(module, &topic_spec, &topic_fields_type) < 0
               ? -1
               : 0;
}
