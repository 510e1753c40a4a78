/* What all looks of one watchdog share, from its making to its end: look.h. */
#include "look.h"

#include <fcntl.h>
#include <unistd.h>

#include "observe.h"
#include "tracer.h"

bool
lw_eye_setup(lw_eye *eye, bool snapper_wanted)
{
    eye->status_fd = -1;
    eye->writer = lw_record_writer_new();
    eye->snapper = snapper_wanted ? lw_snapper_new(&eye->reader) : NULL;
    return eye->writer && (eye->snapper || !snapper_wanted);
}

void
lw_eye_free(lw_eye *eye)
{
    if (eye->snapper) {
        lw_snapper_free(eye->snapper);
    }
    lw_record_writer_free(eye->writer);
}

void
lw_eye_open(lw_eye *eye)
{
    lw_fdtable_unshare(&eye->fds);
    int mem_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    lw_reader_open(&eye->reader, eye->fds.own, mem_fd);
    if (mem_fd >= 0 && eye->reader.fd != mem_fd) {
        close(mem_fd);
    }
    eye->status_fd = lw_tracer_open();
    lw_observe_open(eye);
    eye->random = (uint32_t)lw_now_ns();
}

void
lw_eye_close(lw_eye *eye)
{
    lw_observe_close(eye);
    lw_reader_close(&eye->reader);
    if (eye->status_fd >= 0) {
        close(eye->status_fd);
    }
    lw_fdtable_close(&eye->fds);
}
