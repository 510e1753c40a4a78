/* The two accounts of a loop, and their way to the reporter: profile.h. */
#include "profile.h"

#include <stdlib.h>

#include "process.h"
#include "report/report.h"

#define RELAXED memory_order_relaxed
lw_profile *
lw_profile_new(void)
{
    lw_profile *profile = calloc(1, sizeof *profile);
    if (profile) {
        lw_profile_reset(profile);
    }
    return profile;
}

void
lw_profile_reset(lw_profile *profile)
{
    profile->next_ns = 0;
    profile->asked = 0;
    profile->lost = 0;
    profile->lost_ns = 0;
    profile->sampled.sequence = profile->slow.sequence = 0;
    lw_ns now_ns = lw_now_ns();
    lw_tally_begin(&profile->sampled, now_ns);
    lw_tally_begin(&profile->slow, now_ns);
}

/* --- the way out --- */

static lw_tally *
tally_of(lw_slot *slot, lw_record_kind kind)
{
    return kind == LW_RECORD_SLOW ? &slot->profile->slow : &slot->profile->sampled;
}

void
lw_profile_report(lw_slot *slot, lw_record_kind kind, lw_ns now_ns, lw_report *report)
{
    lw_tally *tally = tally_of(slot, kind);
    lw_tally_settle(tally);
    *report = (lw_report){
        .kind = kind,
        .slot = slot,
        .id = tally->sequence + 1,
        .begin_ns = tally->begin_ns,
        .end_ns = now_ns > tally->begin_ns ? now_ns : tally->begin_ns,
        .capture = &tally->capture,
        .parts = tally->capture.n_samples ? tally->parts : NULL,
        .counts = tally->counts,
        .worst_ns = tally->worst_ns,
        .totals = {.gc_generation = -1, .callbacks = -1, .syscall = -1},
    };
}

void
lw_profile_taken(lw_slot *slot, lw_record_kind kind, lw_ns now_ns)
{
    lw_tally *tally = tally_of(slot, kind);
    tally->sequence++;
    lw_tally_begin(tally, now_ns);
}

static void
send(lw_eye *eye, lw_slot *slot, lw_record_kind kind)
{
    lw_report report;
    lw_ns now_ns = lw_now_ns();
    if (!tally_of(slot, kind)->capture.n_samples) {
        return;
    }
    lw_profile_report(slot, kind, now_ns, &report);
    if (lw_report_send(eye, slot, &report)) {
        lw_profile_taken(slot, kind, now_ns);
    }
    else { /* counted: the sequence has no hole */
        lw_tally_begin(tally_of(slot, kind), now_ns);
    }
}

void
lw_profile_add(lw_eye *eye, lw_slot *slot, lw_record_kind kind, const lw_sight *sight,
               const lw_portion *portion)
{
    lw_tally *tally = tally_of(slot, kind);
    lw_tally_add(tally, sight, portion);
    if (lw_tally_full(tally)) {
        send(eye, slot, kind);
    }
}

void
lw_profile_flush(lw_eye *eye, lw_slot *slot)
{
    send(eye, slot, LW_RECORD_PROFILE);
    send(eye, slot, LW_RECORD_SLOW);
}

/* A slot that was inherited over a fork is not ours before it is re-armed, and is empty then. */
void
lw_profile_flush_all(lw_eye *eye)
{
    for (lw_slot *slot = lw_slot_first(); slot; slot = atomic_load_explicit(&slot->next, RELAXED)) {
        if (lw_slot_active(slot) && atomic_load_explicit(&slot->fork_generation, RELAXED) ==
                                        atomic_load_explicit(&lw_fork_generation, RELAXED)) {
            lw_profile_flush(eye, slot);
        }
    }
}
