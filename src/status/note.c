/* One string behind a try-lock: note.h. */
#include "note.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define NONE "null"

static struct {
    atomic_flag taken;
    _Atomic uint64_t version;
    size_t length; /* this and `bytes` with the lock */
    char bytes[LW_NOTE_MAX];
    char shown[LW_NOTE_MAX + 1]; /* the watchdog's own */
} note = {.taken = ATOMIC_FLAG_INIT};

bool
lw_note_set(const char *json, size_t length)
{
    if (length > LW_NOTE_MAX) {
        return false;
    }
    while (atomic_flag_test_and_set_explicit(&note.taken, memory_order_acquire)) {
        sched_yield(); /* the watchdog copies */
    }
    memcpy(note.bytes, json, length);
    note.length = length;
    atomic_flag_clear_explicit(&note.taken, memory_order_release);
    atomic_fetch_add_explicit(&note.version, 1, memory_order_release);
    return true;
}

uint64_t
lw_note_version(void)
{
    return atomic_load_explicit(&note.version, memory_order_acquire);
}

const char *
lw_note_get(void)
{
    if (!atomic_flag_test_and_set_explicit(&note.taken, memory_order_acquire)) {
        memcpy(note.shown, note.bytes, note.length);
        note.shown[note.length] = '\0';
        atomic_flag_clear_explicit(&note.taken, memory_order_release);
    }
    return note.shown[0] ? note.shown : NONE;
}

void
lw_note_forget(void)
{
    atomic_flag_clear_explicit(&note.taken, memory_order_relaxed);
    note.length = 0;
    note.shown[0] = '\0';
}
