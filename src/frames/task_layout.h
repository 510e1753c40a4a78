/* Where asyncio keeps things: found by task_setup.c, once and with the GIL, used by task.c.
 *
 * Up to 3.13 the running tasks are in one dict of _asyncio, by loop; from 3.14 on the thread state
 * has its own. The running loop is in the thread state's dict up to 3.12, under a well-known key,
 * and in the thread state from 3.13 on. Whatever has no public layout is found by calibration. */
#ifndef LW_TASK_LAYOUT_H
#define LW_TASK_LAYOUT_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LW_RUNNING_LOOP_IN_THREAD (PY_VERSION_HEX >= 0x030D0000)
#define LW_RUNNING_TASK_IN_THREAD (PY_VERSION_HEX >= 0x030E0000)
#define LW_RUNNING_LOOP_IN_HOLDER (PY_VERSION_HEX < 0x030C0000)

#if LW_RUNNING_LOOP_IN_HOLDER
/* PyRunningLoopHolder of 3.11: the loop counts only in the process that set it. */
typedef struct lw_loop_holder {
    PyObject head;
    uintptr_t loop;
    pid_t pid;
} lw_loop_holder;
#endif

#define LW_TASK_COPY_MAX 512u /* bytes of a task or a coroutine that are copied */

typedef struct lw_task_layout {
    bool ready;
    uintptr_t task_type;                /* _asyncio.Task */
    uint32_t task_name, task_coroutine; /* offsets in one */
    uint32_t coroutine_qualname;        /* offset in a coroutine or a generator */

    uint32_t thread_loop, thread_task; /* offsets in the thread state, where they are there */
    uintptr_t current_tasks;           /* else: the dict of tasks by loop; we hold a reference */
    uintptr_t loop_key;                /* and the key in the thread state's dict; likewise */
    uintptr_t holder_type; /* of what is under that key, where the loop is in a holder */
} lw_task_layout;

extern lw_task_layout lw_the_task_layout; /* task.c; written by lw_task_setup only */

#endif
