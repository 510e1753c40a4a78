/* Every run of every loop of the process: the one hook of loopwatch that is not on an instance. */
#ifndef LW_RUNS_H
#define LW_RUNS_H

#include <Python.h>

/* With the GIL. From now on `callback` is called with each loop that begins to run, on its thread,
 * when it is the running one already; what it raises is unraisable. The caller keeps it alive until
 * it gives another one. -1 with an exception set; 1 where asyncio is in Python only: then whoever
 * replaces its _set_running_loop calls lw_runs_begin() and lw_runs_end(). */
int lw_runs_watch(PyObject *callback);

/* No longer; idempotent. A call that is being made is finished. */
void lw_runs_unwatch(void);

/* On the loop's thread: right after it became the running loop, and right before it is no more. */
void lw_runs_begin(PyObject *loop);
void lw_runs_end(void);

#endif
