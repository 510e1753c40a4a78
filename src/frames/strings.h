/* Unicode objects of the interpreter as UTF-8, through guarded reads. Without the GIL. */
#ifndef LW_STRINGS_H
#define LW_STRINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/read.h"

/* Copies the str at `address` into `out`, which has room for `room` bytes and a NUL: exactly a str,
 * of any width, cut at a character where it is longer; lone surrogates encoded like other
 * characters (WTF-8), so that undecodable file names survive. False where there is no readable str;
 * `out` is then "". */
bool lw_string_read(lw_reader *reader, uintptr_t address, char *out, size_t room, size_t *length);

/* As lw_string_read of a copy: `n` characters of `width` 1, 2 or 4 bytes each. Returns the bytes
 * written, without the NUL. */
size_t lw_string_encode(const void *characters, size_t n, unsigned width, char *out, size_t room);

#endif
