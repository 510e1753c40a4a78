/* One look at a loop's thread through clocks and files, as evidence: everything but its frames.
 *
 * On the watchdog thread, without the GIL; nothing allocates, and what cannot be read is left out
 * (evidence.h).
 */
#ifndef LW_OBSERVE_H
#define LW_OBSERVE_H

#include "look.h"

/* The clocks alone: cheap enough for looks at a loop that is not late (about 5 us). */
void lw_observe_clocks(lw_eye *eye, lw_slot *slot, const lw_thread_ref *thread, lw_evidence *out);

/* Of these only what needs no file: a microsecond. */
void lw_observe_own_clocks(lw_eye *eye, const lw_thread_ref *thread, lw_evidence *out);

/* A turn whose begin nobody saw in time (look->first is of another turn): what is known of it is
 * how long the process had been stopped before the watchdog last woke. */
void lw_observe_unseen_begin(const lw_eye *eye, lw_look *look, uint64_t turn, lw_ns begin_ns);

/* Clocks, where the thread stands, and whether it moves: a few hundred microseconds of waiting
 * where it runs, since moving takes time to be seen. `snapshot` is of the same moment. */
void lw_observe(lw_eye *eye, lw_slot *slot, const lw_thread_ref *thread,
                const lw_snapshot *snapshot, lw_evidence *out);

/* The cheap twin of lw_observe, around a snapshot that is taken in between: about a third of its
 * cost. The clocks and the instruction before, and both again after it, tell whether the thread runs
 * and whether it runs Python. */
typedef struct lw_moment {
    lw_evidence before; /* complete after lw_observe_moment_end */
    uint64_t glance;
} lw_moment;

void lw_observe_moment_begin(lw_eye *eye, const lw_slot *slot, const lw_thread_ref *thread,
                             lw_moment *moment);
void lw_observe_moment_end(lw_eye *eye, lw_slot *slot, const lw_thread_ref *thread,
                           const lw_snapshot *snapshot, lw_moment *moment, lw_evidence *after);

/* The loop was watched from the middle of a run on, whose end no hook sees, and that is over. */
bool lw_observe_no_run(lw_slot *slot, const lw_snapshot *snapshot);

/* The thread that holds the GIL while this one wants it; false where that is not so or cannot be
 * read. */
bool lw_observe_holder(lw_eye *eye, const lw_thread_ref *thread, const lw_evidence *evidence,
                       lw_thread_ref *holder);

/* Around the watchdog's sleep, which is to end at deadline_ns. Time in which it wanted to run and
 * did not, for no other reason than that the process did not run, is added to what the clocks call
 * stopped; a look itself notices likewise. */
void lw_observe_sleep(lw_eye *eye);
void lw_observe_wake(lw_eye *eye, lw_ns deadline_ns, lw_ns now_ns);

/* The watchdog has waited for something of its own, which is not to be taken for a stop. */
void lw_observe_waited(lw_eye *eye);

/* At the watchdog's start and end, on its thread. */
void lw_observe_open(lw_eye *eye);
void lw_observe_close(lw_eye *eye);

#endif
