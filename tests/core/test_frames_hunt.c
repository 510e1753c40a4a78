/* A native thread that takes snapshots of a running thread as fast as it can, and checks each
 * against what the program can do: which function may stand, at which line, above which other.
 */
#define PY_SSIZE_T_CLEAN
#include "testcore.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "test_frames.h"

#define EDGE_MAX 256
#define EDGE_BYTES 200
#define MEMO_SLOTS 4096u
#define BAD_BYTES 400

typedef struct memo {
    uint32_t caller, callee;
    int32_t lineno;
    bool set, allowed;
} memo;

typedef struct hunt {
    lw_test_snapper *handle;
    lw_thread_ref thread;
    long captures;
    size_t n_edges;
    char edges[EDGE_MAX]
              [EDGE_BYTES]; /* "caller:line>callee", or ">callee" for an outermost frame */
    memo memos[MEMO_SLOTS];
    lw_snapshot snapshot;
    long by_quality[3], impossible[3], none, deepest;
    char first_bad[BAD_BYTES];
} hunt;

static bool
is_edge(const hunt *job, const char *text)
{
    for (size_t i = 0; i < job->n_edges; i++) {
        if (!strcmp(job->edges[i], text)) {
            return true;
        }
    }
    return false;
}

static bool
may_call(hunt *job, const lw_frame *caller, const lw_frame *callee)
{
    int32_t lineno = caller->position.lineno;
    uint32_t hash =
        (caller->code * 31 + callee->code * 17 + (uint32_t)lineno * 7) & (MEMO_SLOTS - 1);
    memo *known = &job->memos[hash];
    if (!known->set || known->caller != caller->code || known->callee != callee->code ||
        known->lineno != lineno) {
        char text[EDGE_BYTES];
        snprintf(text, sizeof text, "%s:%d>%s",
                 lw_code_get(job->handle->snapper, caller->code)->qualname, lineno,
                 lw_code_get(job->handle->snapper, callee->code)->qualname);
        *known = (memo){caller->code, callee->code, lineno, true, is_edge(job, text)};
        if (!known->allowed && !*job->first_bad) {
            snprintf(job->first_bad, sizeof job->first_bad, "%s", text);
        }
    }
    return known->allowed;
}

static bool
is_possible(hunt *job)
{
    const lw_snapshot *snapshot = &job->snapshot;
    for (uint32_t i = 0; i + 1 < snapshot->depth; i++) {
        if (!may_call(job, &snapshot->frames[i + 1], &snapshot->frames[i])) {
            return false;
        }
    }
    char text[EDGE_BYTES];
    snprintf(
        text, sizeof text, ">%s",
        lw_code_get(job->handle->snapper, snapshot->frames[snapshot->depth - 1].code)->qualname);
    bool possible = is_edge(job, text);
    if (!possible && !*job->first_bad) {
        snprintf(job->first_bad, sizeof job->first_bad, "%s", text);
    }
    return possible;
}

static void *
run(void *arg)
{
    hunt *job = arg;
    for (long i = 0; i < job->captures; i++) {
        if (lw_codes_want_flush(job->handle->snapper)) {
            lw_codes_flush(job->handle->snapper);
            memset(job->memos, 0, sizeof job->memos);
        }
        lw_snapshot_take(job->handle->snapper, &job->thread, &job->snapshot);
        if (!job->snapshot.depth) {
            job->none++;
            continue;
        }
        job->by_quality[job->snapshot.quality]++;
        job->impossible[job->snapshot.quality] += !is_possible(job);
        if (job->deepest < (long)job->snapshot.depth) {
            job->deepest = (long)job->snapshot.depth;
        }
    }
    return NULL;
}

static bool
take_edges(hunt *job, PyObject *edges)
{
    Py_ssize_t n = PyList_Size(edges);
    if (n < 0 || n > EDGE_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many edges");
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        const char *text = PyUnicode_AsUTF8(PyList_GetItem(edges, i));
        if (!text) {
            return false;
        }
        snprintf(job->edges[job->n_edges++], EDGE_BYTES, "%s", text);
    }
    return true;
}

static PyObject *
frames_hunt(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule, *ref, *edges;
    pthread_t id;
    int error;
    hunt *job = calloc(1, sizeof *job);
    if (!job || !PyArg_ParseTuple(args, "OOlO", &capsule, &ref, &job->captures, &edges) ||
        !lw_test_thread(ref, &job->thread) || !take_edges(job, edges) ||
        !(job->handle = PyCapsule_GetPointer(capsule, LW_TEST_SNAPPER))) {
        free(job);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    error = pthread_create(&id, NULL, run, job);
    if (!error) {
        pthread_join(id, NULL);
    }
    Py_END_ALLOW_THREADS;
    PyObject *result = Py_BuildValue(
        "{slslslslslslslslss}", "moving", job->by_quality[0], "consistent", job->by_quality[1],
        "exact", job->by_quality[2], "none", job->none, "bad_moving", job->impossible[0],
        "bad_consistent", job->impossible[1], "bad_exact", job->impossible[2], "deepest",
        job->deepest, "first_bad", job->first_bad);
    free(job);
    return result;
}

PyMethodDef lw_test_frames_hunt_methods[] = {
    {"frames_hunt", frames_hunt, METH_VARARGS,
     "frames_hunt(snapper, ref, captures, edges) -> dict: counts by quality, and of impossible "
     "stacks among them."},
    {NULL, NULL, 0, NULL},
};
