/* Wrappers around src/frames/: snapshots from this or from a native thread, and the parts by
 * themselves. */
#define PY_SSIZE_T_CLEAN
#include "testcore.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "frames/snapshot.h"
#include "test_frames.h"

static const char *const qualities[] = {"moving", "consistent", "exact"};

/* --- handles --- */

static void
free_handle(PyObject *capsule)
{
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    lw_snapper_free(handle->snapper);
    lw_codes_free(handle->codes);
    lw_reader_close(&handle->reader);
    free(handle);
}

static PyObject *
snapper_new(PyObject *Py_UNUSED(module), PyObject *args)
{
    int backend = -1;
    if (!PyArg_ParseTuple(args, "|i", &backend)) {
        return NULL;
    }
    lw_test_snapper *handle = calloc(1, sizeof *handle);
    if (!handle) {
        return PyErr_NoMemory();
    }
    if (backend < 0) {
        lw_reader_open(&handle->reader, false, -1);
    }
    else {
        /* Nothing in the test's process closes descriptors behind our back, so the memfd is fine
         * here. */
        lw_reader_open_as(&handle->reader, (lw_read_backend)backend, true, -1);
    }
    handle->snapper = lw_snapper_new(&handle->reader);
    handle->codes = lw_codes_new(&handle->reader, &handle->counts);
    if (!handle->snapper || !handle->codes) {
        free(handle);
        return PyErr_NoMemory();
    }
    return PyCapsule_New(handle, LW_TEST_SNAPPER, free_handle);
}

static PyObject *
snapper_backend(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    return handle ? PyUnicode_FromString(lw_read_backend_name(handle->reader.backend)) : NULL;
}

static PyObject *
thread_ref(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    lw_thread_ref ref;
    lw_thread_ref_here(&ref);
    return PyBytes_FromStringAndSize((const char *)&ref, sizeof ref);
}

bool
lw_test_thread(PyObject *bytes, lw_thread_ref *thread)
{
    if (!PyBytes_Check(bytes) || PyBytes_GET_SIZE(bytes) != sizeof *thread) {
        PyErr_SetString(PyExc_TypeError, "not made by frames_thread_ref()");
        return false;
    }
    memcpy(thread, PyBytes_AS_STRING(bytes), sizeof *thread);
    return true;
}

/* --- snapshots --- */

static PyObject *
frame_tuple(const lw_snapper *snapper, const lw_frame *frame)
{
    const lw_code *code = lw_code_get(snapper, frame->code);
    PyObject *filename =
        PyUnicode_DecodeUTF8(code->filename, code->filename_length, "surrogatepass");
    PyObject *qualname =
        PyUnicode_DecodeUTF8(code->qualname, code->qualname_length, "surrogatepass");
    const lw_position *at = &frame->position;
    PyObject *tuple = NULL;
    if (filename && qualname) {
        tuple = Py_BuildValue("OiOiiii", filename, at->lineno, qualname, at->end_lineno, at->colno,
                              at->end_colno, frame->instruction);
    }
    Py_XDECREF(filename);
    Py_XDECREF(qualname);
    return tuple;
}

PyObject *
lw_test_snapshot(const lw_snapper *snapper, const lw_snapshot *snapshot)
{
    PyObject *frames = PyList_New(snapshot->depth);
    for (uint32_t i = 0; frames && i < snapshot->depth; i++) {
        PyObject *tuple = frame_tuple(snapper, &snapshot->frames[i]);
        if (!tuple) {
            Py_CLEAR(frames);
            return NULL;
        }
        PyList_SET_ITEM(frames, i, tuple);
    }
    return frames ? Py_BuildValue("{sNsssIsOsOs(ii)sK}", "frames", frames, "quality",
                                  qualities[snapshot->quality], "truncated", snapshot->truncated,
                                  "readable", snapshot->readable ? Py_True : Py_False, "debugger",
                                  snapshot->debugger ? Py_True : Py_False, "turn",
                                  snapshot->turn_callbacks, snapshot->turn_callback, "top_frame",
                                  (unsigned long long)snapshot->top_frame)
                  : NULL;
}

typedef struct native_job {
    lw_snapper *snapper;
    lw_thread_ref thread;
    lw_snapshot *snapshot;
    int repeat;
    lw_ns *times;
} native_job;

/* A thread that Python knows nothing of. */
static void *
run_native(void *arg)
{
    native_job *job = arg;
    for (int i = 0; i < job->repeat; i++) {
        lw_ns begin_ns = lw_clock_ns(CLOCK_MONOTONIC);
        lw_snapshot_take(job->snapper, &job->thread, job->snapshot);
        if (job->times) {
            job->times[i] = lw_clock_ns(CLOCK_MONOTONIC) - begin_ns;
        }
    }
    return NULL;
}

static bool
run_job(native_job *job, bool native)
{
    pthread_t id;
    int error = 0;
    if (!native) {
        run_native(job);
        return true;
    }
    Py_BEGIN_ALLOW_THREADS;
    error = pthread_create(&id, NULL, run_native, job);
    if (!error) {
        pthread_join(id, NULL);
    }
    Py_END_ALLOW_THREADS;
    if (error) {
        PyErr_SetString(PyExc_RuntimeError, "no thread");
    }
    return !error;
}

static PyObject *
snapshot(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule, *ref;
    int native = 1;
    native_job job = {.repeat = 1};
    if (!PyArg_ParseTuple(args, "OO|p", &capsule, &ref, &native) ||
        !lw_test_thread(ref, &job.thread)) {
        return NULL;
    }
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    job.snapshot = malloc(sizeof *job.snapshot);
    if (!handle || !job.snapshot) {
        return NULL;
    }
    job.snapper = handle->snapper;
    PyObject *result =
        run_job(&job, native) ? lw_test_snapshot(handle->snapper, job.snapshot) : NULL;
    free(job.snapshot);
    return result;
}

static int
compare_ns(const void *a, const void *b)
{
    lw_ns one = *(const lw_ns *)a, two = *(const lw_ns *)b;
    return (one > two) - (one < two);
}

static PyObject *
time_snapshots(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule, *ref;
    native_job job = {0};
    if (!PyArg_ParseTuple(args, "OOi", &capsule, &ref, &job.repeat) ||
        !lw_test_thread(ref, &job.thread)) {
        return NULL;
    }
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    job.snapshot = malloc(sizeof *job.snapshot);
    job.times = malloc((size_t)job.repeat * sizeof *job.times);
    if (!handle || !job.snapshot || !job.times) {
        return PyErr_NoMemory();
    }
    job.snapper = handle->snapper;
    uint64_t calls = handle->reader.calls;
    PyObject *result = NULL;
    if (run_job(&job, true)) {
        qsort(job.times, (size_t)job.repeat, sizeof *job.times, compare_ns);
        result = Py_BuildValue("Kd", (unsigned long long)job.times[job.repeat / 2],
                               (double)(handle->reader.calls - calls) / job.repeat);
    }
    free(job.times);
    free(job.snapshot);
    return result;
}

static PyObject *
glance(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule, *ref;
    lw_thread_ref thread;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &ref) || !lw_test_thread(ref, &thread)) {
        return NULL;
    }
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    return handle ? PyLong_FromUnsignedLongLong(lw_snapshot_glance(handle->snapper, &thread))
                  : NULL;
}

/* How often two glances in a row differ, while the thread can have the GIL. */
static PyObject *
glances(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule, *ref;
    lw_thread_ref thread;
    long n, moved = 0;
    if (!PyArg_ParseTuple(args, "OOl", &capsule, &ref, &n) || !lw_test_thread(ref, &thread)) {
        return NULL;
    }
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    if (!handle) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    const struct timespec pause = {.tv_nsec = 100000};
    uint64_t before = lw_snapshot_glance(handle->snapper, &thread);
    for (long i = 0; i < n; i++) {
        nanosleep(&pause, NULL);
        uint64_t now = lw_snapshot_glance(handle->snapper, &thread);
        moved += now != before;
        before = now;
    }
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(moved);
}

/* How often the thread left where it is, after one glance, while it can have the GIL. */
static PyObject *
leaves(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule, *ref;
    lw_thread_ref thread;
    uint32_t count = 0;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &ref) || !lw_test_thread(ref, &thread)) {
        return NULL;
    }
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    if (!handle) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL); /* to get the GIL, and a CPU */
    if (lw_snapshot_glance(handle->snapper, &thread)) {
        count = lw_snapshot_leaves(handle->snapper);
    }
    Py_END_ALLOW_THREADS;
    return PyLong_FromUnsignedLong(count);
}

static PyObject *
top_here(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromVoidPtr((void *)lw_snapshot_top_here());
}

static PyObject *
counts(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    if (!handle) {
        return NULL;
    }
    const lw_snap_counts *n = lw_snap_counts_get(handle->snapper);
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsK}", "walks", n->walks, "snapshots", n->snapshots,
                         "exact", n->exact, "consistent", n->consistent, "moving", n->moving,
                         "unreadable", n->unreadable, "broken", n->broken, "endless", n->endless,
                         "codes", n->codes, "codes_full", n->codes_full, "codes_stale",
                         n->codes_stale);
}

static PyObject *
flush(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    lw_test_snapper *handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER);
    if (!handle) {
        return NULL;
    }
    bool wanted = lw_codes_want_flush(handle->snapper);
    lw_codes_flush(handle->snapper);
    return PyBool_FromLong(wanted);
}

static PyObject *
setup(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    lw_result result = lw_frames_setup();
    return Py_BuildValue("iz", (int)result, lw_frames_reason());
}

PyMethodDef lw_test_frames_methods[] = {
    {"frames_setup", setup, METH_NOARGS, "frames_setup() -> (lw_result, reason | None)"},
    {"frames_thread_ref", thread_ref, METH_NOARGS,
     "frames_thread_ref() -> bytes naming this thread"},
    {"frames_snapper", snapper_new, METH_VARARGS, "frames_snapper(backend=best) -> capsule"},
    {"frames_backend", snapper_backend, METH_O, "frames_backend(snapper) -> str"},
    {"frames_snapshot", snapshot, METH_VARARGS,
     "frames_snapshot(snapper, ref, native=True) -> dict"},
    {"frames_time", time_snapshots, METH_VARARGS,
     "frames_time(snapper, ref, n) -> (median ns, read calls each)"},
    {"frames_glance", glance, METH_VARARGS, "frames_glance(snapper, ref) -> int"},
    {"frames_leaves", leaves, METH_VARARGS,
     "frames_leaves(snapper, ref) -> how often it left the instruction of a glance"},
    {"frames_glances", glances, METH_VARARGS,
     "frames_glances(snapper, ref, n) -> how many differ from the one before"},
    {"frames_top_here", top_here, METH_NOARGS,
     "frames_top_here() -> address of this thread's top frame"},
    {"frames_counts", counts, METH_O, "frames_counts(snapper) -> dict"},
    {"frames_flush", flush, METH_O, "frames_flush(snapper) -> bool, whether it was wanted"},
    {NULL, NULL, 0, NULL},
};
