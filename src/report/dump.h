/* The report that needs nobody: written by the watchdog as text where the reporter cannot take it.
 *
 * On the watchdog thread, without the GIL, from a fixed buffer. It never waits for a reader: a
 * descriptor is polled for room before each write of at most 4096 bytes (PIPE_BUF), and O_NONBLOCK
 * is not set, because the open file is shared with the program. What there is no room for is given
 * up and counted.
 */
#ifndef LW_DUMP_H
#define LW_DUMP_H

#include <stdbool.h>

#include "frames/snapshot.h"
#include "record.h"
#include "watch/fdtable.h"

/* `fd`: LW_DUMP_STDERR, or a descriptor of the watchdog's own table; `report`: of the stall that
 * goes on, judged. False where not all of it was written. */
bool lw_dump_write(const lw_fdtable *fds, int fd, const lw_report *report,
                   const lw_snapper *snapper);

/* Closes an adopted descriptor; nothing for LW_DUMP_*. */
void lw_dump_close(int fd);

#endif
