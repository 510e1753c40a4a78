/* What goes on just now: the wait, the turn or the time without a run that has not ended, and what
 * was counted before it. */
#include "history.h"

#include "evidence/gc_clock.h"
#include "pulses/pulse.h"
#include "pulses/uv_handle.h"

#define RELAXED memory_order_relaxed
#define TRIES_MAX 16 /* a loop that hurries through its turns: what was read is right by a turn */

static lw_ns
later(lw_ns a, lw_ns b)
{
    return a > b ? a : b;
}

void
lw_span_count(lw_slot *slot, lw_span *span)
{
    uint64_t turn = atomic_load_explicit(&slot->cell.turn, RELAXED);
    span->gil_ns = lw_slot_turn_gil_ns(slot, turn);
    span->before = (lw_totals){
        .busy_ns = atomic_load_explicit(&slot->histogram.sum_ns, RELAXED) +
                   atomic_load_explicit(&slot->overdue_ns, RELAXED),
        .idle_ns = atomic_load_explicit(&slot->idle_ns, RELAXED),
        .gil_wait_ns = atomic_load_explicit(&slot->gil_wait_ns, RELAXED),
        .gc_ns = lw_gc_clock_ns(span->ident, span->end_ns),
        .turns = atomic_load_explicit(&slot->turns, RELAXED),
    };
}

/* A heartbeat that is due is late until it comes; of the time before it nothing is known. */
static void
see_heartbeat(lw_beat *beat, lw_ns now_ns)
{
    bool late = now_ns > beat->due_ns;
    beat->phase = late ? LW_PHASE_BUSY : LW_PHASE_OFF;
    beat->since_ns = late ? beat->due_ns : beat->since_ns;
}

/* Of libuv's waits only the begin is stamped. One that is over is not counted yet; returns its
 * length. */
static lw_ns
see_uv(lw_slot *slot, lw_beat *beat, lw_ns now_ns)
{
    lw_ns since_ns = beat->since_ns;
    lw_uv_look(slot, beat, now_ns);
    bool over = beat->phase == LW_PHASE_BUSY && beat->since_ns > since_ns;
    return over ? beat->since_ns - since_ns : 0;
}

typedef enum lw_seen {
    LW_SEEN,        /* what was read belongs together... */
    LW_SEEN_HURRY,  /* ...but for a turn or two that ended meanwhile */
    LW_SEEN_NOTHING /* the writer lost its CPU in the middle */
} lw_seen;

static lw_seen
see(lw_slot *slot, lw_beat *beat, lw_span *span)
{
    if (!lw_cell_read(&slot->cell, beat)) {
        return LW_SEEN_NOTHING;
    }
    lw_beat after;
    const lw_beat before = *beat;
    lw_ns waited_ns = 0;
    if (beat->phase == LW_PHASE_WAIT && slot->pulse == LW_PULSE_HEARTBEAT) {
        see_heartbeat(beat, span->end_ns);
    }
    else if (beat->phase == LW_PHASE_WAIT && slot->pulse == LW_PULSE_UV) {
        waited_ns = see_uv(slot, beat, span->end_ns);
    }
    lw_span_count(slot, span);
    span->before.idle_ns += waited_ns;
    bool same = lw_cell_read(&slot->cell, &after) && after.turn == before.turn &&
                after.phase == before.phase;
    return same ? LW_SEEN : LW_SEEN_HURRY;
}

bool
lw_span_open(lw_slot *slot, lw_ns now_ns, lw_ns not_before_ns, lw_span *span)
{
    lw_thread thread;
    lw_beat beat = {0};
    bool runs = lw_slot_active(slot) && !lw_pulse_forked(slot);
    *span = (lw_span){
        .end_ns = later(now_ns, not_before_ns),
        .ident = lw_slot_thread(slot, &thread) ? thread.ref.ident : 0,
    };
    lw_seen seen = LW_SEEN_HURRY;
    for (int tries = 0; tries < TRIES_MAX && seen == LW_SEEN_HURRY; tries++) {
        seen = see(slot, &beat, span);
    }
    if (!runs) { /* the loop is not watched any more, or not in this process: its last beat is all */
        span->begin_ns = span->end_ns = later(beat.since_ns, not_before_ns);
        return true;
    }
    span->phase = beat.phase;
    span->begin_ns = beat.since_ns;
    span->end_ns = later(span->end_ns, beat.since_ns);
    return seen != LW_SEEN_NOTHING;
}
