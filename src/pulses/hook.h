/* What every hook is built on: its slot, and the check that the slot knows the calling thread.
 *
 * A hook is called by its loop's thread, with the GIL (or attached, where there is none). It begins
 * with lw_hook_arrive(), which costs a few nanoseconds unless the thread is new or the process was
 * forked, and never raises: a hook that cannot watch still does the work of what it stands for.
 */
#ifndef LW_HOOK_H
#define LW_HOOK_H

#include <Python.h>

#include "pulse.h"
#include "slot.h"

typedef struct lw_hook {
    PyObject *owner;         /* the Slot object, which keeps `slot` */
    lw_slot *slot;           /* its memory stays even when the Slot object is gone */
    _Atomic uint64_t thread; /* PyThreadState_GetID() of the thread that is bound, 0: none; ids are
                                not used again */
} lw_hook;

/* -1 with an exception set where `owner` is not a Slot. */
int lw_hook_init(lw_hook *hook, PyObject *owner);
int lw_hook_traverse(lw_hook *hook, visitproc visit, void *arg);
void lw_hook_clear(lw_hook *hook);

/* The garbage collector has cleared it, and its fields are not there: a call answers
 * lw_hook_raise_gone(). */
static inline bool
lw_hook_gone(const lw_hook *hook)
{
    return !hook->owner;
}
PyObject *lw_hook_raise_gone(PyObject *object); /* NULL with ReferenceError */

/* Makes the heap type and adds it to the module under its name. */
int lw_add_type(PyObject *module, PyType_Spec *spec);

/* Binds the calling thread and re-arms in a forked child, where needed; what fails there is
 * reported as unraisable, with `object` as its place. */
void lw_hook_arrive_slow(lw_hook *hook, PyObject *object);

static inline void
lw_hook_arrive(lw_hook *hook, PyObject *object)
{
    uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
    if (thread != atomic_load_explicit(&hook->thread, memory_order_relaxed) ||
        lw_pulse_forked(hook->slot)) {
        lw_hook_arrive_slow(hook, object);
    }
}

/* Calls a select with the arguments as they came, stamped before and after. `now_ns`: when the hook
 * was called. */
PyObject *lw_hook_call_select(lw_hook *hook, lw_ns now_ns, PyObject *select, PyObject *const *args,
                              size_t nargsf, PyObject *kwnames);

#endif
