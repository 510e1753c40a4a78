/* A thread with a descriptor table and a reader of its own, as the watchdog has them, that does one
 * thing at a time for tests/core/test_fdtable.py. */
#include "testcore.h"

#include "test_read.h"
#include "watch/fdtable.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

typedef struct lw_test_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*job)(struct lw_test_worker *, void *); /* NULL: nothing to do */
    void *argument;
    bool stop;
    lw_fdtable table;
    lw_reader reader;
} lw_test_worker;

static void *
work(void *argument)
{
    lw_test_worker *worker = argument;
    pthread_mutex_lock(&worker->lock);
    while (!worker->stop) {
        if (worker->job) {
            worker->job(worker, worker->argument);
            worker->job = NULL;
            pthread_cond_broadcast(&worker->changed);
        }
        pthread_cond_wait(&worker->changed, &worker->lock);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

/* Without the GIL, so that other threads of the test go on. */
static void
run_job(lw_test_worker *worker, void (*job)(lw_test_worker *, void *), void *argument)
{
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&worker->lock);
    worker->job = job;
    worker->argument = argument;
    pthread_cond_broadcast(&worker->changed);
    while (worker->job) {
        pthread_cond_wait(&worker->changed, &worker->lock);
    }
    pthread_mutex_unlock(&worker->lock);
    Py_END_ALLOW_THREADS
}

/* --- jobs, on the worker's thread --- */

static void
job_open(lw_test_worker *worker, void *argument)
{
    (void)argument;
    lw_fdtable_unshare(&worker->table);
    lw_reader_open(&worker->reader, worker->table.own, -1);
}

static void
job_close(lw_test_worker *worker, void *argument)
{
    (void)argument;
    lw_reader_close(&worker->reader);
    lw_fdtable_close(&worker->table);
}

typedef struct read_job {
    lw_test_batch batch;
    size_t whole;
} read_job;

static void
job_read(lw_test_worker *worker, void *argument)
{
    read_job *job = argument;
    job->whole = lw_read_batch(&worker->reader, job->batch.segments, job->batch.n);
}

typedef struct write_job {
    int fd;
    Py_buffer data;
    int error;
} write_job;

static void
job_write(lw_test_worker *worker, void *argument)
{
    write_job *job = argument;
    int fd = lw_fdtable_adopt(&worker->table, job->fd);
    job->error =
        fd < 0 || write(fd, job->data.buf, (size_t)job->data.len) != job->data.len ? errno : 0;
    if (fd >= 0) {
        close(fd);
    }
}

/* --- the Python side --- */

static const char capsule[] = "loopwatch._testcore.worker";

static lw_test_worker *
worker_of(PyObject *object)
{
    return PyCapsule_GetPointer(object, capsule);
}

static void
worker_end(PyObject *object)
{
    lw_test_worker *worker = worker_of(object);
    run_job(worker, job_close, NULL);
    pthread_mutex_lock(&worker->lock);
    worker->stop = true;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->changed);
    PyMem_Free(worker);
}

static PyObject *
worker_new(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    lw_test_worker *worker = PyMem_Calloc(1, sizeof *worker);
    if (!worker) {
        return PyErr_NoMemory();
    }
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, NULL);
    if (pthread_create(&worker->thread, NULL, work, worker)) {
        PyMem_Free(worker);
        PyErr_SetString(PyExc_RuntimeError, "no thread");
        return NULL;
    }
    run_job(worker, job_open, NULL);
    return PyCapsule_New(worker, capsule, worker_end);
}

static PyObject *
worker_facts(PyObject *Py_UNUSED(module), PyObject *object)
{
    lw_test_worker *worker = worker_of(object);
    if (!worker) {
        return NULL;
    }
    PyObject *facts = lw_test_reader_facts(&worker->reader);
    if (!facts) {
        return NULL;
    }
    PyObject *table =
        Py_BuildValue("{s:O,s:z,s:i}", "own", worker->table.own ? Py_True : Py_False, "failed_call",
                      worker->table.failed_call, "error", worker->table.error);
    if (!table || PyDict_Update(facts, table) < 0) {
        Py_CLEAR(facts);
    }
    Py_XDECREF(table);
    return facts;
}

static PyObject *
worker_read(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object, *pairs;
    read_job job;
    if (!PyArg_ParseTuple(args, "OO", &object, &pairs) || !worker_of(object) ||
        lw_test_batch_parse(pairs, &job.batch) < 0) {
        return NULL;
    }
    run_job(worker_of(object), job_read, &job);
    PyObject *copied = lw_test_batch_copied(&job.batch, job.whole);
    lw_test_batch_free(&job.batch);
    return copied;
}

static PyObject *
worker_write(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    write_job job;
    if (!PyArg_ParseTuple(args, "Oiy*", &object, &job.fd, &job.data)) {
        return NULL;
    }
    lw_test_worker *worker = worker_of(object);
    if (worker) {
        run_job(worker, job_write, &job);
    }
    PyBuffer_Release(&job.data);
    return worker ? PyLong_FromLong(job.error) : NULL;
}

PyMethodDef lw_test_fdtable_methods[] = {
    {"worker_new", worker_new, METH_NOARGS,
     "A thread with its own descriptor table, where that works, and a reader."},
    {"worker_facts", worker_facts, METH_O,
     "worker_facts(worker) -> dict about its table and its reader."},
    {"worker_read", worker_read, METH_VARARGS,
     "worker_read(worker, [(address, length), ...]) -> [bytes, ...]"},
    {"worker_write", worker_write, METH_VARARGS,
     "worker_write(worker, fd, data) -> errno: the worker adopts the program's descriptor and "
     "writes to it."},
    {NULL, NULL, 0, NULL},
};
