/* What every pulse calls: the loop thread's side of the beat cell.
 *
 * All functions here run on the loop thread, in its hot path, with or without the GIL; none takes a
 * lock, allocates or touches a Python object. On a slot that is no longer ACTIVE they still only
 * write the slot's own memory, which is harmless. A turn that ends after the threshold is handed
 * over and the watchdog woken (a futex, only then).
 *
 *   lw_pulse_run_begin   the loop starts to run: busy from now on, no wait before it
 *   lw_pulse_wait        the busy time ends, the selector is called; due_ns is when it was asked to
 *                        come back at the latest (LW_NS_NEVER: only for an event)
 *   lw_pulse_back        the kernel's wait returned, before the GIL is asked for: busy from now on
 *   lw_pulse_gil         the GIL is back after waited_ns (turn pulse only; others never call it)
 *   lw_pulse_run_end     the loop stops running: the busy time ends, nothing follows
 *   lw_pulse_turns       (uv) finished turns in one go: idle until begin, busy until now, a wait
 *   lw_pulse_beat        (heartbeat) the timer fired; the next is due at due_ns
 *
 * run_begin while busy or waiting (a run whose end was missed, because it was installed in the
 * middle of it) ends what went before. wait/back/beat on an OFF cell begin a run (installed while
 * the loop was in its selector).
 */
#ifndef LW_PULSE_H
#define LW_PULSE_H

#include "slot.h"

void lw_pulse_run_begin(lw_slot *slot, lw_ns now_ns);
void lw_pulse_wait(lw_slot *slot, lw_ns now_ns, lw_ns due_ns);
void lw_pulse_back(lw_slot *slot, lw_ns now_ns);
void lw_pulse_gil(lw_slot *slot, lw_ns waited_ns);
void lw_pulse_run_end(lw_slot *slot, lw_ns now_ns);

/* `n` turns that followed each other without a wait, of which only the sum is known: n - 1 of them
 * count as `each_ns`, one as the rest. */
void lw_pulse_turns(lw_slot *slot, uint32_t n, lw_ns each_ns, lw_ns begin_ns, lw_ns now_ns,
                    lw_ns due_ns);
void lw_pulse_beat(lw_slot *slot, lw_ns now_ns, lw_ns due_ns);

/* With the GIL, on the loop thread, before the first of the above and whenever the loop may have
 * changed threads: notes this thread in slot->thread; cheap when it is the same as last time. -1
 * with an exception set. */
int lw_pulse_bind(lw_slot *slot);

/* True on the first call in a forked child: the caller must re-arm with the GIL (lw_process_rearm,
 * process.h). */
bool lw_pulse_forked(const lw_slot *slot);

#endif
