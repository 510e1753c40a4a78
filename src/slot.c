/* The pool of slots. A slot is never freed, only reused: the watchdog walks the list without a
 * lock, and a loop thread may come back from a system call into a hook whose watch is long gone. As
 * many slots exist as loops were ever watched at the same time. */
#include "slot.h"

#include <stdlib.h>
#include <string.h>

#include "history/history.h"
#include "process.h"
#include "profile/profile.h"
#include "watch/look.h"
#include "watch/watchdog.h"

#define RELAXED memory_order_relaxed

static lw_slot *_Atomic all_slots;
static _Atomic uint64_t last_key;

lw_slot *
lw_slot_first(void)
{
    return atomic_load_explicit(&all_slots, memory_order_acquire);
}

static lw_slot *
take_free(void)
{
    for (lw_slot *slot = lw_slot_first(); slot; slot = atomic_load_explicit(&slot->next, RELAXED)) {
        uint32_t expected = LW_SLOT_FREE;
        if (atomic_compare_exchange_strong_explicit(&slot->state, &expected, LW_SLOT_NEW,
                                                    memory_order_acquire, RELAXED)) {
            return slot;
        }
    }
    return NULL;
}

static lw_slot *
allocate(void)
{
    lw_slot *slot = calloc(1, sizeof *slot);
    if (!slot) {
        return NULL;
    }
    slot->look = lw_look_new();
    slot->profile = slot->look ? lw_profile_new() : NULL;
    slot->history = slot->profile ? lw_history_new() : NULL;
    if (!slot->history) {
        free(slot->profile);
        free(slot->look);
        free(slot);
        return NULL;
    }
    atomic_store_explicit(&slot->state, LW_SLOT_NEW, RELAXED);
    lw_slot *first = lw_slot_first();
    do {
        atomic_store_explicit(&slot->next, first, RELAXED);
    } while (!atomic_compare_exchange_weak_explicit(&all_slots, &first, slot, memory_order_release,
                                                    memory_order_acquire));
    return slot;
}

/* Everything behind `state` as in fresh memory, but for what names the slot. Nobody else looks at a
 * NEW slot; the counters are atomics only because others will. */
static void
clear(lw_slot *slot)
{
    atomic_store_explicit(&slot->threshold_ns, 0, RELAXED);
    atomic_store_explicit(&slot->hang_after_ns, LW_NS_NEVER, RELAXED);
    atomic_store_explicit(&slot->profile_period_ns, 0, RELAXED);
    memset(&slot->cell, 0, sizeof slot->cell);
    memset(&slot->steps, 0, sizeof slot->steps);
    memset(&slot->routes, 0, sizeof slot->routes);
    memset(&slot->ended, 0, sizeof slot->ended);
    memset(&slot->slow, 0, sizeof slot->slow);
    memset(&slot->histogram, 0, sizeof slot->histogram);
    atomic_store_explicit(&slot->exempt_turn, 0, RELAXED);
    atomic_store_explicit(&slot->turns, 0, RELAXED);
    atomic_store_explicit(&slot->idle_ns, 0, RELAXED);
    atomic_store_explicit(&slot->gil_wait_ns, 0, RELAXED);
    memset(&slot->bound, 0, sizeof slot->bound);
    atomic_store_explicit(&slot->run_seen, 0, RELAXED);
    atomic_store_explicit(&slot->refine, NULL, RELAXED);
    atomic_store_explicit(&slot->pulse_data, NULL, RELAXED);
    atomic_store_explicit(&slot->ready_turn, 0, RELAXED);
    atomic_store_explicit(&slot->gil_turn, 0, RELAXED);
    atomic_store_explicit(&slot->dump_fd, LW_DUMP_OFF, RELAXED);
    atomic_store_explicit(&slot->dump_asked, 0, RELAXED);
    atomic_store_explicit(&slot->dump_adopted, 0, RELAXED);
    _Atomic uint64_t *const counters[] = {
        &slot->stalls,         &slot->exempt,  &slot->debugged,
        &slot->dropped,        &slot->samples, &slot->samples_exact,
        &slot->samples_moving, &slot->dumps,   &slot->dumps_failed,
    };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        atomic_store_explicit(counters[i], 0, RELAXED);
    }
    slot->loop = 0;
    lw_history_reset(slot);
}

lw_slot *
lw_slot_new(void)
{
    lw_slot *slot = take_free();
    if (!slot) {
        slot = allocate();
    }
    if (slot) {
        clear(slot);
        lw_look_reset(slot->look);
        lw_profile_reset(slot->profile);
        slot->key = atomic_fetch_add_explicit(&last_key, 1, RELAXED) + 1;
        slot->owner = NULL;
        atomic_store_explicit(&slot->references, 1, RELAXED);
    }
    return slot;
}

/* FREE where nobody refers to it and the watchdog is done; both sides call this, and one of them
 * succeeds. */
static void
free_where_done(lw_slot *slot)
{
    uint32_t expected = LW_SLOT_RETIRED;
    if (atomic_load_explicit(&slot->references, memory_order_acquire) == 0) {
        atomic_compare_exchange_strong_explicit(&slot->state, &expected, LW_SLOT_FREE,
                                                memory_order_acq_rel, RELAXED);
    }
}

void
lw_slot_incref(lw_slot *slot)
{
    atomic_fetch_add_explicit(&slot->references, 1, RELAXED);
}

void
lw_slot_decref(lw_slot *slot)
{
    if (atomic_fetch_sub_explicit(&slot->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    switch (lw_slot_state_of(slot)) {
    case LW_SLOT_NEW: /* never started */
        atomic_store_explicit(&slot->state, LW_SLOT_FREE, memory_order_release);
        break;
    case LW_SLOT_ACTIVE: /* its loop was collected without being closed */
        lw_slot_retire(slot);
        free_where_done(slot);
        break;
    case LW_SLOT_RETIRED:
        free_where_done(slot);
        break;
    case LW_SLOT_RETIRING: /* lw_slot_let_go will */
    case LW_SLOT_FREE:
        break;
    }
}

void
lw_slot_start_quietly(lw_slot *slot)
{
    atomic_store_explicit(&slot->fork_generation,
                          atomic_load_explicit(&lw_fork_generation, RELAXED), RELAXED);
    atomic_store_explicit(&slot->state, LW_SLOT_ACTIVE, memory_order_release);
}

void
lw_slot_start(lw_slot *slot)
{
    lw_slot_start_quietly(slot);
    lw_watchdog_wake();
}

void
lw_slot_retire_quietly(lw_slot *slot)
{
    bool ours = atomic_load_explicit(&slot->fork_generation, RELAXED) ==
                atomic_load_explicit(&lw_fork_generation, RELAXED);
    uint32_t expected = LW_SLOT_ACTIVE;
    uint32_t next = ours && lw_watchdog_runs() ? LW_SLOT_RETIRING : LW_SLOT_RETIRED;
    if (!atomic_compare_exchange_strong_explicit(&slot->state, &expected, next,
                                                 memory_order_seq_cst, RELAXED) &&
        expected == LW_SLOT_NEW) {
        atomic_compare_exchange_strong_explicit(&slot->state, &expected, LW_SLOT_RETIRED,
                                                memory_order_seq_cst, RELAXED);
    }
}

void
lw_slot_retire(lw_slot *slot)
{
    lw_slot_retire_quietly(slot);
    lw_watchdog_wake();
}

void
lw_slot_let_go(lw_slot *slot)
{
    uint32_t expected = LW_SLOT_RETIRING;
    if (atomic_compare_exchange_strong_explicit(&slot->state, &expected, LW_SLOT_RETIRED,
                                                memory_order_seq_cst, RELAXED)) {
        free_where_done(slot);
    }
}

/* --- sequence locks --- */

/* A writer that was preempted between its two counts leaves them odd until it runs again; the
 * reader must not spin for that long (nor for ever, in a forked child). */
#define READ_TRIES 64

static bool
settled(_Atomic uint32_t *sequence, uint32_t before)
{
    return !(before & 1) && atomic_load_explicit(sequence, RELAXED) == before;
}

bool
lw_cell_read(lw_cell *cell, lw_beat *beat)
{
    for (int i = 0; i < READ_TRIES; i++) {
        uint32_t before = atomic_load_explicit(&cell->sequence, memory_order_acquire);
        beat->turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
        beat->phase = (lw_phase)atomic_load_explicit(&cell->phase, memory_order_acquire);
        beat->since_ns = atomic_load_explicit(&cell->since_ns, memory_order_acquire);
        beat->due_ns = atomic_load_explicit(&cell->due_ns, memory_order_acquire);
        if (settled(&cell->sequence, before)) {
            return true;
        }
    }
    return false;
}

bool
lw_slot_thread(lw_slot *slot, lw_thread *thread)
{
    lw_bound *bound = &slot->bound;
    uint64_t words[LW_THREAD_WORDS];
    for (int i = 0; i < READ_TRIES; i++) {
        uint32_t before = atomic_load_explicit(&bound->sequence, memory_order_acquire);
        if (before == 0) {
            return false;
        }
        for (size_t word = 0; word < LW_THREAD_WORDS; word++) {
            words[word] = atomic_load_explicit(&bound->words[word], memory_order_acquire);
        }
        if (settled(&bound->sequence, before)) {
            memcpy(thread, words, sizeof *thread);
            return true;
        }
    }
    return false;
}

void
lw_slot_set_thread(lw_slot *slot, const lw_thread *thread)
{
    lw_bound *bound = &slot->bound;
    uint64_t words[LW_THREAD_WORDS] = {0};
    memcpy(words, thread, sizeof *thread);
    uint32_t sequence = atomic_load_explicit(&bound->sequence, RELAXED);
    atomic_store_explicit(&bound->sequence, sequence + 1, RELAXED);
    for (size_t word = 0; word < LW_THREAD_WORDS; word++) {
        atomic_store_explicit(&bound->words[word], words[word], memory_order_release);
    }
    atomic_store_explicit(&bound->sequence, sequence + 2, memory_order_release);
}
