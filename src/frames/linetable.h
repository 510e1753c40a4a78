/* The location table of a code object (PEP 657's format, 3.11 to 3.15): which source range an
 * instruction has.
 *
 * Pure functions of a copy of the table; nothing in it is trusted, so any bytes are safe to give.
 * Held against tests/reference/linetable.py and code.co_positions() by the tests.
 */
#ifndef LW_LINETABLE_H
#define LW_LINETABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot.h"

/* The position of the instruction at byte `instruction` of co_code. False, and all -1, where the
 * table ends before it or is not one; an instruction before the first has the first line, as in a
 * traceback. */
bool lw_linetable_find(const uint8_t *table, size_t length, int32_t firstlineno,
                       int32_t instruction, lw_position *out);

#endif
