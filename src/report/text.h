/* Text of a stall, made without Python: for the dump and for the status page.
 *
 * On the watchdog thread, without the GIL, into memory that the caller has; what does not fit is
 * cut.
 */
#ifndef LW_TEXT_H
#define LW_TEXT_H

#include <stddef.h>

#include "blame.h"

typedef struct lw_text {
    char *bytes;
    size_t room; /* of `bytes`, at least 1; the text ends with a zero within it */
    size_t length;
} lw_text;

__attribute__((format(printf, 2, 3))) void lw_say(lw_text *text, const char *format, ...);

/* "1.25 s" */
void lw_say_seconds(lw_text *text, lw_ns ns);

/* "python 1.20 s, gc 0.05 s" */
void lw_say_causes(lw_text *text, const lw_parts *parts);

/* Tracebacks of the sample that `blame` shows: the loop's thread, and who held the GIL. */
void lw_say_stacks(lw_text *text, const lw_report *report, const lw_snapper *snapper,
                   const lw_blame *blame);

#endif
