/* Whether the task that runs here has a cancellation to come. */
#ifndef LW_RUNNING_TASK_H
#define LW_RUNNING_TASK_H

#include <Python.h>
#include <stdbool.h>

/* Where asyncio keeps the running tasks; part of the module's state. */
typedef struct lw_task_finder {
    PyObject *current_task;     /* asyncio's function, where it is a fast one; else NULL and */
    PyObject *current_tasks;    /* loop -> task, */
    PyObject *get_running_loop; /* and the key to it */
    PyObject *must_cancel;      /* the name of the attribute */
} lw_task_finder;

/* -1 with an exception set. */
int lw_task_finder_init(lw_task_finder *finder);
int lw_task_finder_traverse(lw_task_finder *finder, visitproc visit, void *arg);
void lw_task_finder_clear(lw_task_finder *finder);

/* True where the running task was cancelled while it runs, so that its next await that suspends
 * ends with CancelledError. False where that cannot be told. Never raises. */
bool lw_running_task_must_cancel(const lw_task_finder *finder);

#endif
