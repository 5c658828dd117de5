/* Big-endian numbers, as requests, responses and the headers of batches have them. */
#ifndef AIOPROD_BIG_ENDIAN_H
#define AIOPROD_BIG_ENDIAN_H

#include "native.h"

/* A number of `size` bytes with a sign. */
static inline int64_t
number_at(const unsigned char *at, int size)
{
    uint64_t number = *at & 0x80 ? UINT64_MAX : 0;
    while (size--)
        number = number << 8 | *at++;
    return (int64_t)number;
}

/* Put a number of `size` bytes; the place after it. */
static inline unsigned char *
put_number(unsigned char *at, int64_t number, int size)
{
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8)
        *at++ = (unsigned char)((uint64_t)number >> shift);
    return at;
}

#endif
