/* The hook around loop.run_forever: a loop that does not run is not stalled, and a selector's hook
 * alone does not see the end of a run. run_until_complete and asyncio.Runner go through
 * run_forever, on stock loops and on uvloop.
 *
 * The end is stamped however the original comes back: a result, an exception, KeyboardInterrupt,
 * SystemExit. While it runs, the loop is the one that the thread's steps (steps.h) belong to.
 */
#include "run_edge.h"

#include <stddef.h>
#include <structmember.h>

#include "hook.h"
#include "steps/steps.h"
#include "uv_handle.h"

typedef struct run_edge {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    lw_hook hook;
    PyObject *run_forever; /* the original, bound */
    PyObject *begin;       /* called before each run, or NULL */
    PyObject *end;         /* likewise after it, however it ended */
    _Atomic bool running; /* a call is inside: a loop that is run again from within, or from another
                             thread, refuses (or, patched, goes on within the same run), and in
                             neither case does a run begin or end */
} run_edge;

/* Call begin or end. What it raises is not the run's, and what the run raised stays raised. */
static void
tell(PyObject *callback)
{
    if (!callback) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result = PyObject_CallNoArgs(callback);
    if (!result) {
        PyErr_WriteUnraisable(callback);
    }
    Py_XDECREF(result);
    PyErr_Restore(type, value, traceback);
}

static PyObject *
run_edge_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    run_edge *self = (run_edge *)object;
    if (lw_hook_gone(&self->hook)) {
        return lw_hook_raise_gone(object);
    }
    if (atomic_exchange_explicit(&self->running, true, memory_order_acquire)) {
        return PyObject_Vectorcall(self->run_forever, args, nargsf, kwnames);
    }
    lw_slot *slot = self->hook.slot;
    lw_hook_arrive(&self->hook, object);
    tell(self->begin);
    lw_step_scope outer = lw_step_scope_enter(slot);
    lw_pulse_run_begin(slot, lw_now_ns());
    PyObject *result = PyObject_Vectorcall(self->run_forever, args, nargsf, kwnames);
    lw_uv_run_end(slot);
    lw_pulse_run_end(slot, lw_now_ns());
    lw_step_scope_leave(outer);
    tell(self->end);
    atomic_store_explicit(&self->running, false, memory_order_release);
    return result;
}

static PyObject *
run_edge_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slot", "run_forever", "begin", "end", NULL};
    PyObject *slot, *run_forever, *begin = NULL, *end = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:RunEdge", names, &slot, &run_forever,
                                     &begin, &end)) {
        return NULL;
    }
    if (!PyCallable_Check(run_forever)) {
        return PyErr_Format(PyExc_TypeError, "run_forever must be callable, not %.100s",
                            Py_TYPE(run_forever)->tp_name);
    }
    run_edge *self = (run_edge *)type->tp_alloc(type, 0);
    if (!self) {
        return NULL;
    }
    if (lw_hook_init(&self->hook, slot) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->vectorcall = run_edge_call;
    self->run_forever = Py_NewRef(run_forever);
    self->begin = Py_XNewRef(begin);
    self->end = Py_XNewRef(end);
    return (PyObject *)self;
}

static int
run_edge_traverse(PyObject *object, visitproc visit, void *arg)
{
    run_edge *self = (run_edge *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->run_forever);
    Py_VISIT(self->begin);
    Py_VISIT(self->end);
    return lw_hook_traverse(&self->hook, visit, arg);
}

static int
run_edge_clear(PyObject *object)
{
    run_edge *self = (run_edge *)object;
    lw_hook_clear(&self->hook);
    Py_CLEAR(self->run_forever);
    Py_CLEAR(self->begin);
    Py_CLEAR(self->end);
    return 0;
}

static void
run_edge_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)run_edge_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(run_edge, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "loop.run_forever: begin, the original, end."},
    {Py_tp_new, run_edge_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, members},
    {Py_tp_traverse, run_edge_traverse},
    {Py_tp_clear, run_edge_clear},
    {Py_tp_dealloc, run_edge_dealloc},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.RunEdge",
    .basicsize = sizeof(run_edge),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

int
lw_run_edge_add(PyObject *module)
{
    return lw_add_type(module, &type_spec);
}
