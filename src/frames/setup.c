/* Whether raw capture works here: finds the layout, then compares a snapshot with the interpreter's
 * own frames.
 *
 * A wrong offset must be found here and not in a report, so the comparison is of every frame and
 * every field, on a stack made for it: deep enough for a second chunk of the data stack, with a C
 * call, a generator that delegates and a coroutine that awaits another. It runs once, at import,
 * with the GIL, in well under a millisecond but for compiling its source.
 */
#include <Python.h>

#include "snapshot.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "code.h"
#include "gil.h"
#include "layout.h"
#include "task.h"
#include "turn.h"

static const char *reason = "raw capture was not set up";

/* --- the comparison --- */

typedef struct self_test {
    lw_snapper *snapper;
    lw_snapshot *snapshot;
    bool compared;
    const char *differs; /* what, or NULL */
} self_test;

static const char self_test_source[] = "def dive(n):\n"
                                       "    if n:\n"
                                       "        return dive(n - 1)\n"
                                       "    return list(map(\n"
                                       "        lambda value: value, generate()))\n"
                                       "def generate():\n"
                                       "    yield from delegate()\n"
                                       "def delegate():\n"
                                       "    try:\n"
                                       "        outer().send(None)\n"
                                       "    except StopIteration:\n"
                                       "        yield 1\n"
                                       "async def outer():\n"
                                       "    await inner()\n"
                                       "async def inner():\n"
                                       "    check()\n"
                                       "dive(130)\n";

static bool
same_text(PyObject *object, const char *text, uint32_t length)
{
    PyObject *copy = PyUnicode_DecodeUTF8(text, length, "surrogatepass");
    bool same = object && copy && PyUnicode_Check(object) && PyUnicode_Compare(object, copy) == 0;
    Py_XDECREF(copy);
    return same;
}

/* What differs between a frame of the snapshot and the interpreter's, or NULL. */
static const char *
compare_frame(const self_test *test, const lw_frame *shown, PyFrameObject *frame)
{
    const lw_code *known = lw_code_get(test->snapper, shown->code);
    PyCodeObject *code = PyFrame_GetCode(frame);
    int lasti = PyFrame_GetLasti(frame);
    int line = -1, column = -1, end_line = -1, end_column = -1;
    const char *differs = NULL;
    if (!same_text(code->co_filename, known->filename, known->filename_length) &&
        known->filename_length < LW_NAME_MAX) {
        differs = "a file name read from memory differs from the interpreter's own";
    }
    else if (!same_text(code->co_qualname, known->qualname, known->qualname_length) &&
             known->qualname_length < LW_NAME_MAX) {
        differs = "a function's name read from memory differs from the interpreter's own";
    }
    else if (shown->instruction != lasti) {
        differs = "an instruction read from memory differs from the interpreter's own";
    }
    else if (!PyCode_Addr2Location(code, lasti, &line, &column, &end_line, &end_column) ||
             line != shown->position.lineno || end_line != shown->position.end_lineno ||
             column != shown->position.colno || end_column != shown->position.end_colno) {
        differs = "a line or column read from memory differs from the interpreter's own";
    }
    Py_DECREF(code);
    return differs;
}

/* As above for the whole stack of this thread, without what the snapshot left out. */
static const char *
compare_stack(const self_test *test)
{
    const lw_snapshot *snapshot = test->snapshot;
    const char *differs = NULL;
    uint32_t i = 0;
    if (!snapshot->readable) {
        return "this thread's frames could not be read";
    }
    if (snapshot->quality == LW_MOVING) {
        return "two walks along this thread's frames did not agree";
    }
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    while (frame && i < snapshot->depth && !differs && (!snapshot->truncated || i < LW_INNER_MAX)) {
        differs = compare_frame(test, &snapshot->frames[i++], frame);
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    if (!differs && !snapshot->truncated && (frame || i < snapshot->depth)) {
        differs = "the depth read from memory differs from the interpreter's own";
    }
    Py_XDECREF(frame);
    return differs;
}

static PyObject *
check(PyObject *capsule, PyObject *Py_UNUSED(unused))
{
    self_test *test = PyCapsule_GetPointer(capsule, NULL);
    if (!test) {
        return NULL;
    }
    lw_thread_ref here;
    lw_thread_ref_here(&here);
    /* Twice: the second snapshot goes by the first one's guess. */
    for (int i = 0; i < 2 && !test->differs; i++) {
        lw_snapshot_take(test->snapper, &here, test->snapshot);
        test->differs = compare_stack(test);
    }
    test->compared = true;
    Py_RETURN_NONE;
}

static PyMethodDef check_method = {"check", check, METH_NOARGS, NULL};

/* Runs the source with `check` in its globals; -1 with an exception set. */
static int
run_self_test(self_test *test)
{
    int result = -1;
    PyObject *capsule = PyCapsule_New(test, NULL, NULL);
    PyObject *function = capsule ? PyCFunction_New(&check_method, capsule) : NULL;
    PyObject *globals = PyDict_New();
    PyObject *code = Py_CompileString(self_test_source, "<loopwatch self-test>", Py_file_input);
    if (function && globals && code && PyDict_SetItemString(globals, "check", function) == 0 &&
        PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0) {
        PyObject *value = PyEval_EvalCode(code, globals, globals);
        result = value ? 0 : -1;
        Py_XDECREF(value);
        PyDict_Clear(globals); /* its functions refer back to it */
    }
    Py_XDECREF(code);
    Py_XDECREF(globals);
    Py_XDECREF(function);
    Py_XDECREF(capsule);
    return result;
}

static lw_result
self_test_all(lw_reader *reader)
{
    self_test test = {.snapper = lw_snapper_new(reader), .snapshot = malloc(sizeof(lw_snapshot))};
    lw_result result = LW_OK;
    if (!test.snapper || !test.snapshot) {
        reason = lw_result_message(LW_ERR_MEMORY);
        result = LW_ERR_MEMORY;
    }
    else if (run_self_test(&test) < 0 || !test.compared) {
        PyErr_Clear();
        reason = "the self-test's own code could not run";
        result = LW_ERR_FRAMES_SELFTEST;
    }
    else if (test.differs) {
        reason = test.differs;
        result = LW_ERR_FRAMES_SELFTEST;
    }
    free(test.snapshot);
    lw_snapper_free(test.snapper);
    return result;
}

/* --- the file of bdb --- */

/* Beside os, which is always imported: its code has the path that an import of bdb gets as well. */
static void
find_bdb(void)
{
    PyObject *os = PyImport_ImportModule("os");
    PyObject *file = os ? PyObject_GetAttrString(os, "__file__") : NULL;
    const char *path = file ? PyUnicode_AsUTF8(file) : NULL;
    const char *slash = path ? strrchr(path, '/') : NULL;
    char bdb[LW_NAME_MAX + 1];
    if (slash &&
        snprintf(bdb, sizeof bdb, "%.*s/bdb.py", (int)(slash - path), path) < (int)sizeof bdb) {
        lw_codes_set_bdb(bdb);
    }
    PyErr_Clear(); /* a frozen library without files: no bdb of it either */
    Py_XDECREF(file);
    Py_XDECREF(os);
}

/* --- --- */

static lw_result
setup(void)
{
    lw_result result = lw_layout_setup(&reason);
    if (result != LW_OK) {
        return result;
    }
    find_bdb();
    (void)lw_task_setup();
    lw_turn_setup();
    /* On this thread, whose descriptor table is the program's, no backend that writes to a
     * descriptor will do. */
    int mem_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    lw_reader reader;
    lw_reader_open(&reader, false, mem_fd);
    if (reader.backend == LW_READ_NONE) {
        reason = lw_result_message(LW_ERR_FRAMES_READ);
        result = LW_ERR_FRAMES_READ;
    }
    else {
        (void)lw_gil_setup(&reader);
        result = self_test_all(&reader);
    }
    lw_reader_close(&reader);
    if (mem_fd >= 0) {
        close(mem_fd);
    }
    return result;
}

lw_result
lw_frames_setup(void)
{
    static bool done;
    static lw_result result;
    if (!done) {
        result = setup();
        done = true;
        if (result == LW_OK) {
            reason = NULL;
        }
    }
    return result;
}

const char *
lw_frames_reason(void)
{
    return reason;
}
