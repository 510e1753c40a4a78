/* Named steps inside a callback (loopwatch.step): the process's table of names, and where each
 * thread's steps go.
 *
 * The table only grows. A name is immutable once it is published, so it is read without a lock or
 * the GIL. Programs name a handful of steps; the last of LW_STEP_NAMES_MAX names is followed by
 * "other" for all that come later.
 */
#ifndef LW_STEPS_H
#define LW_STEPS_H

#include "slot.h"

#define LW_STEP_NAMES_MAX 256 /* names of a process, "other" among them */
#define LW_STEP_NAME_MAX 200  /* bytes kept of a name, cut at a character */
#define LW_STEP_OTHER                                                                              \
    0u /* index of "other": what found the table, or a turn's list of steps, full */

/* --- names --- */

/* The index of a name of `length` bytes of UTF-8 without NUL; adds it where it is new. Any thread;
 * takes no lock. */
uint32_t lw_step_index(const char *name, size_t length);

/* Static, never NULL; "other" for an index that is not there. Any thread, no GIL. */
const char *lw_step_name(uint32_t index);

/* --- the loop of a thread --- */

/* The slot that the calling thread's steps are written to. The key tells a slot that was
 * reused since. */
typedef struct lw_step_scope {
    lw_slot *slot;
    uint64_t key;
} lw_step_scope;

/* The loop of `slot` runs on this thread from now on; returns what to give to lw_step_scope_leave()
 * when its run ends. A watch that is installed in the middle of a run enters and does not leave. */
lw_step_scope lw_step_scope_enter(lw_slot *slot);
void lw_step_scope_leave(lw_step_scope outer);

/* As it is now, for lw_step_scope_leave(). */
lw_step_scope lw_step_scope_here(void);

/* The slot of the loop that runs here and is watched, or NULL. */
lw_slot *lw_step_scope_slot(void);

/* --- the steps of a turn; the loop thread --- */

/* One entry into a step, kept by whoever entered it until it leaves. */
typedef struct lw_step_entry {
    lw_slot *slot; /* NULL: entered where no watched loop ran */
    uint64_t turn;
    lw_ns begin_ns;
} lw_step_entry;

lw_step_entry lw_steps_enter(uint32_t name, lw_ns now_ns);

/* Of a step that was entered in an earlier turn, only the time since this turn began counts. A step
 * inside one of the same name counts with the outer one. */
void lw_steps_leave(uint32_t name, const lw_step_entry *entry, lw_ns now_ns);

/* --- reading; any thread, no GIL --- */

/* The time of each step in the turn so far, open ones until now_ns, each at most now_ns - begin_ns.
 * Returns how many; 0 where the steps are another turn's, or became so during the copy. `out` has
 * room for LW_STEPS_MAX. Allocates nothing. */
uint32_t lw_steps_collect(lw_slot *slot, uint64_t turn, lw_ns begin_ns, lw_ns now_ns,
                          lw_step_time *out);

#endif
