/* Numbers of variable length: unsigned, or in zigzag form, as records have them. */
#ifndef AIOPROD_VARINT_H
#define AIOPROD_VARINT_H

#include "native.h"

static inline uint64_t
zigzag(int64_t number)
{
    return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

static inline Py_ssize_t
size_of(uint64_t code)
{
    Py_ssize_t size = 1;
    while (code >>= 7)
        size++;
    return size;
}

static inline unsigned char *
put(unsigned char *at, uint64_t code)
{
    while (code > 0x7f) {
        *at++ = (unsigned char)(code | 0x80);
        code >>= 7;
    }
    *at++ = (unsigned char)code;
    return at;
}

/* Read an unsigned number of at most ten bytes; NULL at their end, or if it is longer. */
static inline const unsigned char *
get_code(const unsigned char *at, const unsigned char *end, uint64_t *code)
{
    *code = 0;
    for (int shift = 0; at < end && shift < 64; shift += 7) {
        unsigned char byte = *at++;
        if (shift == 63 && byte > 1)
            return NULL;
        *code |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return at;
    }
    return NULL;
}

/* The same for a varint in zigzag form. */
static inline const unsigned char *
get(const unsigned char *at, const unsigned char *end, int64_t *number)
{
    uint64_t code;
    at = get_code(at, end, &code);
    if (at != NULL)
        *number = (int64_t)(code >> 1) ^ -(int64_t)(code & 1);
    return at;
}

#endif
