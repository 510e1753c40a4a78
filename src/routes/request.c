/* One request: request.h says what.
 *
 * A step costs two readings of each clock. CLOCK_THREAD_CPUTIME_ID is a system call, most of the
 * cost, and the only clock that knows what the thread itself used: the process's has the workers in
 * it, and the wall clock the waits for a CPU and for the GIL.
 */
#include "request.h"

#include <stddef.h>

#include "pulses/hook.h"
#include "steps/steps.h"

#define RELAXED memory_order_relaxed
#define ALWAYS_TRIED 4 /* suspensions after which the route is looked for only at powers of two */

typedef struct request {
    PyObject_HEAD
    uint64_t id;           /* from 1, never used twice in a process */
    uint64_t slot_key;     /* of the loop that it began on; 0: none that is watched */
    uint32_t stalls_begun; /* stalls of that loop that had ended when it began */
    bool ended;
    lw_ns begun_ns;
    _Atomic uint64_t ended_ns; /* LW_NS_NEVER: it goes on */
    PyObject *scope;           /* as given, read by any thread */
    PyObject *find;            /* the same; both NULL only once the collector has cleared them */
    _Atomic(PyObject *) route; /* NULL until it is known, then for good */
    uint64_t cpu_ns, busy_ns;  /* until then; the loop thread's own, as what follows */
    uint64_t turn;             /* the last turn that it had a step in, */
    lw_ns turn_ns;             /* and what it took of that without a route */
    uint32_t suspensions;
} request;

static _Atomic uint64_t last_id;

/* The request whose step runs on this thread, or NULL; borrowed, because who runs the step has it. */
static _Thread_local PyObject *running;

static lw_ns
thread_cpu_ns(void)
{
    return lw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static lw_route *
route_of(request *self)
{
    return (lw_route *)atomic_load_explicit(&self->route, memory_order_acquire);
}

static uint32_t
number_of(const lw_route *route)
{
    return route ? route->number : 0;
}

/* --- steps --- */

void
lw_request_enter(PyObject *object, lw_request_step *step)
{
    request *self = (request *)object;
    lw_slot *slot = lw_routes_slot(self->slot_key);
    step->counts = slot && !lw_routes_open(slot, self->id);
    if (step->counts) {
        step->outer = running;
        running = object;
        lw_routes_enter(slot, self->id, number_of(route_of(self)), lw_now_ns(), &step->turn);
        step->cpu_ns = thread_cpu_ns();
    }
}

/* What a request without a route took of the turn that goes on. */
static void
remember(request *self, uint64_t turn, lw_ns ns)
{
    self->turn_ns = self->turn == turn ? self->turn_ns + ns : ns;
    self->turn = turn;
}

void
lw_request_leave(PyObject *object, const lw_request_step *step)
{
    request *self = (request *)object;
    if (!step->counts) {
        return;
    }
    running = step->outer;
    lw_ns cpu_ns = thread_cpu_ns() - step->cpu_ns;
    lw_ns now_ns = lw_now_ns();
    lw_ns busy_ns = now_ns - step->turn.begin_ns;
    lw_slot *slot = step->turn.slot;
    lw_route *route = route_of(self);
    lw_ns turn_ns = lw_routes_leave(&step->turn, self->id, number_of(route), now_ns);
    uint64_t turn = atomic_load_explicit(&slot->cell.turn, RELAXED);
    if (route) {
        lw_route_count(&route->cpu_ns, cpu_ns);
        lw_route_count(&route->busy_ns, busy_ns);
        lw_routes_add(slot, turn, route->number, turn_ns);
    }
    else {
        self->cpu_ns += cpu_ns;
        self->busy_ns += busy_ns;
        remember(self, turn, turn_ns);
    }
}

/* --- the route --- */

/* What was counted before there was a route. */
static void
settle(request *self, lw_route *route)
{
    lw_route_count(&route->cpu_ns, self->cpu_ns);
    lw_route_count(&route->busy_ns, self->busy_ns);
    self->cpu_ns = self->busy_ns = 0;
    lw_slot *slot = lw_routes_slot(self->slot_key);
    if (slot) {
        lw_routes_add(slot, self->turn, route->number, self->turn_ns);
        lw_routes_name(slot, self->id, route->number);
    }
    self->turn_ns = 0;
}

static int
request_set_route(PyObject *object, PyObject *value, void *Py_UNUSED(closure))
{
    request *self = (request *)object;
    if (!value || !lw_is_route(value)) {
        PyErr_SetString(PyExc_TypeError, "the route of a request must be a Route");
        return -1;
    }
    if (route_of(self)) {
        PyErr_SetString(PyExc_RuntimeError, "this request has a route already");
        return -1;
    }
    settle(self, (lw_route *)value);
    atomic_store_explicit(&self->route, Py_NewRef(value), memory_order_release);
    return 0;
}

static PyObject *
request_get_route(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *route = (PyObject *)route_of((request *)object);
    return Py_NewRef(route ? route : Py_None);
}

void
lw_request_suspended(PyObject *object)
{
    request *self = (request *)object;
    if (route_of(self) || self->ended || !self->find) {
        return;
    }
    uint32_t n = ++self->suspensions;
    if (n > ALWAYS_TRIED && (n & (n - 1))) {
        return;
    }
    PyObject *route = PyObject_CallOneArg(self->find, self->scope);
    if (!route || (route != Py_None && request_set_route(object, route, NULL) < 0)) {
        PyErr_WriteUnraisable(self->find);
    }
    Py_XDECREF(route);
}

/* --- its end --- */

/* Counts it once; True where a stall of its loop has ended since it began. */
static PyObject *
request_end(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    request *self = (request *)object;
    lw_route *route = route_of(self);
    if (!self->ended) {
        self->ended = true;
        atomic_store_explicit(&self->ended_ns, lw_now_ns(), memory_order_release);
        if (route) {
            lw_route_count(&route->count, 1);
        }
    }
    lw_slot *slot = lw_routes_slot(self->slot_key);
    bool lived_through =
        slot && atomic_load_explicit(&slot->ended.head, RELAXED) != self->stalls_begun;
    return PyBool_FromLong(lived_through);
}

static PyObject *
request_get_id(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((request *)object)->id);
}

static PyObject *
request_get_begun(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((request *)object)->begun_ns);
}

static PyObject *
request_get_ended(PyObject *object, void *Py_UNUSED(closure))
{
    uint64_t ended_ns = atomic_load_explicit(&((request *)object)->ended_ns, memory_order_acquire);
    return ended_ns == LW_NS_NEVER ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(ended_ns);
}

static PyObject *
request_get_scope(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *scope = ((request *)object)->scope;
    return Py_NewRef(scope ? scope : Py_None);
}

static PyObject *
request_current(PyObject *Py_UNUSED(type), PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(running ? running : Py_None);
}

/* The key of the watched loop that runs here; 0: there is none. */
static PyObject *
request_loop(PyObject *Py_UNUSED(type), PyObject *Py_UNUSED(ignored))
{
    lw_slot *slot = lw_step_scope_slot();
    return PyLong_FromUnsignedLongLong(slot ? slot->key : 0);
}

static PyObject *
request_get_find(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *find = ((request *)object)->find;
    return Py_NewRef(find ? find : Py_None);
}

/* --- the type --- */

static PyObject *
request_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"scope", "find", NULL};
    PyObject *scope, *find;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Request", names, &scope, &find)) {
        return NULL;
    }
    request *self = (request *)type->tp_alloc(type, 0);
    if (!self) {
        return NULL;
    }
    lw_slot *slot = lw_step_scope_slot();
    self->id = atomic_fetch_add_explicit(&last_id, 1, RELAXED) + 1;
    self->begun_ns = lw_now_ns();
    atomic_init(&self->ended_ns, LW_NS_NEVER);
    if (slot) {
        self->slot_key = slot->key;
        self->stalls_begun = atomic_load_explicit(&slot->ended.head, RELAXED);
    }
    self->scope = Py_NewRef(scope);
    self->find = Py_NewRef(find);
    return (PyObject *)self;
}

static int
request_traverse(PyObject *object, visitproc visit, void *arg)
{
    request *self = (request *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->scope);
    Py_VISIT(self->find);
    return 0; /* a Route refers to nothing */
}

static int
request_clear(PyObject *object)
{
    request *self = (request *)object;
    Py_CLEAR(self->scope);
    Py_CLEAR(self->find);
    return 0;
}

static void
request_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)request_clear(object);
    Py_XDECREF((PyObject *)route_of((request *)object));
    type->tp_free(object);
    Py_DECREF(type);
}

bool
lw_is_request(PyObject *object)
{
    return Py_TYPE(object)->tp_dealloc == request_dealloc;
}

static PyMethodDef methods[] = {
    {"end", request_end, METH_NOARGS,
     "It is over: count it. True where a stall of its loop has ended since it began."},
    {"current", request_current, METH_NOARGS | METH_STATIC,
     "The one whose step runs on this thread, or None."},
    {"loop", request_loop, METH_NOARGS | METH_STATIC,
     "The key of the watched loop that runs here; 0: there is none."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"id", request_get_id, NULL, "From 1, unique in the process.", NULL},
    {"begun_ns", request_get_begun, NULL, "On the monotonic clock.", NULL},
    {"ended_ns", request_get_ended, NULL, "On the monotonic clock, or None.", NULL},
    {"find", request_get_find, NULL, "As given.", NULL},
    {"scope", request_get_scope, NULL, "As given.", NULL},
    {"route", request_get_route, request_set_route, "None until it is set; once.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "One request, and what its steps have taken of the loop."},
    {Py_tp_new, request_new},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_traverse, request_traverse},
    {Py_tp_clear, request_clear},
    {Py_tp_dealloc, request_dealloc},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.Request",
    .basicsize = sizeof(request),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

int
lw_request_add(PyObject *module)
{
    return lw_add_type(module, &type_spec);
}
