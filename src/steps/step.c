/* loopwatch.step("name"): a context manager around a part of a callback. Where no watched loop runs
 * on the thread it does nothing; else it writes the slot's steps (steps.h).
 *
 * One object may be entered again before it is left, by the same task or by several, so it keeps a
 * stack of entries; the first needs no memory of its own.
 */
#include "step.h"

#include <string.h>

#include "compat.h"
#include "pulses/hook.h"
#include "steps.h"

typedef struct step {
    PyObject_HEAD
    uint32_t name;          /* index in the table of names */
    uint32_t depth;         /* entries in use */
    uint32_t room;          /* entries there is room for */
    lw_step_entry first;    /* what `entries` points to until two are needed */
    lw_step_entry *entries; /* in order of entry */
} step;

/* --- entering and leaving --- */

static bool
make_room(step *self)
{
    uint32_t room = self->room * 2;
    bool is_first = self->entries == &self->first;
    lw_step_entry *entries = is_first ? NULL : self->entries;
    entries = PyMem_Realloc(entries, room * sizeof *entries);
    if (!entries) {
        return false;
    }
    if (is_first) {
        entries[0] = self->first;
    }
    self->entries = entries;
    self->room = room;
    return true;
}

static bool
push(step *self, lw_step_entry entry)
{
    if (self->depth == self->room && !make_room(self)) {
        return false;
    }
    self->entries[self->depth++] = entry;
    return true;
}

static PyObject *
step_enter(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    step *self = (step *)object;
    lw_step_entry entry = lw_steps_enter(self->name, lw_now_ns());
    bool pushed;
    LW_BEGIN_CRITICAL_SECTION(object);
    pushed = push(self, entry);
    LW_END_CRITICAL_SECTION();
    if (!pushed) {
        lw_steps_leave(self->name, &entry, lw_now_ns());
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

static PyObject *
step_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs))
{
    step *self = (step *)object;
    lw_step_entry entry = {0};
    bool entered;
    LW_BEGIN_CRITICAL_SECTION(object);
    entered = self->depth > 0;
    if (entered) {
        entry = self->entries[--self->depth];
    }
    LW_END_CRITICAL_SECTION();
    if (!entered) {
        PyErr_SetString(PyExc_RuntimeError, "a step was left that was not entered");
        return NULL;
    }
    if (entry.slot) {
        lw_steps_leave(self->name, &entry, lw_now_ns());
    }
    Py_RETURN_NONE;
}

/* --- the type --- */

/* The name as bytes of UTF-8: a new reference, NULL with an exception set. Lone surrogates are
 * written as escapes. */
static PyObject *
encode_name(PyObject *name)
{
    if (!PyUnicode_Check(name) || PyUnicode_GetLength(name) == 0) {
        return PyErr_Format(PyExc_TypeError, "the name of a step must be a non-empty str, not %R",
                            name);
    }
    PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace");
    if (bytes && strlen(PyBytes_AS_STRING(bytes)) != (size_t)PyBytes_GET_SIZE(bytes)) {
        PyErr_SetString(PyExc_ValueError, "the name of a step must not contain a null character");
        Py_CLEAR(bytes);
    }
    return bytes;
}

static PyObject *
step_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", NULL};
    PyObject *name;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Step", names, &name)) {
        return NULL;
    }
    PyObject *bytes = encode_name(name);
    if (!bytes) {
        return NULL;
    }
    step *self = (step *)type->tp_alloc(type, 0);
    if (self) {
        self->name = lw_step_index(PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
        self->entries = &self->first;
        self->room = 1;
    }
    Py_DECREF(bytes);
    return (PyObject *)self;
}

static PyObject *
step_repr(PyObject *object)
{
    return PyUnicode_FromFormat("<loopwatch.step '%s'>", lw_step_name(((step *)object)->name));
}

static int
step_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void
step_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    step *self = (step *)object;
    PyObject_GC_UnTrack(object);
    if (self->entries != &self->first) {
        PyMem_Free(self->entries);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"__enter__", step_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))step_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc,
     "Step(name)\n--\n\n"
     "A context manager that names a step inside a callback: its seconds are in Stall.steps\n"
     "of a stall that it is part of. To be entered and left on the loop's thread; where no\n"
     "watched loop runs it does nothing. A process has 255 names of at most 200 bytes,\n"
     "further ones are \"other\". TypeError for a name that is not a str, or empty."},
    {Py_tp_new, step_new},
    {Py_tp_repr, step_repr},
    {Py_tp_methods, methods},
    {Py_tp_traverse, step_traverse},
    {Py_tp_dealloc, step_dealloc},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "loopwatch._core.Step",
    .basicsize = sizeof(step),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

int
lw_step_add(PyObject *module)
{
    return lw_add_type(module, &type_spec);
}
