/* The loops that run now, in any thread. */
#ifndef LW_RUNNING_LOOPS_H
#define LW_RUNNING_LOOPS_H

#include <Python.h>

/* With the GIL, after lw_task_setup: a new list of them; None where that cannot be told (other
 * threads run freely, or asyncio is not laid out as known). NULL with an exception set. */
PyObject *lw_running_loops(void);

#endif
