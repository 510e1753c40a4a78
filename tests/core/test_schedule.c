#include "testcore.h"

#include "watch/schedule.h"

static PyObject *
schedule_first_point(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long threshold_ns;
    return PyArg_ParseTuple(args, "K", &threshold_ns)
               ? PyLong_FromUnsignedLongLong(lw_first_point_ns(threshold_ns))
               : NULL;
}

static PyObject *
schedule_step(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long threshold_ns, age_ns;
    return PyArg_ParseTuple(args, "KK", &threshold_ns, &age_ns)
               ? PyLong_FromUnsignedLongLong(lw_step_ns(threshold_ns, age_ns))
               : NULL;
}

static PyObject *
schedule_jittered(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long step_ns;
    unsigned int random;
    return PyArg_ParseTuple(args, "KI", &step_ns, &random)
               ? PyLong_FromUnsignedLongLong(lw_jitter_ns(step_ns, random))
               : NULL;
}

PyMethodDef lw_test_schedule_methods[] = {
    {"schedule_first_point", schedule_first_point, METH_VARARGS,
     "schedule_first_point(threshold_ns) -> int"},
    {"schedule_step", schedule_step, METH_VARARGS, "schedule_step(threshold_ns, age_ns) -> int"},
    {"schedule_jittered", schedule_jittered, METH_VARARGS,
     "schedule_jittered(step_ns, random) -> int"},
    {NULL, NULL, 0, NULL},
};
