/* The layout of a status page: a small private file in which the watchdog says how its process
 * does, for other processes to read (loopwatch/_page.py).
 *
 *     0                       head, written once by whoever made the file (loopwatch/_status.py)
 *     LW_PAGE_HEAD            one half
 *     LW_PAGE_HEAD + HALF     the other half
 *
 * A half is an lw_page_half and then JSON. The watchdog writes them in turn, each with the next
 * sequence number, and each in one call. A reader takes the half with the larger number whose check
 * is right. So it needs no lock and relies on no order of memory: a half that is being written, or
 * that a SIGKILL cut short, fails the check, and the other one is whole.
 *
 * The file is written to, not mapped, by its process: to store into a mapping of a file that
 * somebody truncates, or that finds its disk full, kills the process (SIGBUS). What was written
 * outlives the process either way.
 *
 * A change of what a reader relies on counts LW_PAGE_VERSION up; new keys in the JSON do not.
 */
#ifndef LW_PAGE_H
#define LW_PAGE_H

#include <assert.h>
#include <stdint.h>

#define LW_PAGE_VERSION 1
#define LW_PAGE_HEAD 4096
#define LW_PAGE_HALF (64 * 1024)

typedef struct lw_page_half {
    uint64_t sequence; /* from 1; 0: never written */
    uint32_t length;   /* of the JSON */
    uint32_t check;    /* CRC-32, as zlib's, of sequence, length and JSON */
} lw_page_half;

static_assert(sizeof(lw_page_half) == 16, "as _page.py unpacks it");

#endif
