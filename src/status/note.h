/* What only Python knows and the status page shows too: the executors that were full. JSON, handed
 * over by the reporter's thread and copied into the page by the watchdog.
 *
 * A lock of these two alone; the watchdog only tries it, and shows what it had where it is taken.
 */
#ifndef LW_NOTE_H
#define LW_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LW_NOTE_MAX 4096

/* Any thread but the watchdog: a JSON value. False: it is longer than LW_NOTE_MAX. */
bool lw_note_set(const char *json, size_t length);

/* Changes with each lw_note_set(). */
uint64_t lw_note_version(void);

/* The watchdog: the last one, or "null". */
const char *lw_note_get(void);

/* In a forked child: the note is the parent's. Async-signal-safe. */
void lw_note_forget(void);

#endif
