/* Whether a debugger is attached, from TracerPid in /proc/self/status: tracer.h. Twin:
 * tracer_portable.c. */
#include "tracer.h"

#if defined(__linux__) && !defined(LW_PORTABLE)

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int
lw_tracer_open(void)
{
    return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
}

bool
lw_tracer_attached(int status_fd)
{
    char text[1024]; /* TracerPid is among the first ten lines */
    ssize_t n = status_fd < 0 ? -1 : pread(status_fd, text, sizeof text - 1, 0);
    if (n <= 0) {
        return false;
    }
    text[n] = '\0';
    const char *key = "\nTracerPid:";
    const char *found = strstr(text, key);
    if (!found) {
        return false;
    }
    found += strlen(key);
    found += strspn(found, " \t");
    return *found >= '1' && *found <= '9';
}

#endif
