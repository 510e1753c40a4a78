/* The running loop of each thread, read where asyncio keeps it (task_layout.h).
 *
 * With the GIL held no other thread changes its running loop or goes away: a thread state is taken
 * out of the list and freed, and its fields are cleared, by whoever has the GIL. So plain loads are
 * safe here, and a loop can be given a reference. Without a GIL they are not.
 */
#include "running_loops.h"

#include <string.h>
#include <unistd.h>

#include "task_layout.h"

#ifndef Py_GIL_DISABLED

/* Borrowed; NULL: none runs. */
static PyObject *
loop_of(PyThreadState *thread)
{
    const lw_task_layout *layout = &lw_the_task_layout;
    PyObject *loop = NULL;
#if LW_RUNNING_LOOP_IN_THREAD
    memcpy(&loop, (const char *)thread + layout->thread_loop, sizeof loop);
#else
    PyObject *key = (PyObject *)layout->loop_key;
    loop = thread->dict ? PyDict_GetItemWithError(thread->dict, key) : NULL;
#endif
#if LW_RUNNING_LOOP_IN_HOLDER
    if (loop) {
        lw_loop_holder *holder = (lw_loop_holder *)loop;
        bool known = (uintptr_t)Py_TYPE(loop) == layout->holder_type && holder->pid == getpid();
        loop = known ? (PyObject *)holder->loop : NULL;
    }
#endif
    return loop == Py_None ? NULL : loop;
}

PyObject *
lw_running_loops(void)
{
    if (!lw_the_task_layout.ready) {
        Py_RETURN_NONE;
    }
    PyObject *loops = PyList_New(0);
    PyThreadState *thread = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; loops && thread; thread = PyThreadState_Next(thread)) {
        PyObject *loop = loop_of(thread);
        if (loop && PyList_Append(loops, loop) < 0) {
            Py_CLEAR(loops);
        }
    }
    return loops;
}

#else

PyObject *
lw_running_loops(void)
{
    Py_RETURN_NONE;
}

#endif
