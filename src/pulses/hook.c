/* What the hooks share: hook.h says what. */
#include "hook.h"

#include "glue/py_slot.h"
#include "process.h"

int
lw_hook_init(lw_hook *hook, PyObject *owner)
{
    lw_slot *slot = lw_slot_of(owner);
    if (!slot) {
        return -1;
    }
    hook->owner = Py_NewRef(owner);
    hook->slot = slot;
    atomic_init(&hook->thread, 0);
    return 0;
}

int
lw_hook_traverse(lw_hook *hook, visitproc visit, void *arg)
{
    Py_VISIT(hook->owner);
    return 0;
}

void
lw_hook_clear(lw_hook *hook)
{
    Py_CLEAR(hook->owner);
}

PyObject *
lw_hook_raise_gone(PyObject *object)
{
    return PyErr_Format(PyExc_ReferenceError, "this %.100s was collected as garbage",
                        Py_TYPE(object)->tp_name);
}

int
lw_add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (!type) {
        return -1;
    }
    int result = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return result;
}

void
lw_hook_arrive_slow(lw_hook *hook, PyObject *object)
{
    if (lw_pulse_forked(hook->slot) && lw_process_rearm(hook->slot) < 0) {
        PyErr_WriteUnraisable(object);
    }
    /* The child of a fork has the parent's thread state, and another kernel thread: bind again in
     * any case. */
    if (lw_pulse_bind(hook->slot) < 0) {
        PyErr_WriteUnraisable(object);
    }
    uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
    atomic_store_explicit(&hook->thread, thread, memory_order_relaxed);
}

/* --- a stamped select --- */

#define LONGEST_WAIT_S 1e9 /* a wait longer than 30 years is for ever */

/* When a select called now with this timeout has to be back; never, where the timeout is no number:
 * then it is the select's own matter to complain. */
static lw_ns
due_after(lw_ns now_ns, PyObject *timeout)
{
    if (timeout == Py_None) {
        return LW_NS_NEVER;
    }
    double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return LW_NS_NEVER;
    }
    if (seconds <= 0) {
        return now_ns;
    }
    return seconds < LONGEST_WAIT_S ? now_ns + (lw_ns)(seconds * 1e9) : LW_NS_NEVER;
}

static lw_ns
due_of_call(lw_ns now_ns, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs > 0) {
        return due_after(now_ns, args[0]);
    }
    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "timeout") == 0) {
            return due_after(now_ns, args[i]);
        }
    }
    return LW_NS_NEVER;
}

PyObject *
lw_hook_call_select(lw_hook *hook, lw_ns now_ns, PyObject *select, PyObject *const *args,
                    size_t nargsf, PyObject *kwnames)
{
    lw_ns due_ns = due_of_call(now_ns, args, PyVectorcall_NARGS(nargsf), kwnames);
    lw_pulse_wait(hook->slot, now_ns, due_ns);
    PyObject *ready = PyObject_Vectorcall(select, args, nargsf, kwnames);
    lw_pulse_back(hook->slot, lw_now_ns());
    return ready;
}
