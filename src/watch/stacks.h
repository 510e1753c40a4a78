/* Where other threads than a loop's stand: the workers of a thread pool that is full.
 *
 * Asked of the watchdog (ask.h), which alone may use the snapper. The threads are found by their
 * idents in the interpreter's list of thread states, read as everything foreign is: one that is not
 * there, or ends meanwhile, is left out.
 */
#ifndef LW_STACKS_H
#define LW_STACKS_H

#include "look.h"

#define LW_STACKS_MAX LW_HOLDERS_MAX /* threads that are looked at for one question */

typedef struct lw_threads {
    uintptr_t interpreter; /* PyInterpreterState* */
    uint32_t n;
    uint64_t idents[LW_STACKS_MAX]; /* threading.get_ident() */
} lw_threads;

/* On the watchdog thread, without the GIL. Fills `capture` with one sample for each thread found:
 * its stack and, as the holder, who it is; and `report`, of kind CAPTURE. False where this slot's
 * frames are not read raw. */
bool lw_stacks_look(lw_eye *eye, lw_slot *slot, const lw_threads *wanted, lw_capture *capture,
                    lw_report *report);

#endif
