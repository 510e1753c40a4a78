/* loopwatch.checkpoint(budget): what a task awaits to give the others a turn, once they have waited
 * for long enough. */
#ifndef LW_CHECKPOINT_H
#define LW_CHECKPOINT_H

#include <Python.h>
#include <stdbool.h>

#include "pace.h"

struct lw_state;

/* The type Checkpoint and the function checkpoint(). -1 with an exception set. */
int lw_checkpoint_add(PyObject *module);

/* The type Paced: paced.c. */
int lw_paced_add(PyObject *module);

/* For PyArg_Parse's "O&": seconds, into lw_ns. 0 with an exception set that names the budget. */
int lw_budget_convert(PyObject *seconds, void *budget_ns);

/* --- for whoever awaits --- */

/* One step of an awaitable that yields if need be: true, it yields None now, and asks again when it
 * is resumed; false, it goes on. */
bool lw_checkpoint_step(struct lw_state *state, lw_pace *pace, lw_ns budget_ns);

#endif
