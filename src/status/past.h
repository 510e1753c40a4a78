/* The last stalls, as the status page shows them.
 *
 * On the watchdog thread, without the GIL; names are cut to what a line has room for.
 */
#ifndef LW_PAST_H
#define LW_PAST_H

#include "frames/snapshot.h"
#include "report/record.h"

#define LW_PAST_MAX 16
#define LW_PAST_NAME 120
#define LW_PAST_FILE 200

typedef struct lw_past {
    uint64_t id, key; /* key: of the watch */
    lw_ns begin_ns, end_ns;
    lw_cause verdict;
    int32_t lineno;                  /* of the culprit... */
    char qualname[LW_PAST_NAME + 1]; /* ...or "": nobody is to blame */
    char filename[LW_PAST_FILE + 1]; /* its end, where it is longer */
    char task[LW_PAST_NAME + 1];     /* or "" */
    char thread[LW_THREAD_NAME_MAX + 1];
} lw_past;

/* One ended; `report` was judged. */
void lw_past_note(const lw_report *report, const lw_snapper *snapper);

/* The youngest is 0; NULL: there is none. */
const lw_past *lw_past_get(uint32_t back);

/* In a forked child, which has had none. Async-signal-safe. */
void lw_past_forget(void);

#endif
