/* The loop thread's side of the beat cell: pulse.h says who calls what when.
 *
 * Why a sequence lock of atomics: the watchdog must see phase, turn and times that belong together,
 * and the loop thread may not wait for it. Each field is stored with release order after the odd
 * sequence number and loaded with acquire order before the number is read again: on x86-64 these
 * are plain moves.
 */
#include "pulse.h"

#include "history/history.h"
#include "process.h"
#include "routes/routes.h"
#include "steps/steps.h"
#include "watch/schedule.h"
#include "watch/watchdog.h"

#define RELAXED memory_order_relaxed
#define GIL_WAIT_NOTED_NS (100 * LW_NS_PER_US) /* shorter ones do not show in a stall */

/* What the cell holds. The loop thread wrote it itself, so that no order is needed. */
static inline lw_beat
beat_of(lw_slot *slot)
{
    lw_cell *cell = &slot->cell;
    return (lw_beat){
        .turn = atomic_load_explicit(&cell->turn, RELAXED),
        .phase = (lw_phase)atomic_load_explicit(&cell->phase, RELAXED),
        .since_ns = atomic_load_explicit(&cell->since_ns, RELAXED),
        .due_ns = atomic_load_explicit(&cell->due_ns, RELAXED),
    };
}

static inline void
write_beat(lw_slot *slot, uint64_t turn, lw_phase phase, lw_ns since_ns, lw_ns due_ns)
{
    lw_cell *cell = &slot->cell;
    uint32_t sequence = atomic_load_explicit(&cell->sequence, RELAXED);
    atomic_store_explicit(&cell->sequence, sequence + 1, RELAXED);
    atomic_store_explicit(&cell->turn, turn, memory_order_release);
    atomic_store_explicit(&cell->phase, phase, memory_order_release);
    atomic_store_explicit(&cell->since_ns, since_ns, memory_order_release);
    atomic_store_explicit(&cell->due_ns, due_ns, memory_order_release);
    atomic_store_explicit(&cell->sequence, sequence + 2, memory_order_release);
}

/* Gives a stall to the watchdog, with what only the loop thread knows of its turn. */
static void
hand_over(lw_slot *slot, uint64_t turn, lw_ns begin_ns, lw_ns end_ns, bool overdue)
{
    lw_ended_ring *ring = &slot->ended;
    uint32_t head = atomic_load_explicit(&ring->head, RELAXED);
    if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) == LW_ENDED_MAX) {
        lw_count(&ring->dropped, 1);
    }
    else {
        lw_ended *ended = &ring->entries[head % LW_ENDED_MAX];
        ended->turn = turn;
        ended->begin_ns = begin_ns;
        ended->end_ns = end_ns;
        ended->overdue = overdue;
        ended->exempt = atomic_load_explicit(&slot->exempt_turn, RELAXED) == turn;
        ended->n_steps = lw_steps_collect(slot, turn, begin_ns, end_ns, ended->steps);
        lw_routes_collect(slot, turn, begin_ns, end_ns, &ended->routes);
        atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    }
    lw_watchdog_wake();
}

/* A turn that is no stall, but slow: the watchdog has looked at it and comes back by itself. */
static void
note_slow(lw_slot *slot, uint64_t turn, lw_ns begin_ns, lw_ns end_ns)
{
    lw_slow_ring *ring = &slot->slow;
    uint32_t head = atomic_load_explicit(&ring->head, RELAXED);
    if (atomic_load_explicit(&slot->exempt_turn, RELAXED) == turn) {
        return;
    }
    if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) == LW_SLOW_MAX) {
        lw_count(&ring->lost, 1);
        lw_count(&ring->lost_ns, end_ns - begin_ns);
        return;
    }
    ring->entries[head % LW_SLOW_MAX] = (lw_slow_turn){turn, begin_ns, end_ns};
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

static void
note_long(lw_slot *slot, const lw_beat *beat, lw_ns begin_ns, lw_ns now_ns)
{
    if (now_ns - begin_ns >= lw_slot_threshold_ns(slot)) {
        hand_over(slot, beat->turn, begin_ns, now_ns, begin_ns < beat->since_ns);
    }
    else {
        note_slow(slot, beat->turn, begin_ns, now_ns);
    }
}

static inline void
check_length(lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    lw_ns threshold_ns = lw_slot_threshold_ns(slot);
    lw_ns begin_ns = lw_beat_begin_ns(beat, threshold_ns);
    if (now_ns - begin_ns >= lw_slow_ns(threshold_ns)) {
        note_long(slot, beat, begin_ns, now_ns);
    }
}

/* Before what began at begin_ns and ends at now_ns is counted. */
static inline void
pass(lw_slot *slot, lw_phase phase, lw_ns begin_ns, lw_ns now_ns)
{
    if (now_ns >= atomic_load_explicit(&slot->second_end_ns, RELAXED)) {
        lw_history_pass(slot, phase, begin_ns, now_ns);
    }
}

/* After a turn of that length was counted. */
static inline void
note_worst(lw_slot *slot, lw_ns busy_ns)
{
    if (busy_ns > atomic_load_explicit(&slot->worst_ns, RELAXED)) {
        atomic_store_explicit(&slot->worst_ns, busy_ns, RELAXED);
    }
}

/* The turn `beat` is over at now_ns. */
static inline void
end_busy(lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    lw_ns busy_ns = now_ns - beat->since_ns;
    pass(slot, LW_PHASE_BUSY, beat->since_ns, now_ns);
    lw_histogram_add(&slot->histogram, busy_ns, 1);
    lw_count(&slot->turns, 1);
    note_worst(slot, busy_ns);
    check_length(slot, beat, now_ns);
}

/* The loop is busy since now_ns: the watchdog shall look at its first sampling point. */
static inline void
call_watchdog(lw_slot *slot, lw_ns now_ns)
{
    lw_watchdog_unpark(now_ns + lw_first_point_ns(lw_slot_threshold_ns(slot)));
}

/* A wait that ends without a busy time after it: a heartbeat, or the end of a run. */
static inline void
end_overdue(lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    lw_ns threshold_ns = lw_slot_threshold_ns(slot);
    if (now_ns > beat->due_ns && now_ns - beat->due_ns >= threshold_ns) {
        hand_over(slot, beat->turn, beat->due_ns, now_ns, true);
    }
    else if (now_ns > beat->due_ns && now_ns - beat->due_ns >= lw_slow_ns(threshold_ns)) {
        note_slow(slot, beat->turn, beat->due_ns, now_ns);
    }
}

static inline void
end_any(lw_slot *slot, const lw_beat *beat, lw_ns now_ns)
{
    if (beat->phase == LW_PHASE_BUSY) {
        end_busy(slot, beat, now_ns);
    }
    else if (beat->phase == LW_PHASE_WAIT) {
        end_overdue(slot, beat, now_ns);
    }
}

void
lw_pulse_run_begin(lw_slot *slot, lw_ns now_ns)
{
    lw_beat beat = beat_of(slot);
    if (beat.phase == LW_PHASE_OFF) {
        pass(slot, LW_PHASE_OFF, beat.since_ns, now_ns);
    }
    end_any(slot, &beat, now_ns);
    atomic_store_explicit(&slot->run_seen, 1, RELAXED);
    write_beat(slot, beat.turn + 1, LW_PHASE_BUSY, now_ns, LW_NS_NEVER);
    call_watchdog(slot, now_ns);
}

void
lw_pulse_wait(lw_slot *slot, lw_ns now_ns, lw_ns due_ns)
{
    lw_beat beat = beat_of(slot);
    if (beat.phase == LW_PHASE_BUSY) {
        end_busy(slot, &beat, now_ns);
    }
    write_beat(slot, beat.turn + 1, LW_PHASE_WAIT, now_ns, due_ns);
}

/* When the wait should have ended at the latest: as asked, or when the watchdog saw an event lie
 * ready. */
static inline lw_ns
due_or_ready_ns(lw_slot *slot, const lw_beat *beat)
{
    if (atomic_load_explicit(&slot->ready_turn, memory_order_acquire) != beat->turn) {
        return beat->due_ns;
    }
    lw_ns ready_ns = atomic_load_explicit(&slot->ready_ns, RELAXED);
    return ready_ns < beat->due_ns ? ready_ns : beat->due_ns;
}

void
lw_pulse_back(lw_slot *slot, lw_ns now_ns)
{
    lw_beat beat = beat_of(slot);
    if (beat.phase != LW_PHASE_WAIT) { /* installed while the loop was in its selector */
        pass(slot, LW_PHASE_OFF, beat.since_ns, now_ns);
        write_beat(slot, beat.turn + 1, LW_PHASE_BUSY, now_ns, LW_NS_NEVER);
        call_watchdog(slot, now_ns);
        return;
    }
    lw_ns waited_ns = now_ns - beat.since_ns;
    pass(slot, LW_PHASE_WAIT, beat.since_ns, now_ns);
    lw_count(&slot->idle_ns, waited_ns);
    write_beat(slot, beat.turn, LW_PHASE_BUSY, now_ns, due_or_ready_ns(slot, &beat));
    /* The watchdog parks only beside loops that have waited this long, so that short waits need not
     * ask. */
    if (waited_ns >= lw_first_point_ns(lw_slot_threshold_ns(slot))) {
        call_watchdog(slot, now_ns);
    }
}

void
lw_pulse_gil(lw_slot *slot, lw_ns waited_ns)
{
    lw_count(&slot->gil_wait_ns, waited_ns);
    if (waited_ns >= GIL_WAIT_NOTED_NS) {
        atomic_store_explicit(&slot->turn_gil_ns, waited_ns, RELAXED);
        atomic_store_explicit(&slot->gil_turn, atomic_load_explicit(&slot->cell.turn, RELAXED),
                              memory_order_release);
    }
}

void
lw_pulse_run_end(lw_slot *slot, lw_ns now_ns)
{
    lw_beat beat = beat_of(slot);
    end_any(slot, &beat, now_ns);
    atomic_store_explicit(&slot->run_seen, 0, RELAXED);
    write_beat(slot, beat.turn + 1, LW_PHASE_OFF, now_ns, LW_NS_NEVER);
}

void
lw_pulse_turns(lw_slot *slot, uint32_t n, lw_ns each_ns, lw_ns begin_ns, lw_ns now_ns, lw_ns due_ns)
{
    lw_beat beat = beat_of(slot);
    if (beat.phase == LW_PHASE_WAIT) {
        if (begin_ns < beat.since_ns || begin_ns > now_ns) { /* two clocks that disagree a little */
            begin_ns = begin_ns > now_ns ? now_ns : beat.since_ns;
        }
        pass(slot, LW_PHASE_WAIT, beat.since_ns, begin_ns);
        lw_count(&slot->idle_ns, begin_ns - beat.since_ns);
        beat.since_ns = begin_ns;
        beat.phase = LW_PHASE_BUSY;
    }
    if (beat.phase == LW_PHASE_BUSY) {
        lw_ns busy_ns = now_ns - beat.since_ns;
        lw_ns others_ns = (n - 1) * each_ns;
        lw_ns rest_ns = busy_ns > others_ns ? busy_ns - others_ns : 0;
        pass(slot, LW_PHASE_BUSY, beat.since_ns, now_ns);
        lw_histogram_add(&slot->histogram, each_ns, n - 1);
        lw_histogram_add(&slot->histogram, rest_ns, 1);
        lw_count(&slot->turns, n);
        note_worst(slot, n > 1 && each_ns > rest_ns ? each_ns : rest_ns);
        check_length(slot, &beat, now_ns);
    }
    write_beat(slot, beat.turn + 1, LW_PHASE_WAIT, now_ns, due_ns);
}

/* A heartbeat that came late: it tells of a long turn, but no turns to count. */
static void
end_late(lw_slot *slot, lw_ns due_ns, lw_ns now_ns)
{
    pass(slot, LW_PHASE_BUSY, due_ns, now_ns);
    lw_histogram_note_max(&slot->histogram, now_ns - due_ns);
    lw_count(&slot->overdue_ns, now_ns - due_ns);
    note_worst(slot, now_ns - due_ns);
}

void
lw_pulse_beat(lw_slot *slot, lw_ns now_ns, lw_ns due_ns)
{
    lw_beat beat = beat_of(slot);
    if (beat.phase != LW_PHASE_BUSY) { /* of the time until it was due nothing is known */
        bool late = beat.phase == LW_PHASE_WAIT && now_ns > beat.due_ns;
        pass(slot, LW_PHASE_OFF, beat.since_ns, late ? beat.due_ns : now_ns);
        if (late) {
            end_late(slot, beat.due_ns, now_ns);
        }
    }
    end_any(slot, &beat, now_ns);
    write_beat(slot, beat.turn + 1, LW_PHASE_WAIT, now_ns, due_ns);
}

bool
lw_pulse_forked(const lw_slot *slot)
{
    return atomic_load_explicit(&slot->fork_generation, RELAXED) !=
           atomic_load_explicit(&lw_fork_generation, RELAXED);
}
