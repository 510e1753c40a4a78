/* The task that runs on a thread and the loop that runs it, read without the GIL. */
#ifndef LW_TASK_H
#define LW_TASK_H

#include "snapshot.h"

/* With the GIL, at module exec, idempotent; asyncio gets imported. Finds where asyncio keeps its
 * running loop and task and where a C task keeps its name and its coroutine, and reads a task of
 * its own that way. A failure only turns the reading of tasks off. */
lw_result lw_task_setup(void);

/* Why lw_task_setup refused, one sentence, static; NULL where it did not. */
const char *lw_task_reason(void);

#ifdef LW_TEST
/* As before the first lw_task_setup. */
void lw_task_forget(void);
#endif

/* The running loop of the thread, 0: none; false where it cannot be read. Without the GIL. */
bool lw_task_loop(lw_reader *reader, uintptr_t tstate, uintptr_t *loop);

/* The task that `loop` runs on the thread. Always fills `out`. Without the GIL. */
void lw_task_read(lw_reader *reader, uintptr_t tstate, uintptr_t loop, lw_task *out);

#endif
