/* Whether a debugger is attached to the process: a stop in it is no stall. tracer_linux.c reads
 * TracerPid in /proc/self/status through a descriptor that was opened when the watchdog started;
 * elsewhere nobody can tell. */
#ifndef LW_TRACER_H
#define LW_TRACER_H

#include <stdbool.h>

/* On the watchdog thread, in its descriptor table; -1 where there is no such file. */
int lw_tracer_open(void);
bool lw_tracer_attached(int status_fd);

#endif
