#include "testcore.h"

#include "evidence/verdict.h"

/* A look as a tuple, in the order of reference.evidence.Look; None: there is none. */
static int
parse_look(PyObject *tuple, lw_evidence *look, const lw_evidence **found)
{
    unsigned long long at_ns, cpu_ns, run_queue_ns, throttled_ns, stopped_ns, gc_ns;
    unsigned int known;
    unsigned char moved;
    int stand, gil_others, in_gc, in_finalizer, turn_callbacks, turn_callback;
    *found = NULL;
    if (tuple == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a look is a tuple or None");
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "KKKKKKiIbpppii", &at_ns, &cpu_ns, &run_queue_ns, &throttled_ns,
                          &stopped_ns, &gc_ns, &stand, &known, &moved, &gil_others, &in_gc,
                          &in_finalizer, &turn_callbacks, &turn_callback)) {
        return -1;
    }
    *look = (lw_evidence){
        .known = known,
        .clocks = {at_ns, cpu_ns, run_queue_ns, throttled_ns, stopped_ns, gc_ns, 0},
        .stand = (lw_stand)stand,
        .syscall = -1,
        .moved = moved,
        .gil_others = gil_others,
        .in_gc = in_gc,
        .in_finalizer = in_finalizer,
        .turn_callbacks = turn_callbacks,
        .turn_callback = turn_callback,
    };
    *found = look;
    return 0;
}

static PyObject *
parts_tuple(const lw_parts *parts)
{
    PyObject *result = PyList_New(LW_CAUSES);
    for (int cause = 0; result && cause < LW_CAUSES; cause++) {
        PyObject *ns = PyLong_FromUnsignedLongLong(parts->ns[cause]);
        if (!ns) {
            Py_CLEAR(result);
            break;
        }
        PyList_SET_ITEM(result, cause, ns);
    }
    return result;
}

static PyObject *
parts_list(const lw_parts *parts, Py_ssize_t n)
{
    PyObject *result = PyList_New(n);
    for (Py_ssize_t i = 0; result && i < n; i++) {
        PyObject *item = parts_tuple(&parts[i]);
        if (!item) {
            Py_CLEAR(result);
            break;
        }
        PyList_SET_ITEM(result, i, item);
    }
    return result;
}

static PyObject *
verdict_judge(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long begin_ns, end_ns, gil_begin_ns;
    PyObject *first, *last, *list, *result = NULL;
    if (!PyArg_ParseTuple(args, "KKKOOO!", &begin_ns, &end_ns, &gil_begin_ns, &first, &last,
                          &PyList_Type, &list)) {
        return NULL;
    }
    lw_turn_facts turn = {.begin_ns = begin_ns, .end_ns = end_ns, .gil_begin_ns = gil_begin_ns};
    lw_evidence first_look, last_look;
    size_t n = (size_t)PyList_GET_SIZE(list);
    size_t room = n ? n : 1; /* as lw_judge wants it */
    lw_evidence *looks = PyMem_Calloc(room, sizeof *looks);
    const lw_evidence **samples = PyMem_Calloc(room, sizeof *samples);
    lw_parts *parts = PyMem_Calloc(room, sizeof *parts);
    if (!looks || !samples || !parts) {
        PyErr_NoMemory();
        goto done;
    }
    if (parse_look(first, &first_look, &turn.first) < 0 ||
        parse_look(last, &last_look, &turn.last) < 0) {
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        if (parse_look(PyList_GET_ITEM(list, (Py_ssize_t)i), &looks[i], &samples[i]) < 0) {
            goto done;
        }
    }
    lw_judge(&turn, samples, (uint32_t)n, parts);
    result = parts_list(parts, (Py_ssize_t)room);
done:
    PyMem_Free(looks);
    PyMem_Free(samples);
    PyMem_Free(parts);
    return result;
}

static PyObject *
verdict_largest(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long ns[LW_CAUSES];
    if (!PyArg_ParseTuple(args, "KKKKKKKKKK", &ns[0], &ns[1], &ns[2], &ns[3], &ns[4], &ns[5],
                          &ns[6], &ns[7], &ns[8], &ns[9])) {
        return NULL;
    }
    lw_parts parts;
    for (int cause = 0; cause < LW_CAUSES; cause++) {
        parts.ns[cause] = ns[cause];
    }
    return PyLong_FromLong(lw_largest(&parts));
}

static PyObject *
verdict_cause_name(PyObject *Py_UNUSED(module), PyObject *value)
{
    int cause = (int)PyLong_AsLong(value);
    return cause == -1 && PyErr_Occurred() ? NULL
                                           : PyUnicode_FromString(lw_cause_name((lw_cause)cause));
}

PyMethodDef lw_test_verdict_methods[] = {
    {"verdict_judge", verdict_judge, METH_VARARGS,
     "verdict_judge(begin, end, gil_begin, first, last, samples) -> [[ns of each cause], ...], one "
     "for each sample"},
    {"verdict_largest", verdict_largest, METH_VARARGS, "verdict_largest(*ns) -> int"},
    {"verdict_cause_name", verdict_cause_name, METH_O, "verdict_cause_name(cause) -> str"},
    {NULL, NULL, 0, NULL},
};
