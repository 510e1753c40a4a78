/* Looking into a dict of the interpreter by guarded reads. */
#ifndef LW_DICT_H
#define LW_DICT_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/read.h"

#define LW_DICT_ENTRIES_MAX 4096u /* entries looked at; a larger dict counts as unreadable */

/* The value under the key that is this very object; 0: the dict has none. False where there is no
 * dict, or it cannot be read. Without the GIL: of a dict that changes meanwhile the answer may be
 * nonsense, which the caller must be able to bear. */
bool lw_dict_find(lw_reader *reader, uintptr_t dict, uintptr_t key, uintptr_t *value);

#endif
