/* What the kernel's files say of a thread, for tests/core/test_thread_files.py and
 * benchmarks/evidence.py.
 *
 * A look is taken on a thread made for it, with a descriptor table of its own where that works, as
 * the watchdog has. */
#include "testcore.h"

#include "evidence/thread_files.h"
#include "memory/read.h"
#include "watch/fdtable.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

typedef struct look {
    pid_t tid;
    bool own_table;
    lw_evidence evidence;
    char target[LW_TARGET_MAX];
    bool
        leaked; /* a descriptor of its table is taken that was free before; in a table of its own */
} look;

static int
lowest_free(void)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0) {
        close(fd);
    }
    return fd;
}

static void *
take_look(void *argument)
{
    look *job = argument;
    lw_fdtable table = {.own = false, .pidfd = -1};
    lw_reader reader;
    lw_thread_files files = {0};
    if (job->own_table) {
        lw_fdtable_unshare(&table);
    }
    lw_reader_open(&reader, table.own, -1);
    lw_thread_files_open(&files, job->tid);
    lw_thread_files_read(&files, &job->evidence);
    int free_fd = lowest_free();
    lw_call_target(&job->evidence, job->tid, &table, &reader, job->target);
    job->leaked = table.own && lowest_free() != free_fd;
    lw_thread_files_close(&files);
    lw_reader_close(&reader);
    lw_fdtable_close(&table);
    return NULL;
}

static PyObject *
optional(bool known, uint64_t value)
{
    return known ? PyLong_FromUnsignedLongLong(value) : Py_NewRef(Py_None);
}

static PyObject *
evidence_dict(const lw_evidence *evidence, const char *target)
{
    static const char *const stands[] = {"unknown", "running", "gil", "futex", "call", "page"};
    const lw_clocks *clocks = &evidence->clocks;
    PyObject *arguments = PyTuple_New(LW_CALL_ARGUMENTS);
    for (int i = 0; arguments && i < LW_CALL_ARGUMENTS; i++) {
        PyObject *argument = PyLong_FromUnsignedLongLong(evidence->arguments[i]);
        if (!argument) {
            Py_CLEAR(arguments);
            break;
        }
        PyTuple_SET_ITEM(arguments, i, argument);
    }
    if (!arguments) {
        return NULL;
    }
    PyObject *target_text = PyUnicode_DecodeFSDefault(target);
    if (!target_text) {
        Py_DECREF(arguments);
        return NULL;
    }
    bool stands_known = evidence->known & LW_KNOWS_STAND;
    return Py_BuildValue("{s:N,s:N,s:z,s:z,s:i,s:N,s:N}", "run_queue_ns",
                         optional(evidence->known & LW_KNOWS_RUN_QUEUE, clocks->run_queue_ns),
                         "major_faults",
                         optional(evidence->known & LW_KNOWS_FAULTS, clocks->major_faults), "stand",
                         stands_known ? stands[evidence->stand] : NULL, "syscall",
                         lw_syscall_name(evidence->syscall), "number", (int)evidence->syscall,
                         "arguments", arguments, "target", target_text);
}

static PyObject *
thread_look(PyObject *Py_UNUSED(module), PyObject *args)
{
    look job = {0};
    int tid, own_table = 1, error;
    pthread_t thread;
    if (!PyArg_ParseTuple(args, "i|p", &tid, &own_table)) {
        return NULL;
    }
    job.tid = (pid_t)tid;
    job.own_table = own_table;
    Py_BEGIN_ALLOW_THREADS
    error = pthread_create(&thread, NULL, take_look, &job);
    if (!error) {
        pthread_join(thread, NULL);
    }
    Py_END_ALLOW_THREADS
    if (error) {
        PyErr_SetString(PyExc_RuntimeError, "no thread");
        return NULL;
    }
    if (job.leaked) {
        PyErr_SetString(PyExc_AssertionError, "a descriptor is left open");
        return NULL;
    }
    return evidence_dict(&job.evidence, job.target);
}

/* Not of a look: of any call with any arguments, in the calling thread's table. */
static PyObject *
call_target(PyObject *Py_UNUSED(module), PyObject *args)
{
    lw_evidence evidence = {.known = LW_KNOWS_STAND, .stand = LW_STAND_CALL};
    unsigned long long argument[LW_CALL_ARGUMENTS];
    const lw_fdtable table = {.own = false, .pidfd = -1};
    lw_reader reader;
    char target[LW_TARGET_MAX];
    if (!PyArg_ParseTuple(args, "i(KKKKKK)", &evidence.syscall, &argument[0], &argument[1],
                          &argument[2], &argument[3], &argument[4], &argument[5])) {
        return NULL;
    }
    for (int i = 0; i < LW_CALL_ARGUMENTS; i++) {
        evidence.arguments[i] = argument[i];
    }
    memset(target, 'x', sizeof target);
    lw_reader_open(&reader, false, -1);
    lw_call_target(&evidence, (pid_t)gettid(), &table, &reader, target);
    lw_reader_close(&reader);
    return PyUnicode_DecodeFSDefault(target);
}

static PyObject *
syscall_name(PyObject *Py_UNUSED(module), PyObject *number)
{
    long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return Py_BuildValue("z", lw_syscall_name((int32_t)value));
}

/* --- files that stay open, in the table of the thread that calls --- */

static const char capsule[] = "loopwatch._testcore.thread_files";

static void
files_end(PyObject *object)
{
    lw_thread_files *files = PyCapsule_GetPointer(object, capsule);
    lw_thread_files_close(files);
    PyMem_Free(files);
}

static PyObject *
thread_files_new(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    lw_thread_files *files = PyMem_Calloc(1, sizeof *files);
    return files ? PyCapsule_New(files, capsule, files_end) : PyErr_NoMemory();
}

static PyObject *
thread_files_open(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    int tid;
    lw_thread_files *files;
    if (!PyArg_ParseTuple(args, "Oi", &object, &tid) ||
        !(files = PyCapsule_GetPointer(object, capsule))) {
        return NULL;
    }
    lw_thread_files_open(files, (pid_t)tid);
    return Py_BuildValue("(iii)", files->schedstat_fd, files->syscall_fd, files->stat_fd);
}

static PyObject *
thread_files_read(PyObject *Py_UNUSED(module), PyObject *object)
{
    lw_evidence evidence = {0};
    const lw_thread_files *files = PyCapsule_GetPointer(object, capsule);
    if (!files) {
        return NULL;
    }
    lw_thread_files_read(files, &evidence);
    return evidence_dict(&evidence, "");
}

static PyObject *
time_thread_files(PyObject *Py_UNUSED(module), PyObject *args)
{
    int tid, rounds;
    lw_thread_files files = {0};
    lw_cgroup_files cgroup;
    lw_ns throttled_ns, from_ns, read_ns, cgroup_ns, target_ns;
    lw_evidence evidence = {0};
    lw_fdtable table = {.own = false, .pidfd = -1};
    lw_reader reader;
    char target[LW_TARGET_MAX];
    if (!PyArg_ParseTuple(args, "ii", &tid, &rounds)) {
        return NULL;
    }
    lw_reader_open(&reader, false, -1);
    lw_thread_files_open(&files, (pid_t)tid);
    lw_cgroup_files_open(&cgroup);
    from_ns = lw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < rounds; i++) {
        lw_thread_files_read(&files, &evidence);
    }
    read_ns = lw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < rounds; i++) {
        lw_cgroup_files_read(&cgroup, &throttled_ns);
    }
    cgroup_ns = lw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < rounds; i++) {
        lw_call_target(&evidence, (pid_t)tid, &table, &reader, target);
    }
    target_ns = lw_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    lw_cgroup_files_close(&cgroup);
    lw_thread_files_close(&files);
    lw_reader_close(&reader);
    double n = rounds;
    return Py_BuildValue("(ddds)", (double)(read_ns - from_ns) / n,
                         (double)(cgroup_ns - read_ns) / n, (double)(target_ns - cgroup_ns) / n,
                         target);
}

/* --- the cgroup --- */

static PyObject *
cgroup_throttled(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    lw_cgroup_files files;
    lw_ns throttled_ns;
    lw_cgroup_files_open(&files);
    int n = files.n;
    bool known = lw_cgroup_files_read(&files, &throttled_ns);
    lw_cgroup_files_close(&files);
    return Py_BuildValue("(iN)", n, optional(known, throttled_ns));
}

PyMethodDef lw_test_thread_files_methods[] = {
    {"thread_look", thread_look, METH_VARARGS,
     "thread_look(tid, own_table=True) -> dict: what its files say, None for what they do not, and "
     "its call's target."},
    {"call_target", call_target, METH_VARARGS,
     "call_target(number, (six arguments)) -> str: what that call would wait for."},
    {"syscall_name", syscall_name, METH_O, "syscall_name(number) -> str | None"},
    {"thread_files_new", thread_files_new, METH_NOARGS, "Files of a thread, none open yet."},
    {"thread_files_open", thread_files_open, METH_VARARGS,
     "thread_files_open(files, tid) -> its three descriptors, in the table of the calling thread."},
    {"thread_files_read", thread_files_read, METH_O, "thread_files_read(files) -> dict"},
    {"time_thread_files", time_thread_files, METH_VARARGS,
     "time_thread_files(tid, rounds) -> (ns of CPU for its files, for the cgroup's, for the "
     "target, the target)"},
    {"cgroup_throttled", cgroup_throttled, METH_NOARGS,
     "(how many cpu.stat files count, their throttled ns or None)"},
    {NULL, NULL, 0, NULL},
};
