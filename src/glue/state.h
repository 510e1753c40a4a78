/* The module's state: what the glue needs of one interpreter. */
#ifndef LW_STATE_H
#define LW_STATE_H

#include <Python.h>
#include <stdbool.h>

#include "result.h"
#include "yielding/running_task.h"

typedef struct lw_state {
    PyTypeObject *slot_type;
    PyTypeObject *checkpoint_type;
    PyObject *rearm;  /* set_rearm()'s callable, or NULL */
    PyObject *on_run; /* watch_runs()'s, or NULL */
    lw_task_finder task_finder;
    bool raw_works; /* lw_frames_setup() agreed */
} lw_state;

lw_state *lw_state_of(PyObject *module);

/* For the module's definition. */
int lw_state_traverse(PyObject *module, visitproc visit, void *arg);
int lw_state_clear(PyObject *module);
void lw_state_free(void *module);

/* Adds every type of the core to the module. -1 with an exception set. */
int lw_types_add(PyObject *module);

/* Sets the exception for a result and returns NULL: the one place where the core's answers become
 * exceptions. */
PyObject *lw_raise(lw_result result);

#endif
