/* What a descriptor of the program refers to, in words for a reader: "tcp 127.0.0.1:5432", "pipe",
 * a path.
 *
 * On the watchdog thread, which has a descriptor table of its own: the program's is read through
 * the loop thread's files in /proc, its sockets through a copy of the descriptor (fdtable.h).
 * Without the GIL; nothing allocates or waits. Linux only; there is no portable twin, since only
 * call_target_linux.c asks.
 */
#ifndef LW_DESCRIPTOR_TEXT_H
#define LW_DESCRIPTOR_TEXT_H

#include <sys/socket.h>

#include "thread_files.h"
#include "watch/fdtable.h"

/* "" where the program has no such descriptor, or /proc is hidden. A path, or the name of a socket,
 * as its bytes are. */
void lw_descriptor_text(pid_t tid, const lw_fdtable *fds, int fd, char out[LW_TARGET_MAX]);

/* As it, of a socket that is to reach this address (connect, sendto): the address takes the place
 * of the peer's. */
void lw_descriptor_text_to(pid_t tid, const lw_fdtable *fds, int fd,
                           const struct sockaddr_storage *address, socklen_t length,
                           char out[LW_TARGET_MAX]);

#endif
