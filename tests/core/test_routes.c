/* Wrappers for src/routes/: the times of a turn by route, without requests. */
#include <Python.h>

#include "routes/routes.h"

#include "glue/py_slot.h"
#include "testcore.h"

static PyObject *
add_route_time(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    unsigned route;
    unsigned long long ns;
    if (!PyArg_ParseTuple(args, "OIK", &object, &route, &ns)) {
        return NULL;
    }
    lw_slot *slot = lw_slot_of(object);
    if (!slot) {
        return NULL;
    }
    uint64_t turn = atomic_load_explicit(&slot->cell.turn, memory_order_relaxed);
    lw_route_step step;
    lw_routes_enter(slot, 1, route, lw_now_ns(), &step);
    (void)lw_routes_leave(&step, 1, route, step.begin_ns);
    lw_routes_add(slot, turn, route, ns);
    Py_RETURN_NONE;
}

static PyObject *
collect_routes(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long length_ns;
    lw_slot *slot = lw_test_slot_and_number(args, &length_ns);
    if (!slot) {
        return NULL;
    }
    uint64_t turn = atomic_load_explicit(&slot->cell.turn, memory_order_relaxed);
    lw_ns now_ns = lw_now_ns();
    lw_turn_routes out;
    lw_ns begin_ns = now_ns > length_ns ? now_ns - length_ns : 0; /* it may have booted just now */
    lw_routes_collect(slot, turn, begin_ns, now_ns, &out);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < out.n; i++) {
        PyObject *pair = Py_BuildValue("IK", (unsigned)out.routes[i].route,
                                       (unsigned long long)out.routes[i].ns);
        if (!pair || PyList_Append(list, pair) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(pair);
    }
    return list
               ? Py_BuildValue("KIKN", (unsigned long long)out.request, (unsigned)out.longest.route,
                               (unsigned long long)out.longest.ns, list)
               : NULL;
}

PyMethodDef lw_test_routes_methods[] = {
    {"add_route_time", add_route_time, METH_VARARGS,
     "add_route_time(slot, route, ns): a step of this turn"},
    {"collect_routes", collect_routes, METH_VARARGS,
     "collect_routes(slot, ns) -> (request, route, ns, [(route, ns)]) of a turn of that length"},
    {NULL, NULL, 0, NULL},
};
