/* The header of a batch in fetched bytes, as aioprod/protocol/record_batch.py has it. */
#ifndef AIOPROD_BATCH_H
#define AIOPROD_BATCH_H

#include "big_endian.h"

enum { LOG_OVERHEAD = 12, MAGIC_AT = 16, CRC_AT = 17, CHECKED_FROM = 21, MAGIC = 2 };
enum { CODEC_BITS = 0x07, LOG_APPEND_TIME = 0x08, TRANSACTIONAL = 0x10, CONTROL = 0x20 };

typedef struct {
    const unsigned char *records, *end;
    int64_t base_offset, last_offset, base_timestamp, max_timestamp;
    uint32_t crc;
    int32_t leader_epoch, record_count;
    int attributes;
} BatchHead;

/* The place after the batch at a place; NULL if it is not whole, or its length is impossible. */
static inline const unsigned char *
end_of_batch(const unsigned char *at, const unsigned char *end)
{
    if (end - at < HEADER_SIZE)
        return NULL;
    int32_t length = (int32_t)number_at(at + 8, 4);
    return length < HEADER_SIZE - LOG_OVERHEAD || length > end - at - LOG_OVERHEAD
               ? NULL
               : at + LOG_OVERHEAD + length;
}

/* Read the header of the batch at a place. False if the batch is not whole, a number is impossible,
 * or far from what a clock or an offset shows: the source in Python decides. */
static inline int
read_head(const unsigned char *at, const unsigned char *end, BatchHead *head)
{
    head->end = end_of_batch(at, end);
    if (head->end == NULL || at[MAGIC_AT] != MAGIC)
        return 0;
    head->records = at + HEADER_SIZE;
    head->base_offset = number_at(at, 8);
    head->leader_epoch = (int32_t)number_at(at + 12, 4);
    head->crc = (uint32_t)number_at(at + CRC_AT, 4);
    head->attributes = (int)number_at(at + 21, 2);
    int32_t last_delta = (int32_t)number_at(at + 23, 4);
    head->base_timestamp = number_at(at + 27, 8);
    head->max_timestamp = number_at(at + 35, 8);
    head->record_count = (int32_t)number_at(at + 57, 4);
    if (head->base_offset < 0 || head->base_offset > INT64_MAX / 2 || last_delta < 0
        || head->record_count < 0 || head->record_count > (int64_t)last_delta + 1
        || head->base_timestamp > INT64_MAX / 4 || head->base_timestamp < -(INT64_MAX / 4))
        return 0;
    head->last_offset = head->base_offset + last_delta;
    return 1;
}

#endif
