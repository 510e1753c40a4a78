/* The desk at which one thread at a time asks the watchdog: ask.h has its states. */
#include "ask.h"

#include <stdlib.h>

#include "park.h"
#include "profile/profile.h"
#include "report/report.h"
#include "watchdog.h"

#define ANSWER_BYTES ((size_t)512 << 10)
#define RETRY_NS LW_NS_PER_MS /* between two tries to be the one who asks */

enum ask_state { IDLE = 0, CLAIMED, ASKED, ANSWERING, ANSWERED };

static struct {
    _Atomic uint32_t state;
    lw_park park;        /* the asker sleeps here */
    lw_slot *slot;       /* written while CLAIMED, read while ANSWERING... */
    lw_record_kind kind; /* ...this too... */
    lw_threads wanted;   /* ...and these: of a CAPTURE */
    bool found;          /* written while ANSWERING, read while ANSWERED */
    char *answer;
    lw_capture *stacks; /* the watchdog's, while ANSWERING */
} desk;

bool
lw_ask_setup(void)
{
    if (!desk.answer) {
        desk.answer = malloc(ANSWER_BYTES);
    }
    if (!desk.stacks) {
        desk.stacks = calloc(1, sizeof *desk.stacks);
    }
    return desk.answer && desk.stacks;
}

void
lw_ask_forget(void)
{
    atomic_store_explicit(&desk.state, IDLE, memory_order_relaxed);
}

static bool
move(enum ask_state from, enum ask_state to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong_explicit(&desk.state, &expected, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static bool
wait_for_answer(lw_ns deadline_ns)
{
    for (;;) {
        uint32_t seen = lw_park_seen(&desk.park);
        if (atomic_load_explicit(&desk.state, memory_order_acquire) == ANSWERED) {
            return true;
        }
        if (lw_now_ns() >= deadline_ns) {
            /* Not taken yet: withdrawn. Taken: it is being written, which is a matter of
             * microseconds. */
            if (move(ASKED, IDLE)) {
                return false;
            }
            deadline_ns = lw_now_ns() + RETRY_NS;
        }
        lw_park_wait(&desk.park, seen, deadline_ns);
    }
}

static const lw_record *
ask(lw_slot *slot, lw_record_kind kind, const lw_threads *wanted, lw_ns timeout_ns)
{
    lw_ns deadline_ns = lw_now_ns() + timeout_ns;
    while (!move(IDLE, CLAIMED)) {
        if (lw_now_ns() >= deadline_ns) {
            return NULL;
        }
        lw_park_wait(&desk.park, lw_park_seen(&desk.park), lw_now_ns() + RETRY_NS);
    }
    desk.slot = slot;
    desk.kind = kind;
    desk.wanted = *wanted;
    atomic_store_explicit(&desk.state, ASKED, memory_order_release);
    lw_watchdog_wake();
    if (!wait_for_answer(deadline_ns)) {
        return NULL;
    }
    if (!desk.found) {
        lw_ask_done();
        return NULL;
    }
    return (const lw_record *)(const void *)desk.answer;
}

const lw_record *
lw_ask(lw_slot *slot, lw_record_kind kind, lw_ns timeout_ns)
{
    static const lw_threads none;
    return ask(slot, kind, &none, timeout_ns);
}

const lw_record *
lw_ask_stacks(lw_slot *slot, const lw_threads *wanted, lw_ns timeout_ns)
{
    return wanted->n ? ask(slot, LW_RECORD_CAPTURE, wanted, timeout_ns) : NULL;
}

void
lw_ask_done(void)
{
    atomic_store_explicit(&desk.state, IDLE, memory_order_release);
}

/* An account that does not fit goes to the reporter, and the asker gets what is left of it:
 * nothing. */
static void
report_account(lw_eye *eye, lw_slot *slot, lw_ns now_ns, lw_report *report)
{
    lw_profile_drain_slow(eye, slot); /* a turn may have ended since the visit */
    lw_profile_report(slot, desk.kind, now_ns, report);
    if (lw_record_measure(eye->writer, report, eye->snapper) > ANSWER_BYTES) {
        lw_profile_flush(eye, slot);
        lw_profile_report(slot, desk.kind, now_ns, report);
    }
}

/* What was asked for, in `report`; `steps` is its memory. */
static bool
find(lw_eye *eye, lw_ns now_ns, lw_step_time steps[LW_STEPS_MAX], lw_report *report)
{
    switch (desk.kind) {
    case LW_RECORD_PROFILE:
    case LW_RECORD_SLOW:
        report_account(eye, desk.slot, now_ns, report);
        return true;
    case LW_RECORD_CAPTURE:
        return lw_stacks_look(eye, desk.slot, &desk.wanted, desk.stacks, report);
    case LW_RECORD_ENDED:
    case LW_RECORD_LOOK:
    case LW_RECORD_ONGOING:
        break;
    }
    return lw_report_current(eye, desk.slot, now_ns, steps, report);
}

static bool
answer(lw_eye *eye)
{
    lw_ns now_ns = lw_now_ns();
    lw_step_time steps[LW_STEPS_MAX];
    lw_report report;
    if (!lw_slot_active(desk.slot) || !find(eye, now_ns, steps, &report) ||
        lw_record_measure(eye->writer, &report, eye->snapper) > ANSWER_BYTES) {
        return false;
    }
    lw_record_write(eye->writer, &report, eye->snapper, desk.answer);
    if (desk.kind == LW_RECORD_PROFILE || desk.kind == LW_RECORD_SLOW) {
        lw_profile_taken(desk.slot, desk.kind, now_ns);
    }
    return true;
}

void
lw_ask_serve(lw_eye *eye)
{
    if (atomic_load_explicit(&desk.state, memory_order_relaxed) != ASKED ||
        !move(ASKED, ANSWERING)) {
        return;
    }
    desk.found = answer(eye);
    atomic_store_explicit(&desk.state, ANSWERED, memory_order_release);
    lw_park_wake(&desk.park);
}
