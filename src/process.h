/* The process around the watchdog: its forks.
 *
 * A fork copies only the forking thread: in the child there is no watchdog and no reporter. The
 * child handler of pthread_atfork only counts lw_fork_generation up and forgets the threads, so a
 * child that execs pays nothing. The first hook that a watched loop calls in the child sees the new
 * generation and re-arms.
 */
#ifndef LW_PROCESS_H
#define LW_PROCESS_H

#include "slot.h"

extern _Atomic uint64_t
    lw_fork_generation; /* relaxed; written in the child handler, before other threads exist */

/* Once per process; idempotent. */
void lw_process_setup(void);

/* With the GIL, on the loop thread, when slot->fork_generation is old: starts the watchdog and the
 * reporter anew in this process. -1 with an exception set; the slot is retired then, so that it is
 * asked once (the caller reports the exception as unraisable and the loop goes on unwatched). */
int lw_process_rearm(lw_slot *slot);

#endif
