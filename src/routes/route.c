/* The totals of one route: route.h says what. */
#include "route.h"

#include "pulses/hook.h"

static void
route_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

bool
lw_is_route(PyObject *object)
{
    return Py_TYPE(object)->tp_dealloc == route_dealloc;
}

static PyObject *
route_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"number", NULL};
    unsigned number;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "I:Route", names, &number)) {
        return NULL;
    }
    if (!number) {
        PyErr_SetString(PyExc_ValueError, "the number of a route is from 1 on: 0 is no route");
        return NULL;
    }
    lw_route *self = (lw_route *)type->tp_alloc(type, 0);
    if (self) {
        self->number = number;
    }
    return (PyObject *)self;
}

static PyObject *
route_get_number(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(((lw_route *)object)->number);
}

static PyObject *
read_counter(_Atomic uint64_t *counter)
{
    return PyLong_FromUnsignedLongLong(atomic_load_explicit(counter, memory_order_relaxed));
}

static PyObject *
route_get_count(PyObject *object, void *Py_UNUSED(closure))
{
    return read_counter(&((lw_route *)object)->count);
}

static PyObject *
route_get_cpu(PyObject *object, void *Py_UNUSED(closure))
{
    return read_counter(&((lw_route *)object)->cpu_ns);
}

static PyObject *
route_get_busy(PyObject *object, void *Py_UNUSED(closure))
{
    return read_counter(&((lw_route *)object)->busy_ns);
}

static PyGetSetDef properties[] = {
    {"number", route_get_number, NULL, "In the watch's table, from 1.", NULL},
    {"count", route_get_count, NULL, "Requests that have ended.", NULL},
    {"cpu_ns", route_get_cpu, NULL, "CPU time of the loop's thread.", NULL},
    {"busy_ns", route_get_busy, NULL, "Time on the loop's thread.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "What the requests of one route have taken of the loop."},
    {Py_tp_new, route_new},
    {Py_tp_getset, properties},
    {Py_tp_dealloc, route_dealloc},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.Route",
    .basicsize = sizeof(lw_route),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

int
lw_route_add(PyObject *module)
{
    return lw_add_type(module, &type_spec);
}
