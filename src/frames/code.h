/* The code cache: names and positions of code objects, read once.
 *
 * Entries are immutable and stay until lw_codes_flush(), so an id can be handed on and looked up
 * later, also when the code object is long gone. An entry is found by the object's identity
 * (layout.h), which is read anew in each walk: an address alone is reused at once. No watcher of
 * code objects tells us of their end: it would run on another thread, between our read of the
 * address and our use of it, and so could not save the read.
 *
 * Everything is allocated in lw_codes_new(). Bounded: LW_CODES_MAX entries, LW_ARENA_BYTES of
 * names. All other functions run without the GIL, on the snapper's thread.
 */
#ifndef LW_CODE_H
#define LW_CODE_H

#include "layout.h"
#include "snapshot.h"

#define LW_CODES_MAX 8192u
#define LW_ARENA_BYTES (2u * 1024 * 1024)
#define LW_TABLE_MAX LW_READ_MAX /* bytes of a line table read; longer ones give no position */

typedef struct lw_codes lw_codes;

lw_codes *lw_codes_new(lw_reader *reader, lw_snap_counts *counts);
void lw_codes_free(lw_codes *codes);

/* Forgets all entries; ids given out before mean nothing any more. */
void lw_codes_clear(lw_codes *codes);
bool lw_codes_nearly_full(const lw_codes *codes);

/* The id of the code object that was seen with this identity: from the cache, or read now.
 * LW_CODE_UNKNOWN where the cache is full or the object is no longer what was seen. */
uint32_t lw_codes_resolve(lw_codes *codes, const lw_code_identity *identity);

/* Where an instruction stands; all -1 where the code object is gone and the position was never
 * asked for before. */
void lw_codes_position(lw_codes *codes, uint32_t id, int32_t instruction, lw_position *out);

/* Entry 0 for an id that there is not. */
const lw_code *lw_codes_get(const lw_codes *codes, uint32_t id);

/* The code belongs to a debugger: the standard library's bdb, or pydevd. */
bool lw_codes_is_debugger(const lw_codes *codes, uint32_t id);

/* With the GIL, once: the file name that the standard library's bdb has (it need not be imported).
 */
void lw_codes_set_bdb(const char *filename);

#endif
