#include "testcore.h"

#include <stdlib.h>
#include <string.h>

#include "profile/pace.h"
#include "profile/tally.h"
#include "watch/thrift.h"

static PyObject *
profile_gap(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long mean_ns;
    unsigned int random;
    return PyArg_ParseTuple(args, "KI", &mean_ns, &random)
               ? PyLong_FromUnsignedLongLong(lw_pace_gap_ns(mean_ns, random))
               : NULL;
}

/* [(now_ns, cost_ns), ...] -> [allowed, ...]: each is asked, and then spends. */
static PyObject *
thrift_run(PyObject *Py_UNUSED(module), PyObject *steps)
{
    lw_thrift thrift = {0};
    PyObject *answers = PyList_New(0);
    for (Py_ssize_t i = 0; answers && i < PyList_Size(steps); i++) {
        unsigned long long now_ns, cost_ns;
        if (!PyArg_ParseTuple(PyList_GetItem(steps, i), "KK", &now_ns, &cost_ns)) {
            Py_CLEAR(answers);
            break;
        }
        PyObject *allowed = lw_thrift_allows(&thrift, now_ns) ? Py_True : Py_False;
        lw_thrift_spend(&thrift, cost_ns);
        if (PyList_Append(answers, allowed) < 0) {
            Py_CLEAR(answers);
        }
    }
    return answers;
}

/* --- a tally --- */

/* ((code, line), ...) innermost first. */
static int
parse_stack(PyObject *stack, lw_snapshot *out)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(stack); i++) {
        lw_frame *frame = &out->frames[out->depth++];
        unsigned int code;
        int line;
        if (!PyArg_ParseTuple(PyTuple_GetItem(stack, i), "Ii", &code, &line)) {
            return -1;
        }
        *frame = (lw_frame){code, 0, {line, line, 0, 1}};
    }
    out->readable = true;
    return 0;
}

/* One of reference/tally.py's Look. */
static int
add_look(lw_tally *tally, PyObject *look, lw_snapshot *snapshot)
{
    PyObject *stack;
    const char *coroutine;
    int cause, moved;
    unsigned long long weight, count, worst;
    lw_snapshot_clear(snapshot);
    if (!PyArg_ParseTuple(look, "O!siKKKi", &PyTuple_Type, &stack, &coroutine, &cause, &weight,
                          &count, &worst, &moved) ||
        parse_stack(stack, snapshot) < 0) {
        return -1;
    }
    snapshot->task = (lw_task){.known = true, .address = *coroutine != '\0', .native = true};
    strncpy(snapshot->task.coroutine, coroutine, LW_TASK_NAME_MAX);
    lw_evidence evidence = {.known = moved < 0 ? 0 : LW_KNOWS_MOVED, .moved = moved > 0};
    lw_sight sight = {.snapshot = snapshot, .evidence = &evidence, .target = ""};
    lw_portion portion = {(lw_cause)cause, weight, count, worst};
    lw_tally_add(tally, &sight, &portion);
    return 0;
}

static PyObject *
stack_of(const lw_capture *capture, uint32_t node)
{
    PyObject *stack = PyList_New(0);
    for (; stack && node != LW_NO_NODE; node = capture->nodes[node].parent) {
        PyObject *frame = Py_BuildValue("Ii", (unsigned)capture->nodes[node].code,
                                        (int)capture->nodes[node].position.lineno);
        if (!frame || PyList_Append(stack, frame) < 0) {
            Py_CLEAR(stack);
        }
        Py_XDECREF(frame);
    }
    PyObject *tuple = stack ? PyList_AsTuple(stack) : NULL;
    Py_XDECREF(stack);
    return tuple;
}

/* [(stack, coroutine, cause, weight, count, worst), ...] */
static PyObject *
entries_of(const lw_tally *tally)
{
    const lw_capture *capture = &tally->capture;
    PyObject *entries = PyList_New(0);
    for (uint32_t i = 0; entries && i < capture->n_samples; i++) {
        const lw_sample *sample = &capture->samples[i];
        lw_cause cause = lw_largest(&tally->parts[i]);
        PyObject *stack = stack_of(capture, sample->node);
        PyObject *entry =
            stack
                ? Py_BuildValue(
                      "NsiKKK", stack,
                      sample->task == LW_NO_TASK ? "" : capture->tasks[sample->task].coroutine,
                      (int)cause, (unsigned long long)tally->parts[i].ns[cause],
                      (unsigned long long)tally->counts[i], (unsigned long long)tally->worst_ns[i])
                : NULL;
        if (!entry || PyList_Append(entries, entry) < 0) {
            Py_CLEAR(entries);
        }
        Py_XDECREF(entry);
    }
    return entries;
}

/* (looks, settle) -> entries of as many looks as fit, and how many these are. */
static PyObject *
tally_fold(PyObject *Py_UNUSED(module), PyObject *args)
{
    static lw_tally tally; /* its table is used again, as in a slot */
    static lw_snapshot snapshot;
    PyObject *looks;
    int settle;
    if (!PyArg_ParseTuple(args, "O!p", &PyList_Type, &looks, &settle)) {
        return NULL;
    }
    Py_ssize_t n = 0;
    lw_tally_begin(&tally, 0);
    for (; n < PyList_Size(looks) && !lw_tally_full(&tally); n++) {
        if (add_look(&tally, PyList_GetItem(looks, n), &snapshot) < 0) {
            return NULL;
        }
    }
    if (settle) {
        lw_tally_settle(&tally);
    }
    PyObject *entries = entries_of(&tally);
    return entries ? Py_BuildValue("Nn", entries, n) : NULL;
}

PyMethodDef lw_test_profile_methods[] = {
    {"profile_gap", profile_gap, METH_VARARGS, "profile_gap(mean_ns, random) -> int"},
    {"thrift_run", thrift_run, METH_O, "thrift_run([(now_ns, cost_ns)]) -> [bool]"},
    {"tally_fold", tally_fold, METH_VARARGS, "tally_fold([Look], settle) -> ([entry], n)"},
    {NULL, NULL, 0, NULL},
};
