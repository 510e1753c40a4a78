/* The watchdog inside one slot at a time, and others who wait until it is out.
 *
 * Between enter and leave nobody frees what the slot's pulse_data points to, and a slot that is let
 * go is not given to another loop.
 */
#ifndef LW_VISIT_H
#define LW_VISIT_H

#include <stdbool.h>

#include "slot.h"

/* On the watchdog thread: false where the slot is not watched, or not in this process; then too
 * lw_visit_over() must follow. */
bool lw_visit_enter(lw_slot *slot);
void lw_visit_over(void);

/* Any other thread, without the GIL: waits until the watchdog is not inside this slot. Whoever frees
 * what the slot's pulse_data points to clears slot->refine first and then calls this; a visit takes
 * well under a millisecond. */
void lw_visit_await_over(lw_slot *slot);

/* In a forked child: nobody is inside. Async-signal-safe. */
void lw_visit_forget(void);

#endif
