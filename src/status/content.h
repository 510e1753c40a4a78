/* What a status page says: the loops of this process, the last stalls that ended, and those that go
 * on with their stacks, as JSON.
 *
 *     {"at": ns, "wall": ns, "watchdog": {…}, "gc": […], "executors": note.h,
 *      "loops": [{…}], "more_loops": n, "stalls": [{…}], "current": [{…}]}
 *
 * Times are nanoseconds of CLOCK_MONOTONIC, which every process of the machine reads alike, so that
 * a reader can tell how old what it sees is by now; "wall" is the time of day at "at".
 *
 * On the watchdog thread, without the GIL; nothing is allocated.
 */
#ifndef LW_CONTENT_H
#define LW_CONTENT_H

#include "report/text.h"
#include "watch/look.h"

/* Changes whenever the content does, other than by time passing. */
uint64_t lw_content_mark(void);

/* All of it has room in half a page (page.h). */
void lw_content_say(lw_eye *eye, lw_ns now_ns, lw_text *text);

#endif
