/* The digest of rows, as aioprod/protocol/arrow_digest.py has it. */
#include "columns.h"

#define STEP UINT64_C(0x9E3779B97F4A7C15)
#define LENGTH UINT64_C(0xD1B54A32D192ED03)
#define KEY UINT64_C(0xABC98388FB8FAC03)
#define VALUE UINT64_C(0x139408DCBBF7A44D)

static inline uint64_t
mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    number = (number ^ number >> 27) * UINT64_C(0x94D049BB133111EB);
    return number ^ number >> 31;
}

/* Eight bytes in little-endian order. */
static inline uint64_t
word_at(const unsigned char *data)
{
    return (uint64_t)data[0] | (uint64_t)data[1] << 8 | (uint64_t)data[2] << 16
           | (uint64_t)data[3] << 24 | (uint64_t)data[4] << 32 | (uint64_t)data[5] << 40
           | (uint64_t)data[6] << 48 | (uint64_t)data[7] << 56;
}

/* The last `left` bytes of a field, 1 to 7, padded with zeros. A copy of so few bytes into a word
 * would make the load of that word wait for them. */
static inline uint64_t
last_word(const unsigned char *data, unsigned left, int longer)
{
    uint64_t word = 0;
    if (longer)
        return word_at(data + left - 8) >> (64 - 8 * left);
    for (unsigned index = 0; index < left; index++)
        word |= (uint64_t)data[index] << 8 * index;
    return word;
}

static uint64_t
number_of(const Field *field, uint64_t place)
{
    const unsigned char *data = (const unsigned char *)field->data;
    uint64_t factor = STEP, sum = place + LENGTH * (uint64_t)(field->size + 1);
    int64_t left = field->size;
    for (; left >= 8; data += 8, left -= 8, factor += 2 * STEP)
        sum += mix(word_at(data) * factor);
    if (left > 0)
        sum += mix(last_word(data, (unsigned)left, field->size > 8) * factor);
    return mix(sum);
}

static int
sum_of_rows(const Binary *values, const Binary *keys, const Py_buffer *others, uint64_t *sum)
{
    size_t step = others->len == sizeof *sum ? 0 : sizeof *sum;
    Field value, key = {NULL, -1};
    for (Py_ssize_t row = 0; row < values->count; row++) {
        uint64_t number;
        if (field_of(values, row, &value) < 0
            || (keys != NULL && field_of(keys, row, &key) < 0))
            return -1;
        memcpy(&number, (const char *)others->buf + (size_t)row * step, sizeof number);
        *sum += mix(number + number_of(&value, VALUE) + number_of(&key, KEY));
    }
    return 0;
}

const char row_digest_doc[] = "row_digest(values, keys, others, /)\n--\n\n"
                              "As aioprod.protocol.arrow_digest.row_digest.";

PyObject *
row_digest(PyObject *module, PyObject *args)
{
    PyObject *values_array, *keys_array;
    Binary values = {0}, keys = {0};
    Py_buffer others = {0};
    uint64_t sum = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOy*:row_digest", &values_array, &keys_array, &others))
        return NULL;
    int failed = open_binary(&values, values_array) < 0
                 || (keys_array != Py_None && open_binary(&keys, keys_array) < 0);
    if (!failed && keys_array != Py_None && keys.count != values.count)
        failed = invalid("keys and values must have the same number of rows");
    else if (!failed && others.len != sizeof sum
             && others.len != values.count * (Py_ssize_t)sizeof sum)
        failed = invalid("others must have one number, or one for each row");
    if (!failed)
        failed = sum_of_rows(&values, keys_array == Py_None ? NULL : &keys, &others, &sum);
    close_binary(&values);
    close_binary(&keys);
    PyBuffer_Release(&others);
    return failed ? NULL : PyLong_FromUnsignedLongLong(sum);
}
