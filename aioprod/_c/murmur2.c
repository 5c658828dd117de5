/* The hash of a key, as aioprod/producer/partitioner.py has it. */
#include "native.h"

uint32_t
murmur2_of(const unsigned char *data, Py_ssize_t length)
{
    const uint32_t m = 0x5bd1e995;
    uint32_t h = 0x9747b28c ^ (uint32_t)length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t k = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16
                     | (uint32_t)data[3] << 24;
        k *= m;
        k ^= k >> 24;
        k *= m;
        h = h * m ^ k;
    }
    switch (length) {
    case 3:
        h ^= (uint32_t)data[2] << 16; /* fall through */
    case 2:
        h ^= (uint32_t)data[1] << 8; /* fall through */
    case 1:
        h = (h ^ data[0]) * m;
    }
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

const char murmur2_doc[] = "murmur2(key, /)\n--\n\n"
                          "Return the hash of a key, as Java's client computes it, without its sign.";

PyObject *
murmur2(PyObject *module, PyObject *key)
{
    char *data;
    Py_ssize_t length;
    (void)module;
    if (PyBytes_AsStringAndSize(key, &data, &length) < 0)
        return NULL;
    return PyLong_FromUnsignedLong(murmur2_of((unsigned char *)data, length) & 0x7fffffff);
}
