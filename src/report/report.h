/* What the watchdog says of a loop: records for the reporter, and the dump where the reporter does
 * not take them.
 *
 * On the watchdog thread, without the GIL, for the slot that it is looking at.
 */
#ifndef LW_REPORT_H
#define LW_REPORT_H

#include "watch/look.h"

/* Forgets the capture of the turn that went on. */
void lw_report_drop(lw_eye *eye, lw_look *look);

/* The last word on a stall; its capture, where there is one, ends with it. Counted instead, where
 * the turn is exempt or a debugger is to blame. */
void lw_report_ended(lw_eye *eye, lw_slot *slot, const lw_ended *ended);

/* The stall that goes on, as a report of kind ONGOING; false where there is none to speak of.
 * `steps` is its memory. */
bool lw_report_current(lw_eye *eye, lw_slot *slot, lw_ns now_ns, lw_step_time steps[LW_STEPS_MAX],
                       lw_report *report);

/* Sends that report as an urgent one; the next is due at ten times the age. */
void lw_report_ongoing(lw_eye *eye, lw_slot *slot, lw_ns now_ns);

/* Nobody took the urgent report in time (the GIL is held, or a sink is stuck): writes it to
 * dump_to. */
void lw_report_dump(lw_eye *eye, lw_slot *slot, lw_ns now_ns);

/* Any record; counted where the outbox has no room, then false. */
bool lw_report_send(lw_eye *eye, lw_slot *slot, const lw_report *report);

#endif
