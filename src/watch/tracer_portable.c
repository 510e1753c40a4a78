/* Nobody can tell whether a debugger is attached: tracer.h. Twin: tracer_linux.c. */
#include "tracer.h"

#if !defined(__linux__) || defined(LW_PORTABLE)

int
lw_tracer_open(void)
{
    return -1;
}

bool
lw_tracer_attached(int status_fd)
{
    (void)status_fd;
    return false;
}

#endif
