/* Forks: process.h says what happens. The child handler runs between fork() and whatever comes
 * next, where only async-signal-safe things are allowed: it stores atomics and makes locks anew. */
#include <Python.h>

#include "process.h"

#include <pthread.h>

#include "evidence/gc_clock.h"
#include "frames/snapshot.h"
#include "glue/py_slot.h"
#include "glue/state.h"
#include "history/history.h"
#include "park.h"
#include "profile/profile.h"
#include "report/outbox.h"
#include "status/status.h"
#include "watch/ask.h"
#include "watch/look.h"
#include "watch/watchdog.h"

_Atomic uint64_t lw_fork_generation;

static void
after_fork_in_child(void)
{
    atomic_fetch_add_explicit(&lw_fork_generation, 1, memory_order_relaxed);
    lw_park_forget();
    lw_watchdog_forget();
    lw_outbox_forget();
    lw_ask_forget();
    lw_status_forget();
    lw_gc_clock_forget();
}

static void
register_handler(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

void
lw_process_setup(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handler);
}

/* The watchdog of the parent may have been in the middle of its work on the slot when the process
 * was copied. */
static void
forget_parent(lw_slot *slot)
{
    lw_look_reset(slot->look);
    lw_history_forget(slot);
    atomic_store_explicit(&slot->slow.tail,
                          atomic_load_explicit(&slot->slow.head, memory_order_relaxed),
                          memory_order_relaxed);
    lw_profile_reset(slot->profile);
    atomic_store_explicit(&slot->ended.tail,
                          atomic_load_explicit(&slot->ended.head, memory_order_relaxed),
                          memory_order_relaxed);
    slot->bound.tstate_id = 0; /* same thread, another kernel id */
}

static lw_result
start_watchdog(void)
{
    lw_result result;
    Py_BEGIN_ALLOW_THREADS
    result = lw_watchdog_start(lw_frames_reason() == NULL);
    Py_END_ALLOW_THREADS
    return result;
}

/* The slot is active before the callback is called, because the watchdog has to take over the
 * descriptor that the callback opens for dump_to. */
static int
start_anew(lw_slot *slot)
{
    lw_result result = start_watchdog();
    if (result != LW_OK) {
        lw_raise(result);
        return -1;
    }
    lw_slot_start(slot);
    return lw_slot_call_rearm(slot);
}

int
lw_process_rearm(lw_slot *slot)
{
    if (lw_slot_state_of(slot) != LW_SLOT_ACTIVE) {
        atomic_store_explicit(&slot->fork_generation,
                              atomic_load_explicit(&lw_fork_generation, memory_order_relaxed),
                              memory_order_relaxed);
        return 0;
    }
    atomic_store_explicit(&slot->state, LW_SLOT_NEW,
                          memory_order_release); /* nobody looks while we fill it in */
    forget_parent(slot);
    lw_slot_incref(slot); /* the callback may drop the watch */
    int failed = start_anew(slot);
    if (failed) {
        lw_slot_retire(slot);
    }
    atomic_store_explicit(&slot->fork_generation,
                          atomic_load_explicit(&lw_fork_generation, memory_order_relaxed),
                          memory_order_relaxed);
    lw_slot_decref(slot);
    return failed;
}
