/* Text of an ongoing stall, made without Python: dump.h. */
#include "dump.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "text.h"
#include "watch/look.h"

#define CHUNK 4096
#define TEXT_MAX (64 * 1024)

static char the_bytes[TEXT_MAX]; /* the watchdog's, alone */

static void
say_culprit(lw_text *text, const lw_blame *blame)
{
    lw_say(text, "  culprit: %s (%s:%" PRId32 ")", blame->code->qualname, blame->code->filename,
           blame->lineno);
    if (blame->task) {
        lw_say(text, " in task %s (%s)", blame->task_name[0] ? blame->task_name : "?",
               blame->task->coroutine);
    }
    lw_say(text, "\n");
}

static void
say_stall(lw_text *text, const lw_report *report, const lw_snapper *snapper)
{
    lw_thread thread;
    bool known = lw_slot_thread(report->slot, &thread);
    lw_say(text, "loopwatch: the event loop of thread \"%s\" (%d) has not come back for ",
           known ? thread.name : "?", known ? (int)thread.ref.tid : 0);
    lw_say_seconds(text, report->end_ns - report->begin_ns);
    lw_say(text, "; it still goes on, and its report could not be delivered\n  stall %" PRIu64 "\n",
           report->id);
    if (!report->capture->n_samples) {
        return;
    }
    lw_blame blame;
    lw_blame_find(report, snapper, &blame);
    lw_say(text, "  verdict so far: %s (", lw_cause_name(blame.verdict));
    lw_say_causes(text, &blame.sum);
    lw_say(text, ")\n");
    if (blame.shown == LW_SAMPLES_MAX) {
        lw_say(text, "  culprit: no frame could be read\n");
        return;
    }
    if (blame.code) {
        say_culprit(text, &blame);
    }
    lw_say_stacks(text, report, snapper, &blame);
}

/* --- writing --- */

static bool
has_room(int fd)
{
    struct pollfd asked = {.fd = fd, .events = POLLOUT};
    return poll(&asked, 1, 0) == 1 && (asked.revents & POLLOUT) &&
           !(asked.revents & (POLLERR | POLLNVAL));
}

static bool
write_all(int fd, const char *bytes, size_t length)
{
    while (length) {
        if (!has_room(fd)) {
            return false;
        }
        ssize_t n = write(fd, bytes, length < CHUNK ? length : CHUNK);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        bytes += n;
        length -= (size_t)n;
    }
    return true;
}

bool
lw_dump_write(const lw_fdtable *fds, int fd, const lw_report *report, const lw_snapper *snapper)
{
    lw_text text = {.bytes = the_bytes, .room = TEXT_MAX};
    say_stall(&text, report, snapper);
    int to = fd == LW_DUMP_STDERR ? lw_fdtable_adopt(fds, STDERR_FILENO) : fd;
    bool written = to >= 0 && write_all(to, text.bytes, text.length);
    if (fd == LW_DUMP_STDERR && to >= 0) {
        close(to);
    }
    return written;
}

void
lw_dump_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}
