/* The type Slot: arguments in, nanoseconds and words out. No logic of watching is here. */
#include "py_slot.h"

#include <string.h>

#include "pulses/pulse.h"
#include "pulses/uv_handle.h"
#include "py_ask.h"
#include "py_history.h"
#include "py_record.h"
#include "py_slot_view.h"
#include "state.h"
#include "steps/steps.h"
#include "watch/visit.h"
#include "watch/watchdog.h"

#define RELAXED memory_order_relaxed
#define ADOPT_WITHIN_NS LW_NS_PER_S
#define NAP_NS (100 * LW_NS_PER_US)

typedef struct {
    PyObject_HEAD
    lw_slot *slot; /* one reference */
} SlotObject;

static void
slot_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    SlotObject *self = (SlotObject *)object;
    if (self->slot) {
        self->slot->owner = NULL;
        lw_slot_decref(self->slot);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

lw_slot *
lw_slot_of(PyObject *object)
{
    if (Py_TYPE(object)->tp_dealloc != slot_dealloc) {
        PyErr_Format(PyExc_TypeError, "expected a loopwatch._core.Slot, not %.100s",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    return ((SlotObject *)object)->slot;
}

int
lw_slot_call_rearm(lw_slot *slot)
{
    PyObject *owner = slot->owner;
    lw_state *state = owner ? PyType_GetModuleState(Py_TYPE(owner)) : NULL;
    if (!state || !state->rearm) {
        PyErr_Clear();
        return 0;
    }
    PyObject *rearm = Py_NewRef(state->rearm);
    PyObject *result = PyObject_CallOneArg(rearm, owner);
    Py_DECREF(rearm);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Sleeps in small steps, without the GIL, until `settled` says so or the time is up; returns its
 * last answer. */
static bool
wait_until(bool (*settled)(lw_slot *slot), lw_slot *slot, lw_ns timeout_ns)
{
    bool result = settled(slot);
    if (!result) {
        Py_BEGIN_ALLOW_THREADS
        lw_ns deadline_ns = lw_now_ns() + timeout_ns;
        while (!(result = settled(slot)) && lw_now_ns() < deadline_ns) {
            nanosleep(&(struct timespec){0, (long)NAP_NS}, NULL);
        }
        Py_END_ALLOW_THREADS
    }
    return result;
}

/* --- making and starting one --- */

static int
index_of(const char *word, const char *const *words, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(word, words[i]) == 0) {
            return (int)i;
        }
    }
    PyErr_Format(PyExc_ValueError, "%s: unknown word '%s'", what, word);
    return -1;
}

static PyObject *
slot_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop",  "threshold_ns", "hang_after_ns", "capture",
                            "pulse", "dump_fd",      "dump_names",    NULL};
    static const char *const pulses[] = {"turn", "wrapped", "uv", "heartbeat"};
    static const char *const captures[] = {"off", "raw", "gil"};
    PyObject *loop, *hang_after;
    unsigned long long threshold_ns;
    const char *capture, *pulse;
    int dump_fd, dump_names;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OKOssip:Slot", names, &loop, &threshold_ns,
                                     &hang_after, &capture, &pulse, &dump_fd, &dump_names)) {
        return NULL;
    }
    unsigned long long hang_after_ns = LW_NS_NEVER;
    if (hang_after != Py_None) {
        hang_after_ns = PyLong_AsUnsignedLongLong(hang_after);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    int capture_kind = index_of(capture, captures, 3, "capture");
    int pulse_kind = capture_kind < 0 ? -1 : index_of(pulse, pulses, 4, "pulse");
    if (pulse_kind < 0) {
        return NULL;
    }
    SlotObject *self = (SlotObject *)type->tp_alloc(type, 0);
    if (!self) {
        return NULL;
    }
    self->slot = lw_slot_new();
    if (!self->slot) {
        Py_DECREF(self);
        return lw_raise(LW_ERR_MEMORY);
    }
    lw_slot *slot = self->slot;
    slot->owner = self;
    slot->loop = (uintptr_t)loop;
    slot->capture = (uint32_t)capture_kind;
    slot->pulse = (uint32_t)pulse_kind;
    slot->dump_names = dump_names != 0;
    atomic_store_explicit(&slot->threshold_ns, threshold_ns, RELAXED);
    atomic_store_explicit(&slot->hang_after_ns, hang_after_ns, RELAXED);
    atomic_store_explicit(&slot->dump_fd, dump_fd, RELAXED);
    atomic_store_explicit(&slot->dump_asked, 1, RELAXED);
    return (PyObject *)self;
}

/* Only a descriptor of the program has to stay open until then. */
static bool
dump_adopted(lw_slot *slot)
{
    return atomic_load_explicit(&slot->dump_fd, RELAXED) < 0 ||
           atomic_load_explicit(&slot->dump_adopted, memory_order_acquire) ==
               atomic_load_explicit(&slot->dump_asked, RELAXED) ||
           lw_slot_state_of(slot) != LW_SLOT_ACTIVE;
}

static PyObject *
slot_start(PyObject *object, PyObject *args)
{
    lw_slot *slot = lw_slot_of(object);
    int quietly = 0, dump_stays = 0;
    if (!PyArg_ParseTuple(args, "|pp:start", &quietly, &dump_stays)) {
        return NULL;
    }
    lw_state *state = PyType_GetModuleState(Py_TYPE(object));
    lw_result result;
    Py_BEGIN_ALLOW_THREADS
    result = lw_watchdog_start(state->raw_works);
    Py_END_ALLOW_THREADS
    if (result != LW_OK) {
        return lw_raise(result);
    }
    /* Else it must take the descriptor of dump_to before that is closed. */
    if (quietly && (dump_stays || atomic_load_explicit(&slot->dump_fd, RELAXED) < 0)) {
        lw_slot_start_quietly(slot);
        Py_RETURN_NONE;
    }
    lw_slot_start(slot);
    wait_until(dump_adopted, slot, ADOPT_WITHIN_NS);
    Py_RETURN_NONE;
}

static PyObject *
slot_set_dump(PyObject *object, PyObject *argument)
{
    lw_slot *slot = lw_slot_of(object);
    int dump_fd = (int)PyLong_AsLong(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    atomic_store_explicit(&slot->dump_fd, dump_fd, RELAXED);
    atomic_fetch_add_explicit(&slot->dump_asked, 1, memory_order_release);
    lw_watchdog_wake();
    wait_until(dump_adopted, slot, ADOPT_WITHIN_NS);
    Py_RETURN_NONE;
}

static PyObject *
slot_here(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    lw_slot *slot = lw_slot_of(object);
    if (lw_pulse_bind(slot) < 0) {
        return NULL;
    }
    lw_step_scope_enter(slot);
    if (atomic_load_explicit(&slot->cell.phase, RELAXED) ==
        LW_PHASE_OFF) { /* else a hook was faster */
        lw_pulse_back(slot, lw_now_ns());
    }
    Py_RETURN_NONE;
}

/* --- ending one --- */

static bool
let_go(lw_slot *slot)
{
    return lw_slot_state_of(slot) != LW_SLOT_RETIRING;
}

static PyObject *
slot_retire(PyObject *object, PyObject *argument)
{
    lw_slot *slot = lw_slot_of(object);
    if (argument == Py_None) {
        lw_slot_retire_quietly(slot);
        Py_RETURN_FALSE;
    }
    unsigned long long timeout_ns = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    lw_slot_retire(slot);
    bool in_time = wait_until(let_go, slot, timeout_ns);
    if (!in_time) {
        lw_slot_let_go(slot);
        Py_BEGIN_ALLOW_THREADS
        lw_visit_await_over(slot);
        Py_END_ALLOW_THREADS
    }
    return PyBool_FromLong(in_time);
}

/* --- looking at one --- */

static PyObject *
slot_exempt(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    lw_slot *slot = lw_slot_of(object);
    uint64_t turn = atomic_load_explicit(&slot->cell.turn, RELAXED);
    atomic_store_explicit(&slot->exempt_turn, turn, RELAXED);
    lw_uv_see_turn(slot);
    return PyLong_FromUnsignedLongLong(turn);
}

static PyObject *
slot_set_profile(PyObject *object, PyObject *argument)
{
    unsigned long long period_ns = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    atomic_store_explicit(&lw_slot_of(object)->profile_period_ns, period_ns, memory_order_relaxed);
    Py_RETURN_NONE;
}

static PyObject *
slot_get_key(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(lw_slot_of(object)->key);
}

static PyObject *
slot_get_turn(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(
        atomic_load_explicit(&lw_slot_of(object)->cell.turn, RELAXED));
}

static PyObject *
slot_get_running(PyObject *object, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(atomic_load_explicit(&lw_slot_of(object)->cell.phase, RELAXED) !=
                           LW_PHASE_OFF);
}

static PyObject *
slot_get_state(PyObject *object, void *Py_UNUSED(closure))
{
    lw_slot *slot = lw_slot_of(object);
    switch (lw_slot_state_of(slot)) {
    case LW_SLOT_NEW:
        return PyUnicode_FromString("new");
    case LW_SLOT_ACTIVE:
        return PyUnicode_FromString(lw_pulse_forked(slot) ? "forked" : "active");
    case LW_SLOT_RETIRING:
        return PyUnicode_FromString("retiring");
    case LW_SLOT_RETIRED:
    case LW_SLOT_FREE:
        break;
    }
    return PyUnicode_FromString("retired");
}

static PyObject *
slot_get_threshold(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(
        atomic_load_explicit(&lw_slot_of(object)->threshold_ns, RELAXED));
}

static int
slot_set_threshold(PyObject *object, PyObject *value, void *Py_UNUSED(closure))
{
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "threshold_ns cannot be deleted");
        return -1;
    }
    unsigned long long threshold_ns = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred()) {
        return -1;
    }
    atomic_store_explicit(&lw_slot_of(object)->threshold_ns, threshold_ns, RELAXED);
    lw_watchdog_wake(); /* it may sleep for longer than the new one allows */
    return 0;
}

static PyObject *
slot_get_hang_after(PyObject *object, void *Py_UNUSED(closure))
{
    uint64_t hang_after_ns = atomic_load_explicit(&lw_slot_of(object)->hang_after_ns, RELAXED);
    if (hang_after_ns == LW_NS_NEVER) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(hang_after_ns);
}

static PyMethodDef slot_methods[] = {
    {"start", slot_start, METH_VARARGS,
     "start(quietly=False, dump_stays=False): the watchdog looks at this loop from now on."},
    {"here", slot_here, METH_NOARGS,
     "On the loop's thread, in a callback: the loop is busy since now."},
    {"retire", slot_retire, METH_O,
     "retire(timeout_ns or None) -> bool: take the loop from the watchdog; None: it lets go "
     "later."},
    {"exempt", slot_exempt, METH_NOARGS,
     "The turn that goes on is counted, not reported; returns it."},
    {"current", lw_slot_current, METH_O, "current(timeout_ns) -> the stall that goes on, or None."},
    {"stacks", lw_slot_stacks, METH_VARARGS,
     "stacks(idents, timeout_ns) -> where these threads stand, or None."},
    {"counters", lw_slot_counters, METH_NOARGS, "This loop's and the watchdog's counters."},
    {"histogram", lw_slot_histogram, METH_NOARGS, "Busy times by turn: (buckets in use, totals)."},
    {"cells", lw_slot_cells, METH_O, "cells(seconds) -> the last seconds, one by one."},
    {"window", lw_slot_window, METH_O, "window(length_ns) -> the histogram of the last time."},
    {"profile", lw_slot_profile, METH_VARARGS,
     "profile(slow, timeout_ns) -> what is in that account, which is empty then; or None."},
    {"set_profile", slot_set_profile, METH_O,
     "set_profile(period_ns): the mean busy time between two looks from now on; 0: none."},
    {"set_dump", slot_set_dump, METH_O,
     "set_dump(fd): where ongoing reports go that nobody takes."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef slot_properties[] = {
    {"key", slot_get_key, NULL, "Names this watch in records.", NULL},
    {"turn", slot_get_turn, NULL, "The number of the turn that goes on.", NULL},
    {"running", slot_get_running, NULL, "Whether the loop runs.", NULL},
    {"thread", lw_slot_thread_name, NULL, "The name of the loop's thread, or None.", NULL},
    {"state", slot_get_state, NULL, "new, active, retiring, retired or forked.", NULL},
    {"threshold_ns", slot_get_threshold, slot_set_threshold, "Nanoseconds that make a stall.",
     NULL},
    {"hang_after_ns", slot_get_hang_after, NULL, "Age of the first ongoing report, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slot_slots[] = {
    {Py_tp_doc, "One watched loop's native half."},
    {Py_tp_new, slot_new},
    {Py_tp_dealloc, slot_dealloc},
    {Py_tp_methods, slot_methods},
    {Py_tp_getset, slot_properties},
    {0, NULL},
};

static PyType_Spec slot_spec = {
    .name = "loopwatch._core.Slot",
    .basicsize = sizeof(SlotObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slot_slots,
};

int
lw_py_slot_add(PyObject *module)
{
    lw_state *state = lw_state_of(module);
    state->slot_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &slot_spec, NULL);
    return state->slot_type ? PyModule_AddType(module, state->slot_type) : -1;
}
