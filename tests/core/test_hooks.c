/* The hooks' types, and what their tests look at: a slot's beat cell, counters, thread and steps.
 */
#include "testcore.h"

#include "glue/py_slot.h"
#include "process.h"
#include "pulses/pulse.h"
#include "steps/steps.h"

static PyObject *
beat(PyObject *Py_UNUSED(module), PyObject *object)
{
    static const char *const phases[] = {"off", "wait", "busy"};
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    lw_beat now;
    if (!lw_cell_read(&slot->cell, &now)) {
        Py_RETURN_NONE;
    }
    PyObject *due =
        now.due_ns == LW_NS_NEVER ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(now.due_ns);
    return Py_BuildValue("KsKN", (unsigned long long)now.turn, phases[now.phase],
                         (unsigned long long)now.since_ns, due);
}

static PyObject *
totals(PyObject *Py_UNUSED(module), PyObject *object)
{
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    return Py_BuildValue("KKK", (unsigned long long)slot->turns, (unsigned long long)slot->idle_ns,
                         (unsigned long long)slot->gil_wait_ns);
}

static PyObject *
bound_thread(PyObject *Py_UNUSED(module), PyObject *object)
{
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    lw_thread thread;
    return PyLong_FromUnsignedLong(lw_slot_thread(slot, &thread) ? thread.ref.ident : 0);
}

/* As if the process had been forked. */
static PyObject *
count_fork(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    atomic_fetch_add(&lw_fork_generation, 1);
    Py_RETURN_NONE;
}

static PyObject *
is_forked(PyObject *Py_UNUSED(module), PyObject *object)
{
    lw_slot *slot = lw_slot_of(object);
    return slot ? PyBool_FromLong(lw_pulse_forked(slot)) : NULL;
}

/* One turn of a loop without a loop: a wait that is over at once. */
static PyObject *
next_turn(PyObject *Py_UNUSED(module), PyObject *object)
{
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    lw_pulse_wait(slot, lw_now_ns(), LW_NS_NEVER);
    lw_pulse_back(slot, lw_now_ns());
    Py_RETURN_NONE;
}

static PyObject *
collect_steps(PyObject *Py_UNUSED(module), PyObject *object)
{
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    lw_beat now;
    lw_step_time out[LW_STEPS_MAX];
    if (!lw_cell_read(&slot->cell, &now)) {
        Py_RETURN_NONE;
    }
    uint32_t n = lw_steps_collect(slot, now.turn, now.since_ns, lw_now_ns(), out);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < n; i++) {
        PyObject *pair =
            Py_BuildValue("sK", lw_step_name(out[i].name), (unsigned long long)out[i].ns);
        if (!pair || PyList_Append(list, pair) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *
step_name(PyObject *Py_UNUSED(module), PyObject *index)
{
    unsigned long number = PyLong_AsUnsignedLong(index);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return PyUnicode_FromString(lw_step_name((uint32_t)number));
}

PyMethodDef lw_test_hooks_methods[] = {
    {"beat", beat, METH_O, "beat(slot) -> (turn, phase, since_ns, due_ns | None)"},
    {"totals", totals, METH_O, "totals(slot) -> (turns, idle_ns, gil_wait_ns)"},
    {"bound_thread", bound_thread, METH_O, "bound_thread(slot) -> ident, 0: none"},
    {"count_fork", count_fork, METH_NOARGS, "As if the process had been forked."},
    {"is_forked", is_forked, METH_O, "is_forked(slot) -> bool: not re-armed since"},
    {"next_turn", next_turn, METH_O, "A wait that is over at once."},
    {"collect_steps", collect_steps, METH_O,
     "collect_steps(slot) -> [(name, ns)] of the turn so far"},
    {"step_name", step_name, METH_O, "step_name(index) -> str"},
    {NULL, NULL, 0, NULL},
};
