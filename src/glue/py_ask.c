/* Slot.current(), Slot.profile() and Slot.stacks(): a question to the watchdog, and its answer as a
 * record, or None. The GIL is released while the answer is awaited. */
#include "py_ask.h"

#include "pulses/pulse.h"
#include "py_record.h"
#include "py_slot.h"
#include "watch/ask.h"
#include "watch/schedule.h"

static PyObject *
decoded(const lw_record *record)
{
    if (!record) {
        Py_RETURN_NONE;
    }
    PyObject *answer = lw_record_decode(record);
    lw_ask_done();
    return answer;
}

static PyObject *
asked(lw_slot *slot, lw_record_kind kind, lw_ns timeout_ns)
{
    const lw_record *record;
    Py_BEGIN_ALLOW_THREADS
    record = lw_ask(slot, kind, timeout_ns);
    Py_END_ALLOW_THREADS
    return decoded(record);
}

/* A slot that came over a fork is not the watchdog's before its loop runs. */
static bool
is_looked_at(lw_slot *slot)
{
    return lw_slot_active(slot) && !lw_pulse_forked(slot);
}

/* Whether the watchdog could have anything to say, so that a healthy loop is not asked about. */
static bool
may_be_stalled(lw_slot *slot)
{
    lw_beat beat;
    lw_ns begin_ns;
    lw_ns now_ns = lw_now_ns();
    lw_ns threshold_ns = lw_slot_threshold_ns(slot);
    if (!is_looked_at(slot)) {
        return false;
    }
    if (!lw_cell_read(&slot->cell, &beat) ||
        atomic_load_explicit(&slot->refine, memory_order_relaxed)) {
        return true; /* cannot be told from here */
    }
    return lw_beat_late_since(&beat, threshold_ns, now_ns, &begin_ns) &&
           now_ns - begin_ns >= threshold_ns;
}

PyObject *
lw_slot_current(PyObject *object, PyObject *argument)
{
    lw_slot *slot = lw_slot_of(object);
    unsigned long long timeout_ns = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!may_be_stalled(slot)) {
        Py_RETURN_NONE;
    }
    return asked(slot, LW_RECORD_ONGOING, timeout_ns);
}

PyObject *
lw_slot_profile(PyObject *object, PyObject *args)
{
    lw_slot *slot = lw_slot_of(object);
    int slow;
    unsigned long long timeout_ns;
    if (!PyArg_ParseTuple(args, "pK:profile", &slow, &timeout_ns)) {
        return NULL;
    }
    if (!is_looked_at(slot)) {
        Py_RETURN_NONE;
    }
    return asked(slot, slow ? LW_RECORD_SLOW : LW_RECORD_PROFILE, timeout_ns);
}

/* -1 with an exception set. */
static int
fill_threads(PyObject *idents, lw_threads *wanted)
{
    lw_thread_ref here;
    lw_thread_ref_here(&here);
    *wanted = (lw_threads){.interpreter = here.interpreter};
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(idents) && wanted->n < LW_STACKS_MAX; i++) {
        wanted->idents[wanted->n++] = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(idents, i));
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

PyObject *
lw_slot_stacks(PyObject *object, PyObject *args)
{
    lw_slot *slot = lw_slot_of(object);
    PyObject *idents;
    unsigned long long timeout_ns;
    lw_threads wanted;
    if (!PyArg_ParseTuple(args, "O!K:stacks", &PyList_Type, &idents, &timeout_ns) ||
        fill_threads(idents, &wanted) < 0) {
        return NULL;
    }
    if (!is_looked_at(slot)) {
        Py_RETURN_NONE;
    }
    const lw_record *record;
    Py_BEGIN_ALLOW_THREADS
    record = lw_ask_stacks(slot, &wanted, timeout_ns);
    Py_END_ALLOW_THREADS
    return decoded(record);
}
