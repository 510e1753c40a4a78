/* The page's file and when it is written: status.h. */
#include "status.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "note.h"
#include "page.h"
#include "past.h"
#include "watch/observe.h"
#include "watch/watchdog.h"

#define RELAXED memory_order_relaxed
#define NAP_NS (100 * LW_NS_PER_US)

/* A question belongs to who asks until it is ASKED, and to the watchdog while it is TAKING:
 *
 *     IDLE -> (asker) ASKED -> (watchdog) TAKING -> IDLE
 *                       \-> (asker gives up) IDLE  \-> (asker gives up) ABANDONED -> (watchdog) IDLE
 *
 * So who gave up knows that its descriptor is not looked at any more, or that what is made of it
 * is thrown away. */
typedef enum lw_asked { LW_IDLE, LW_ASKED, LW_TAKING, LW_ABANDONED } lw_asked;

/* Asked by any thread, carried out by the watchdog. */
static struct {
    _Atomic uint32_t asked; /* lw_asked */
    int fd;                 /* of the program's table, */
    dev_t device; /* and the file that it must be: the program may close descriptors that */
    ino_t inode;  /* it does not own, and open another one in between */
    _Atomic uint64_t failed;
    _Atomic bool writes; /* page.open, for others */
} desk = {.fd = -1};

/* The watchdog's own, while it runs. */
static struct {
    int fd; /* of its table; meaningful where `open` */
    bool open;
    dev_t device; /* the number may be another file's by now, where the table is the program's */
    ino_t inode;
    uint64_t sequence;
    uint64_t mark;  /* lw_content_mark() at the last writing */
    lw_ns quiet_ns; /* not to be written before */
    union {
        lw_page_half half;
        char bytes[LW_PAGE_HALF];
    };
} page;

static void
set_open(bool open)
{
    page.open = open;
    atomic_store_explicit(&desk.writes, open, memory_order_release);
}

/* --- any thread --- */

static bool
asked_moves(lw_asked from, lw_asked to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong_explicit(&desk.asked, &expected, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* Nobody looks at what the desk says, which only the watchdog can be in the way of. */
static bool
desk_is_free(void)
{
    return asked_moves(LW_ASKED, LW_IDLE) ||
           atomic_load_explicit(&desk.asked, memory_order_acquire) == LW_IDLE;
}

static void
nap(void)
{
    nanosleep(&(struct timespec){0, (long)NAP_NS}, NULL);
}

static void
ask(int fd, const struct stat *status)
{
    desk.fd = fd;
    desk.device = status->st_dev;
    desk.inode = status->st_ino;
    atomic_store_explicit(&desk.asked, LW_ASKED, memory_order_release);
    lw_watchdog_wake();
}

/* There is no page then, also not the one before. False: it was taken just now. */
static bool
withdraw(void)
{
    if (asked_moves(LW_ASKED, LW_IDLE)) {
        ask(-1, &(struct stat){0});
        return true;
    }
    return asked_moves(LW_TAKING, LW_ABANDONED);
}

bool
lw_status_use(int fd, lw_ns timeout_ns)
{
    lw_ns deadline_ns = lw_now_ns() + timeout_ns;
    struct stat status = {0};
    if (fd >= 0 && fstat(fd, &status)) {
        return false;
    }
    while (!desk_is_free()) {
        if (lw_now_ns() >= deadline_ns) {
            return false;
        }
        nap();
    }
    ask(fd, &status);
    while (atomic_load_explicit(&desk.asked, memory_order_acquire) != LW_IDLE) {
        if (!lw_watchdog_runs() || lw_now_ns() >= deadline_ns) {
            if (fd < 0 || withdraw()) {
                return false;
            }
            break;
        }
        nap();
    }
    return fd < 0 || lw_status_writes();
}

bool
lw_status_writes(void)
{
    return atomic_load_explicit(&desk.asked, memory_order_acquire) == LW_IDLE &&
           atomic_load_explicit(&desk.writes, memory_order_acquire);
}

uint64_t
lw_status_failed(void)
{
    return atomic_load_explicit(&desk.failed, RELAXED);
}

void
lw_status_forget(void)
{
    atomic_store_explicit(&desk.asked, LW_IDLE, RELAXED);
    set_open(false);
    lw_past_forget();
    lw_note_forget();
}

/* --- the file --- */

static bool
is_file(int fd, dev_t device, ino_t inode)
{
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

/* A program that closes descriptors it does not own, in a table that we share with it, may have
 * opened a file of its own at our number. */
static bool
still_ours(const lw_fdtable *fds)
{
    return fds->own || is_file(page.fd, page.device, page.inode);
}

static void
close_page(const lw_fdtable *fds)
{
    if (page.open) {
        if (still_ours(fds)) {
            close(page.fd);
        }
        set_open(false);
    }
}

static void
open_page(const lw_fdtable *fds)
{
    int fd = lw_fdtable_adopt(fds, desk.fd);
    if (fd < 0) {
        return;
    }
    if (!is_file(fd, desk.device, desk.inode)) {
        close(fd);
        return;
    }
    page.fd = fd;
    page.device = desk.device;
    page.inode = desk.inode;
    page.mark = 0;
    page.quiet_ns = 0;
    set_open(true);
}

static void
adopt(const lw_fdtable *fds)
{
    if (!asked_moves(LW_ASKED, LW_TAKING)) {
        return;
    }
    close_page(fds);
    if (desk.fd >= 0) {
        open_page(fds);
    }
    if (!asked_moves(LW_TAKING, LW_IDLE)) {
        close_page(fds);
        atomic_store_explicit(&desk.asked, LW_IDLE, memory_order_release);
    }
}

static uint32_t
crc32(uint32_t crc, const void *data, size_t n)
{
    static const uint32_t by_nibble[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    crc = ~crc;
    for (const unsigned char *byte = data; n; n--, byte++) {
        crc = by_nibble[(crc ^ *byte) & 15] ^ (crc >> 4);
        crc = by_nibble[(crc ^ (uint32_t)(*byte >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}

static void
write_page(lw_eye *eye, lw_ns now_ns)
{
    lw_text text = {.bytes = page.bytes + sizeof page.half,
                    .room = sizeof page.bytes - sizeof page.half};
    lw_content_say(eye, now_ns, &text);
    page.half.sequence = ++page.sequence;
    page.half.length = (uint32_t)text.length;
    uint32_t check = crc32(0, &page.half, offsetof(lw_page_half, check));
    page.half.check = crc32(check, text.bytes, text.length);
    off_t at = LW_PAGE_HEAD + (off_t)(page.sequence & 1) * LW_PAGE_HALF;
    size_t size = sizeof page.half + text.length;
    if (!still_ours(&eye->fds)) {
        set_open(false); /* not ours to close either */
    }
    else if (pwrite(page.fd, page.bytes, size, at) != (ssize_t)size) {
        lw_count(&desk.failed, 1);
    }
    lw_observe_waited(eye); /* for a disk */
}

/* --- when --- */

lw_ns
lw_status_visit(lw_eye *eye, lw_ns next_ns)
{
    adopt(&eye->fds);
    if (!page.open) {
        return next_ns;
    }
    uint64_t mark = lw_content_mark();
    if (mark == page.mark) {
        return next_ns;
    }
    lw_ns now_ns = lw_now_ns();
    if (now_ns < page.quiet_ns) {
        return next_ns < page.quiet_ns ? next_ns : page.quiet_ns;
    }
    write_page(eye, now_ns);
    page.mark = mark;
    page.quiet_ns = now_ns + LW_STATUS_EVERY_NS;
    return next_ns;
}

void
lw_status_end(lw_eye *eye)
{
    if (page.open) {
        write_page(eye, lw_now_ns());
    }
    close_page(&eye->fds);
}
