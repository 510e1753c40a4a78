/* The hook for selectors that are not exactly selectors.EpollSelector: it calls their own select
 * and stamps the time around it. The wait for the GIL is within the original and counts as waiting;
 * the descriptor, where there is one, lets the watchdog see at a sample that an event is ready and
 * the thread not back. */
#include "wrapped_select.h"

#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <structmember.h>
#include <unistd.h>

#include "hook.h"
#include "watch/watchdog.h"

typedef struct wrapped_select {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    lw_hook hook;
    PyObject *select; /* the original, bound */
} wrapped_select;

/* The descriptor that is readable when the selector has something, in the program's table; -1:
 * none. It is kept as a number, not as memory, so that nothing has to outlive the watchdog's
 * look. */
static int
ready_fd(lw_slot *slot)
{
    return (int)(intptr_t)atomic_load_explicit(&slot->pulse_data, memory_order_relaxed) - 1;
}

static bool
has_event(int program_fd)
{
    int fd = lw_fdtable_adopt(lw_watchdog_fds(), program_fd);
    if (fd < 0) {
        return false;
    }
    struct pollfd asked = {.fd = fd, .events = POLLIN};
    bool ready = poll(&asked, 1, 0) == 1 && (asked.revents & POLLIN) != 0;
    close(fd);
    return ready;
}

/* slot->refine of this pulse; on the watchdog thread, without the GIL. An event that lies ready
 * while the thread does not come back: it waits for the GIL, or for a CPU. The loop is late since
 * somebody first looked; lw_pulse_back() takes that as the wait's due time. Polling an epoll
 * descriptor takes no event from it, level- or edge-triggered. */
static void
refine_ready(lw_slot *slot, lw_beat *beat, lw_ns now_ns)
{
    bool seen = atomic_load_explicit(&slot->ready_turn, memory_order_relaxed) == beat->turn;
    if (!has_event(ready_fd(slot))) {
        return;
    }
    if (!seen) {
        atomic_store_explicit(&slot->ready_ns, now_ns, memory_order_relaxed);
        atomic_store_explicit(&slot->ready_turn, beat->turn, memory_order_release);
    }
    lw_ns ready_ns = atomic_load_explicit(&slot->ready_ns, memory_order_relaxed);
    if (ready_ns < beat->due_ns) {
        beat->due_ns = ready_ns;
    }
}

static PyObject *
wrapped_select_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    wrapped_select *self = (wrapped_select *)object;
    if (lw_hook_gone(&self->hook)) {
        return lw_hook_raise_gone(object);
    }
    lw_ns now_ns = lw_now_ns();
    lw_hook_arrive(&self->hook, object);
    return lw_hook_call_select(&self->hook, now_ns, self->select, args, nargsf, kwnames);
}

static PyObject *
wrapped_select_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slot", "select", "fileno", NULL};
    PyObject *slot, *select;
    int fileno;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOi:WrappedSelect", names, &slot, &select,
                                     &fileno)) {
        return NULL;
    }
    if (!PyCallable_Check(select)) {
        return PyErr_Format(PyExc_TypeError, "select must be callable, not %.100s",
                            Py_TYPE(select)->tp_name);
    }
    if (fileno < -1 || fileno == INT_MAX) {
        return PyErr_Format(PyExc_ValueError, "not a descriptor or -1: %d", fileno);
    }
    wrapped_select *self = (wrapped_select *)type->tp_alloc(type, 0);
    if (!self) {
        return NULL;
    }
    if (lw_hook_init(&self->hook, slot) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->vectorcall = wrapped_select_call;
    self->select = Py_NewRef(select);
    lw_slot *watched = self->hook.slot;
    atomic_store_explicit(&watched->pulse_data, (void *)(intptr_t)(fileno + 1),
                          memory_order_relaxed);
    if (fileno >= 0) {
        atomic_store_explicit(&watched->refine, refine_ready, memory_order_release);
    }
    return (PyObject *)self;
}

static int
wrapped_select_traverse(PyObject *object, visitproc visit, void *arg)
{
    wrapped_select *self = (wrapped_select *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->select);
    return lw_hook_traverse(&self->hook, visit, arg);
}

static int
wrapped_select_clear(PyObject *object)
{
    wrapped_select *self = (wrapped_select *)object;
    lw_hook_clear(&self->hook);
    Py_CLEAR(self->select);
    return 0;
}

static void
wrapped_select_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)wrapped_select_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(wrapped_select, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "Another selector's own select, stamped before and after."},
    {Py_tp_new, wrapped_select_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, members},
    {Py_tp_traverse, wrapped_select_traverse},
    {Py_tp_clear, wrapped_select_clear},
    {Py_tp_dealloc, wrapped_select_dealloc},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.WrappedSelect",
    .basicsize = sizeof(wrapped_select),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

int
lw_wrapped_select_add(PyObject *module)
{
    return lw_add_type(module, &type_spec);
}
