/* The writer of the status page (page.h): the watchdog, natively, so that the page tells of a stall
 * also where the GIL is never free, and after a SIGKILL.
 *
 * It writes where something has changed, at most LW_STATUS_EVERY_NS apart, and wakes for that alone
 * once after the last change: an idle process writes nothing. One page for the process.
 */
#ifndef LW_STATUS_H
#define LW_STATUS_H

#include <stdbool.h>

#include "watch/look.h"

#define LW_STATUS_EVERY_NS (250 * LW_NS_PER_MS)

/* --- any thread --- */

/* From now on the page is this descriptor's file; -1: there is none. Without the GIL: waits until the
 * watchdog has a duplicate. False where it did not take one in time, and it never will, since the
 * number may be another file's as soon as the caller closes it: then there is no page, which the
 * watchdog may learn later. One caller at a time. */
bool lw_status_use(int fd, lw_ns timeout_ns);

/* The watchdog has the page that was asked for last; not any more where the thread has ended. */
bool lw_status_writes(void);

/* How often a page could not be written. */
uint64_t lw_status_failed(void);

/* In a forked child: the page is the parent's. Async-signal-safe. */
void lw_status_forget(void);

/* --- the watchdog --- */

/* After its looks, of which the next is due at next_ns: writes what is due; returns when to wake. */
lw_ns lw_status_visit(lw_eye *eye, lw_ns next_ns);

/* The thread ends: what it leaves says so. */
void lw_status_end(lw_eye *eye);

#endif
