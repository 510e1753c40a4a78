/* The profile of a loop: where its busy time goes, also where no turn is long enough for a stall.
 *
 * Two accounts, kept apart so that one does not bias the other. `sampled`: looks at random moments
 * (pace.h) at which the loop was busy; each stands for one mean gap of busy time. `slow`: turns
 * longer than a quarter of the threshold and shorter than the threshold, with what the watchdog saw
 * of them anyway on its way to a stall, and the duration that the loop's own stamps say.
 *
 * Everything here runs on the watchdog thread, without the GIL, and touches no Python object;
 * lw_profile_new and lw_profile_reset excepted, which an installer calls while the watchdog does
 * not look. The accounts go to the reporter when they are full (tally.h), or to whoever asks
 * (watch/ask.h).
 */
#ifndef LW_PROFILE_H
#define LW_PROFILE_H

#include "tally.h"
#include "watch/look.h"

typedef struct lw_profile {
    lw_ns next_ns;  /* when the next look is due; 0: to be drawn */
    uint64_t asked; /* token of the look that the reporter was asked for (capture="gil"), or 0 */
    uint64_t lost;  /* slow turns that found their ring full, as far as they are accounted for */
    lw_ns lost_ns;
    lw_tally sampled, slow;
} lw_profile;

lw_profile *lw_profile_new(void);
void lw_profile_reset(lw_profile *profile);

/* At each visit of an ACTIVE slot: looks, where that is due and the loop is busy; returns when to
 * come again (the loop waits: when it should be back; its hook wakes us where it is sooner). */
lw_ns lw_profile_visit(lw_eye *eye, lw_slot *slot);

/* Takes the slow turns that have ended into account. Before the capture of a turn that is over is
 * dropped. */
void lw_profile_drain_slow(lw_eye *eye, lw_slot *slot);

/* Adds to the account of that kind, and sends it where that filled it. */
void lw_profile_add(lw_eye *eye, lw_slot *slot, lw_record_kind kind, const lw_sight *sight,
                    const lw_portion *portion);

/* One account as a report of its kind (LW_RECORD_PROFILE, LW_RECORD_SLOW). Whoever has written it
 * begins the account anew with lw_profile_taken. */
void lw_profile_report(lw_slot *slot, lw_record_kind kind, lw_ns now_ns, lw_report *report);
void lw_profile_taken(lw_slot *slot, lw_record_kind kind, lw_ns now_ns);

/* Sends both accounts of a slot, or of all slots, to the reporter, where there is anything in them:
 * the watch ends, or the code cache that they refer to is to be flushed. */
void lw_profile_flush(lw_eye *eye, lw_slot *slot);
void lw_profile_flush_all(lw_eye *eye);

#endif
