/* Who holds the GIL, read without it.
 *
 * 3.11: _PyRuntime.ceval.gil; from 3.12 on the pointer in the interpreter's state (from 3.13 on
 * through the debug offsets). `last_holder` and `locked` are read at once; the holder counts only
 * while locked. Free-threaded builds: the GIL counts only while it is enabled. GIL-free, on the
 * snapper's thread.
 */
#ifndef LW_GIL_H
#define LW_GIL_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/read.h"
#include "result.h"
#include "snapshot.h"

typedef struct lw_gil {
    bool known;       /* could be read */
    bool enabled;     /* there is one (free-threaded builds can switch it on) */
    bool locked;      /* and enabled */
    uintptr_t holder; /* PyThreadState* while locked, else 0. For a moment after a switch: the one
                         before */
    uintptr_t begin, end; /* the struct's memory: a futex in there is the GIL's */
} lw_gil;

/* With the GIL, from lw_frames_setup, after lw_layout_setup: checks what the layout says against
 * this thread. Failure turns it off. */
lw_result lw_gil_setup(lw_reader *reader);
const char *lw_gil_reason(void); /* why it is off, or NULL */

void lw_gil_look(lw_reader *reader, uintptr_t interpreter, lw_gil *out);

/* The thread that a PyThreadState belongs to, as lw_snapshot_take wants it; false where it cannot
 * be read or does not look like one (it may have been freed), or its thread is gone. Its name is
 * not known here; ident and tid are. */
bool lw_gil_holder_ref(lw_reader *reader, uintptr_t tstate, uintptr_t interpreter,
                       lw_thread_ref *out);

#endif
