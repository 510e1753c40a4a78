/* Looking at the GIL with and without it, for tests/core/test_gil.py. */
#define PY_SSIZE_T_CLEAN
#include "testcore.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frames/gil.h"
#include "test_frames.h"

static uintptr_t
interpreter_here(void)
{
    return (uintptr_t)PyThreadState_GetInterpreter(PyThreadState_Get());
}

static PyObject *
gil_reason(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("z", lw_gil_reason());
}

static PyObject *
gil_dict(const lw_gil *gil)
{
    return Py_BuildValue("{sOsOsOsKs(KK)}", "known", gil->known ? Py_True : Py_False, "enabled",
                         gil->enabled ? Py_True : Py_False, "locked",
                         gil->locked ? Py_True : Py_False, "holder",
                         (unsigned long long)gil->holder, "range", (unsigned long long)gil->begin,
                         (unsigned long long)gil->end);
}

static PyObject *
gil_look(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    lw_reader reader;
    lw_gil gil;
    lw_reader_open(&reader, false, -1);
    lw_gil_look(&reader, interpreter_here(), &gil);
    lw_reader_close(&reader);
    return gil_dict(&gil);
}

/* --- while others have it --- */

#define LOOKS_MAX 1000

static PyObject *
holders_list(const lw_gil *seen, int n)
{
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *holder =
            seen[i].locked ? PyLong_FromUnsignedLongLong(seen[i].holder) : Py_NewRef(Py_None);
        if (!holder) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, holder);
    }
    return list;
}

static PyObject *
gil_watch(PyObject *Py_UNUSED(module), PyObject *args)
{
    static lw_gil seen[LOOKS_MAX]; /* one test at a time */
    int n;
    long gap_us;
    if (!PyArg_ParseTuple(args, "il", &n, &gap_us)) {
        return NULL;
    }
    n = n < LOOKS_MAX ? n : LOOKS_MAX;
    lw_reader reader;
    lw_reader_open(&reader, false, -1);
    uintptr_t interpreter = interpreter_here();
    Py_BEGIN_ALLOW_THREADS;
    for (int i = 0; i < n; i++) {
        nanosleep(&(struct timespec){gap_us / 1000000, gap_us % 1000000 * 1000}, NULL);
        lw_gil_look(&reader, interpreter, &seen[i]);
    }
    Py_END_ALLOW_THREADS;
    lw_reader_close(&reader);
    return holders_list(seen, n);
}

/* Waits without the GIL until another thread has had it for two looks in a row, and looks at that
 * one. */
static PyObject *
gil_holder_snapshot(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule;
    int tries;
    if (!PyArg_ParseTuple(args, "Oi", &capsule, &tries)) {
        return NULL;
    }
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    lw_snapshot *snapshot = malloc(sizeof *snapshot);
    if (!handle || !snapshot) {
        return PyErr_NoMemory();
    }
    uintptr_t interpreter = interpreter_here();
    lw_gil gil = {0};
    lw_thread_ref holder = {0};
    bool found = false;
    Py_BEGIN_ALLOW_THREADS;
    for (int i = 0; i < tries && !found; i++) {
        uintptr_t before = gil.holder;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        lw_gil_look(&handle->reader, interpreter, &gil);
        found = gil.holder && gil.holder == before &&
                lw_gil_holder_ref(&handle->reader, gil.holder, interpreter, &holder);
    }
    lw_snapshot_take(handle->snapper, &holder, snapshot);
    Py_END_ALLOW_THREADS;
    PyObject *result = NULL;
    PyObject *shown = lw_test_snapshot(handle->snapper, snapshot);
    if (shown) {
        result = Py_BuildValue("OkN", found ? Py_True : Py_False, holder.ident, shown);
    }
    free(snapshot);
    return result;
}

static PyObject *
fields(const lw_thread_ref *ref)
{
    return Py_BuildValue("KKiiOk", (unsigned long long)ref->tstate,
                         (unsigned long long)ref->interpreter, (int)ref->tid, (int)ref->cpu_clock,
                         ref->has_cpu_clock ? Py_True : Py_False, ref->ident);
}

static PyObject *
gil_ref_here(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    lw_thread_ref ref;
    lw_thread_ref_here(&ref);
    return fields(&ref);
}

static PyObject *
gil_ref(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long tstate, interpreter = interpreter_here();
    if (!PyArg_ParseTuple(args, "K|K", &tstate, &interpreter)) {
        return NULL;
    }
    lw_thread_ref ref;
    lw_reader reader;
    lw_reader_open(&reader, false, -1);
    bool found = lw_gil_holder_ref(&reader, (uintptr_t)tstate, (uintptr_t)interpreter, &ref);
    lw_reader_close(&reader);
    return found ? fields(&ref) : Py_NewRef(Py_None);
}

/* --- readers that lie --- */

static size_t
read_nothing(lw_reader *Py_UNUSED(reader), const lw_segment *Py_UNUSED(segments),
             size_t Py_UNUSED(n))
{
    return 0;
}

static size_t
read_noise(lw_reader *reader, const lw_segment *segments, size_t n)
{
    uint64_t *random = reader->context;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < segments[i].length; j++) {
            *random = *random * UINT64_C(6364136223846793005) + 1;
            ((unsigned char *)segments[i].copy)[j] =
                (unsigned char)(*random >> 56 & (*random >> 48));
        }
    }
    return n;
}

static PyObject *
gil_of_nothing(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    lw_reader reader = {.read = read_nothing};
    lw_gil gil;
    lw_gil_look(&reader, interpreter_here(), &gil);
    return gil_dict(&gil);
}

/* How many thread states made of noise pass for a thread of ours. */
static PyObject *
gil_of_noise(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long seed;
    int rounds;
    if (!PyArg_ParseTuple(args, "Ki", &seed, &rounds)) {
        return NULL;
    }
    uint64_t random = seed;
    lw_reader reader = {.read = read_noise, .context = &random};
    int believed = 0;
    for (int i = 0; i < rounds; i++) {
        lw_gil gil;
        lw_thread_ref ref;
        lw_gil_look(&reader, interpreter_here(), &gil);
        believed += lw_gil_holder_ref(&reader, gil.holder | 8, interpreter_here(), &ref);
    }
    return PyLong_FromLong(believed);
}

PyMethodDef lw_test_gil_methods[] = {
    {"gil_reason", gil_reason, METH_NOARGS, "gil_reason() -> str | None"},
    {"gil_look", gil_look, METH_NOARGS, "gil_look() -> dict, with the GIL held"},
    {"gil_watch", gil_watch, METH_VARARGS,
     "gil_watch(n, gap_us) -> the holder's thread state at n looks without the GIL, None: nobody"},
    {"gil_holder_snapshot", gil_holder_snapshot, METH_VARARGS,
     "gil_holder_snapshot(snapper, tries) -> (found, ident, snapshot)"},
    {"gil_ref_here", gil_ref_here, METH_NOARGS,
     "gil_ref_here() -> (tstate, interpreter, tid, cpu_clock, has_cpu_clock, ident)"},
    {"gil_ref", gil_ref, METH_VARARGS,
     "gil_ref(tstate, interpreter=here) -> as gil_ref_here(), or None"},
    {"gil_of_nothing", gil_of_nothing, METH_NOARGS, "gil_of_nothing() -> dict; no read succeeds"},
    {"gil_of_noise", gil_of_noise, METH_VARARGS,
     "gil_of_noise(seed, rounds) -> thread states believed"},
    {NULL, NULL, 0, NULL},
};
