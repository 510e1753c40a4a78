/* Seeing every loop that begins to run, whoever made it.
 *
 * Why here: a loop of any kind says that it runs by calling _asyncio._set_running_loop, a function
 * in C. Those who call it have bound it long ago (uvloop at its import), so replacing a name is too
 * late. All of them hold the same function object, and that looks up the C function behind it in
 * its PyMethodDef at each call. So the pointer there, `ml_meth`, is what we replace: no name and no
 * class changes, the order of imports does not matter, and putting the pointer back undoes it.
 *
 * A run that begins is told to Python (_everywhere.py), which puts a watch on the loop where it has
 * none. `run_forever` of that loop was called before its hook was there, so the end of this one run
 * is stamped here, when the loop is set to None or back to the one around it; of later runs by
 * RunEdge.
 *
 * The PyMethodDef is shared by the interpreters of the process. Others than the main one, which
 * alone can be watched, get what they had.
 */
#include "runs.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "pulses/pulse.h"
#include "pulses/uv_handle.h"
#include "steps/steps.h"

#define RELAXED memory_order_relaxed
#define CALL_FLAGS                                                                                 \
    (METH_VARARGS | METH_FASTCALL | METH_NOARGS | METH_O | METH_KEYWORDS | METH_METHOD)

/* All written with the GIL; read by whoever calls the hook, which without a GIL may be any thread
 * at the same time. `definition` and `original` are set once, before the hook is put. */
static PyMethodDef *definition;
static PyCFunction original;
static PyObject *_Atomic told;

/* The runs of this thread whose end is ours to stamp, outermost first. More than one: a program that
 * runs a loop from within another one's callback (nest_asyncio), and sets the outer one as the
 * running loop again afterwards. A run that is nested deeper than this ends where the watchdog
 * sees that another loop is the running one. */
#define RUNS_MAX 8

static _Thread_local struct {
    uint32_t depth;
    uint32_t hook; /* of which hook they are: what comes between two hooks we do not see */
    struct {
        uintptr_t loop;
        lw_step_scope own, outer;
    } runs[RUNS_MAX];
} begun;

/* Counts how often the hook was taken off. */
static _Atomic uint32_t hooks;

static void
forget_older_hooks(void)
{
    uint32_t hook = atomic_load_explicit(&hooks, RELAXED);
    if (begun.hook != hook) {
        begun.hook = hook;
        begun.depth = 0;
    }
}

/* The slot of a run's loop, or NULL where it is not watched any more. The thread's steps are that
 * loop's from now on: an inner run that was not kept here left its own loop behind. */
static lw_slot *
return_to(uint32_t index)
{
    lw_slot *slot = lw_step_scope_slot();
    if (!slot || slot->loop != begun.runs[index].loop) {
        lw_step_scope_leave(begun.runs[index].own);
        slot = lw_step_scope_slot();
    }
    return slot;
}

/* Stamps the end of the runs inside the outermost `depth` ones. */
static void
end_inner(uint32_t depth)
{
    while (begun.depth > depth) {
        begun.depth--;
        lw_slot *slot = return_to(begun.depth);
        if (slot) {
            lw_uv_run_end(slot);
            lw_pulse_run_end(slot, lw_now_ns());
        }
        lw_step_scope_leave(begun.runs[begun.depth].outer);
    }
}

/* Whether the loop's run goes on: it was set once more, from within or after an inner one. */
static bool
goes_on(uintptr_t loop)
{
    for (uint32_t depth = begun.depth; depth > 0; depth--) {
        if (begun.runs[depth - 1].loop == loop) {
            end_inner(depth);
            (void)return_to(depth - 1);
            return true;
        }
    }
    return false;
}

void
lw_runs_begin(PyObject *loop)
{
    forget_older_hooks();
    bool known = goes_on((uintptr_t)loop);
    PyObject *callback = atomic_load_explicit(&told, memory_order_acquire);
    lw_step_scope outer = lw_step_scope_here();
    if (!callback) {
        return;
    }
    Py_INCREF(callback);
    PyObject *result = PyObject_CallOneArg(callback, loop);
    if (!result) {
        PyErr_WriteUnraisable(callback);
    }
    Py_XDECREF(result);
    Py_DECREF(callback);
    lw_slot *slot = lw_step_scope_slot();
    if (!slot || slot->loop != (uintptr_t)loop || atomic_load_explicit(&slot->run_seen, RELAXED)) {
        return;
    }
    if (!known && begun.depth == RUNS_MAX) {
        return;
    }
    atomic_store_explicit(&slot->run_seen, 1, RELAXED);
    if (!known) {
        begun.runs[begun.depth].loop = (uintptr_t)loop;
        begun.runs[begun.depth].own = lw_step_scope_here();
        begun.runs[begun.depth].outer = outer;
        begun.depth++;
    }
}

void
lw_runs_end(void)
{
    forget_older_hooks();
    end_inner(0);
}

static PyObject *
set_running_loop(PyObject *module, PyObject *loop)
{
    if (!atomic_load_explicit(&told, RELAXED) ||
        PyInterpreterState_Get() != PyInterpreterState_Main()) {
        return original(module, loop);
    }
    if (loop == Py_None) {
        lw_runs_end();
        return original(module, loop);
    }
    PyObject *result = original(module, loop);
    if (result) {
        lw_runs_begin(loop);
    }
    return result;
}

/* 0: it is there; 1: not in C, or not as a function of one argument; -1 with an exception set. */
static int
find_definition(void)
{
    PyObject *package =
        PyImport_ImportModule("asyncio"); /* _asyncio alone would import half of it */
    PyObject *module = package ? PyImport_ImportModule("_asyncio") : NULL;
    PyObject *function = module ? PyObject_GetAttrString(module, "_set_running_loop") : NULL;
    int result = package ? 1 : -1;
    if (package && !function) {
        PyErr_Clear();
    }
    if (function && PyCFunction_Check(function) &&
        (PyCFunction_GET_FLAGS(function) & CALL_FLAGS) == METH_O) {
        definition = ((PyCFunctionObject *)function)->m_ml;
        original = definition->ml_meth;
        result = 0;
    }
    Py_XDECREF(function);
    Py_XDECREF(module);
    Py_XDECREF(package);
    return result;
}

int
lw_runs_watch(PyObject *callback)
{
    int found = definition ? 0 : find_definition();
    if (found >= 0) {
        atomic_store_explicit(&told, callback, memory_order_release);
    }
    if (found == 0) {
        __atomic_store_n(&definition->ml_meth, set_running_loop, __ATOMIC_RELEASE);
    }
    return found;
}

void
lw_runs_unwatch(void)
{
    atomic_store_explicit(&told, NULL, memory_order_release);
    atomic_fetch_add_explicit(&hooks, 1, RELAXED);
    /* Who put another function there since calls ours, which then only passes on. */
    if (definition && __atomic_load_n(&definition->ml_meth, __ATOMIC_RELAXED) == set_running_loop) {
        __atomic_store_n(&definition->ml_meth, original, __ATOMIC_RELEASE);
    }
}
