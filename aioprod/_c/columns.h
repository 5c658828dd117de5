/* Columns of Arrow tables, as views of their memory.
 *
 * Other code may write to that memory, or it may be wrong from the start: each offset is checked
 * each time it is read.
 */
#ifndef AIOPROD_COLUMNS_H
#define AIOPROD_COLUMNS_H

#include "field.h"

/* A binary column. Without nulls validity is empty (its buf is NULL). */
typedef struct {
    Py_buffer validity, offsets, data;
    Py_ssize_t first, count;
} Binary;

/* A column of numbers without nulls. */
typedef struct {
    Py_buffer data;
    Py_ssize_t first, count;
} Numbers;

/* Set a ValueError; return -1. */
int invalid(const char *what);
int invalid_offsets(void);

/* Open a pyarrow.Array of binary, or of numbers of `width` bytes; -1 with an exception. A column
 * that is all zero may be closed, too. */
int open_binary(Binary *column, PyObject *array);
int open_numbers(Numbers *column, PyObject *array, Py_ssize_t width);
void close_binary(Binary *column);

static inline void
read_number(const Numbers *column, Py_ssize_t index, void *number, size_t width)
{
    memcpy(number, (const char *)column->data.buf + (size_t)(column->first + index) * width, width);
}

/* The index is below the column's count. */
static inline int
field_of(const Binary *column, Py_ssize_t index, Field *field)
{
    int32_t ends[2];
    index += column->first;
    field->data = NULL;
    field->size = -1;
    if (column->validity.buf != NULL
        && !(((const unsigned char *)column->validity.buf)[index >> 3] >> (index & 7) & 1))
        return 0;
    memcpy(ends, (const char *)column->offsets.buf + index * (Py_ssize_t)sizeof *ends, sizeof ends);
    if (ends[0] < 0 || ends[1] < ends[0] || ends[1] > column->data.len)
        return invalid_offsets();
    field->data = (const char *)column->data.buf + ends[0];
    field->size = ends[1] - ends[0];
    return 0;
}

#endif
