/* Decodes location tables.
 *
 * A table is a row of entries, each for 1 to 8 code units. The first byte has the high bit set (no
 * other has), a kind in bits 3 to 6 and the number of units less one in bits 0 to 2. Lines are
 * deltas from entry to entry, so finding an instruction means decoding everything before it;
 * callers cache what they found.
 *
 *   kind 0-9    same line, columns in one byte more: start = kind << 3 | high bits, end = start +
 * low four bits kind 10-12  line + (kind - 10), start and end column a byte each kind 13     signed
 * line delta, no columns kind 14     signed line delta, lines to the end, start column + 1, end
 * column + 1 kind 15     no location
 *
 * Numbers are in groups of six bits, least significant first, bit 6 set where another follows;
 * signed ones have the sign in the lowest bit.
 */
#include "linetable.h"

#define UNIT_BYTES 2

enum {
    KIND_ONE_LINE_0 = 10,
    KIND_ONE_LINE_2 = 12,
    KIND_NO_COLUMNS = 13,
    KIND_LONG = 14,
    KIND_NONE = 15,
};

typedef struct cursor {
    const uint8_t *next, *end;
} cursor;

static uint32_t
take_byte(cursor *at)
{
    return at->next < at->end ? *at->next++ : 0;
}

/* Ends at the end of the table; bits that no 32-bit number has are dropped. */
static uint32_t
take_number(cursor *at)
{
    uint32_t value = 0;
    uint32_t byte = 0x40;
    for (unsigned shift = 0; byte & 0x40 && at->next < at->end; shift += 6) {
        byte = take_byte(at);
        if (shift < 32) {
            value |= (byte & 0x3F) << shift;
        }
    }
    return value;
}

/* As two's complement, so that adding one to a line never overflows in C's sense. */
static uint32_t
take_signed(cursor *at)
{
    uint32_t value = take_number(at);
    return value & 1 ? 0u - (value >> 1) : value >> 1;
}

static int32_t
as_signed(uint32_t value)
{
    return value <= INT32_MAX ? (int32_t)value : -1;
}

/* The rest of an entry whose first byte said `kind`; `line` is carried from entry to entry. */
static void
take_entry(cursor *at, unsigned kind, uint32_t *line, lw_position *out)
{
    uint32_t end_line, column, end_column;
    if (kind == KIND_NONE) {
        *out = (lw_position){-1, -1, -1, -1};
        return;
    }
    if (kind == KIND_LONG) {
        *line += take_signed(at);
        end_line = *line + take_number(at);
        column = take_number(at) - 1;
        end_column = take_number(at) - 1;
    }
    else if (kind == KIND_NO_COLUMNS) {
        *line += take_signed(at);
        end_line = *line;
        column = end_column = UINT32_MAX;
    }
    else if (kind >= KIND_ONE_LINE_0 && kind <= KIND_ONE_LINE_2) {
        *line += kind - KIND_ONE_LINE_0;
        end_line = *line;
        column = take_byte(at);
        end_column = take_byte(at);
    }
    else {
        uint32_t byte = take_byte(at);
        end_line = *line;
        column = kind << 3 | (byte >> 4 & 7);
        end_column = column + (byte & 15);
    }
    *out = (lw_position){as_signed(*line), as_signed(end_line), as_signed(column),
                         as_signed(end_column)};
}

bool
lw_linetable_find(const uint8_t *table, size_t length, int32_t firstlineno, int32_t instruction,
                  lw_position *out)
{
    if (instruction < 0) {
        *out = (lw_position){firstlineno, firstlineno, -1, -1};
        return true;
    }
    cursor at = {table, table + length};
    uint32_t line = (uint32_t)firstlineno;
    int64_t end = 0; /* byte where the entry's instructions end; 64 bits: bounded by 16 times the
                        table's length */
    while (at.next < at.end) {
        uint32_t head = take_byte(&at);
        if (!(head & 0x80)) {
            break;
        }
        end += (int64_t)((head & 7) + 1) * UNIT_BYTES;
        take_entry(&at, head >> 3 & 15, &line, out);
        if (instruction < end) {
            return true;
        }
    }
    *out = (lw_position){-1, -1, -1, -1};
    return false;
}
