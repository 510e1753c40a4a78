/* Reads the locals `ntodo` and `i` of asyncio.base_events.BaseEventLoop._run_once off its frame.
 *
 * Why: a turn made of many short callbacks blocks the loop as much as a long one, and no single
 * stack shows it. asyncio itself counts: `ntodo` callbacks are ready when the turn begins to run
 * them, `i` is the one that runs.
 *
 * How: the code object is known by its address, for which we hold a reference; a local stands in
 * its frame where co_varnames says. A loop that is not asyncio's has no such frame, and one that
 * overrides _run_once none with this code. Before the first callback runs the locals are not set.
 */
#include <Python.h>

#include "turn.h"

#include "layout.h"

/* Written once, with the GIL, before any snapper is used. Places are bytes from the first local. */
static struct {
    uintptr_t code; /* 0: not found */
    uint32_t callbacks, callback;
    uint32_t length; /* of the locals up to both */
} turn;

/* --- setup, with the GIL --- */

static bool
find_local(PyObject *names, const char *name, uint32_t *place)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), name) == 0) {
            *place = (uint32_t)i * (uint32_t)sizeof(uintptr_t);
            return *place + sizeof(uintptr_t) <= LW_PIECE_BYTES_MAX;
        }
    }
    return false;
}

static bool
find_locals(PyCodeObject *code)
{
    PyObject *names = PyCode_GetVarnames(code);
    bool found = names && find_local(names, "ntodo", &turn.callbacks) &&
                 find_local(names, "i", &turn.callback);
    uint32_t last = turn.callbacks > turn.callback ? turn.callbacks : turn.callback;
    turn.length = last + (uint32_t)sizeof(uintptr_t);
    Py_XDECREF(names);
    return found;
}

/* A new reference, or NULL. */
static PyObject *
find_code(void)
{
    static const char *const path[] = {"BaseEventLoop", "_run_once", "__code__"};
    PyObject *object = PyImport_ImportModule("asyncio.base_events");
    for (size_t i = 0; object && i < sizeof path / sizeof *path; i++) {
        PyObject *attribute = PyObject_GetAttrString(object, path[i]);
        Py_SETREF(object, attribute);
    }
    return object;
}

void
lw_turn_setup(void)
{
    if (turn.code) {
        return;
    }
    PyObject *code = find_code();
    if (code && PyCode_Check(code) && find_locals((PyCodeObject *)code)) {
        turn.code = (uintptr_t)Py_NewRef(code); /* for good: its address must stay its own */
    }
    Py_XDECREF(code);
    PyErr_Clear();
}

/* --- reading, without the GIL --- */

bool
lw_turn_is(uintptr_t code)
{
    return code && code == turn.code;
}

/* A local that is a small int; -1 where it is not, or not set. */
static int32_t
read_int(lw_view *view, uintptr_t word)
{
    const lw_layout *layout = &lw_the_layout;
    if (layout->tag_int && (word & layout->tag_bits) == layout->tag_int) {
        uintptr_t value = word / (layout->tag_bits + 1);
        return value <= INT32_MAX ? (int32_t)value : -1;
    }
    uintptr_t object = word & ~layout->tag_bits;
    const char *copy = object ? lw_view_get(view, object, layout->int_length, NULL) : NULL;
    return copy ? lw_layout_read_int(copy) : -1;
}

void
lw_turn_read(lw_view *view, uintptr_t frame, int32_t *callbacks, int32_t *callback)
{
    *callbacks = *callback = -1;
    const char *locals =
        lw_view_get_stack(view, frame + lw_the_layout.frame_length, turn.length, NULL);
    if (locals) {
        uintptr_t first = lw_word_at(locals, turn.callbacks);
        uintptr_t second = lw_word_at(locals, turn.callback); /* before the copy is used again */
        *callbacks = read_int(view, first);
        *callback = read_int(view, second);
    }
}
