/* Whom a stall is to be blamed on, told without Python: for the texts that the watchdog writes.
 *
 * On the watchdog thread, without the GIL. The reporter does the same in Python with more to go by
 * (loopwatch/_culprit.py): own= and the names of pure-Python tasks.
 */
#ifndef LW_BLAME_H
#define LW_BLAME_H

#include "frames/snapshot.h"
#include "record.h"

typedef struct lw_blame {
    lw_parts sum; /* of the whole stall */
    lw_cause verdict;
    uint32_t shown;      /* the sample to show, or LW_SAMPLES_MAX: none has frames */
    const lw_code *code; /* the culprit's, valid as long as the snapper's cache; NULL: nobody is to
                            blame, or no frame could be read */
    int32_t lineno;
    const lw_task *task;   /* that ran then, or NULL */
    const char *task_name; /* "" where it must not be told (redact= is Python: not to be asked) */
} lw_blame;

/* Of a report that was judged; `snapper` is whose cache its codes are in, or NULL. */
void lw_blame_find(const lw_report *report, const lw_snapper *snapper, lw_blame *out);

#endif
