/* Guarded reads, for tests/core/test_read.py and benchmarks/reads.py: batches through any backend,
 * memory with a hole behind it, and seccomp filters. */
#include "testcore.h"

#include "clock.h"
#include "test_read.h"

#include <errno.h>
#include <string.h>
#ifndef LW_PORTABLE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* --- batches --- */

void
lw_test_batch_free(lw_test_batch *batch)
{
    PyMem_Free(batch->segments);
    PyMem_Free(batch->copies);
    *batch = (lw_test_batch){NULL, NULL, 0};
}

int
lw_test_batch_parse(PyObject *pairs, lw_test_batch *batch)
{
    *batch = (lw_test_batch){NULL, NULL, 0};
    PyObject *list = PySequence_Fast(pairs, "pairs of address and length expected");
    if (!list) {
        return -1;
    }
    size_t n = (size_t)PySequence_Fast_GET_SIZE(list);
    size_t bytes = 0;
    batch->n = n;
    batch->segments = PyMem_Calloc(n + 1, sizeof *batch->segments);
    if (!batch->segments) {
        goto no_memory;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned long long address;
        Py_ssize_t length;
        if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(list, (Py_ssize_t)i), "Kn", &address,
                              &length)) {
            goto error;
        }
        batch->segments[i] = (lw_segment){(uintptr_t)address, NULL, (size_t)length};
        bytes += (size_t)length;
    }
    batch->copies = PyMem_Calloc(bytes + 1, 1);
    if (!batch->copies) {
        goto no_memory;
    }
    char *copy = batch->copies;
    for (size_t i = 0; i < n; i++) {
        batch->segments[i].copy = copy;
        copy += batch->segments[i].length;
    }
    Py_DECREF(list);
    return 0;
no_memory:
    PyErr_NoMemory();
error:
    Py_DECREF(list);
    lw_test_batch_free(batch);
    return -1;
}

PyObject *
lw_test_batch_copied(const lw_test_batch *batch, size_t whole)
{
    PyObject *copied = PyList_New((Py_ssize_t)whole);
    for (size_t i = 0; copied && i < whole; i++) {
        const lw_segment *segment = &batch->segments[i];
        PyObject *bytes = PyBytes_FromStringAndSize(segment->copy, (Py_ssize_t)segment->length);
        if (!bytes) {
            Py_CLEAR(copied);
            break;
        }
        PyList_SET_ITEM(copied, (Py_ssize_t)i, bytes);
    }
    return copied;
}

PyObject *
lw_test_reader_facts(const lw_reader *reader)
{
    const int *errors = reader->errors;
    return Py_BuildValue(
        "{s:s,s:(iiiii),s:K,s:K}", "backend", lw_read_backend_name(reader->backend), "errors",
        errors[0], errors[1], errors[2], errors[3], errors[4], "calls",
        (unsigned long long)reader->calls, "failed", (unsigned long long)reader->failed);
}

/* --- readers --- */

/* `backend` -1: whichever is chosen. */
static void
open_reader(lw_reader *reader, int backend, int own_table, int mem_fd)
{
    if (backend < 0) {
        lw_reader_open(reader, own_table, mem_fd);
    }
    else {
        lw_reader_open_as(reader, (lw_read_backend)backend, own_table, mem_fd);
    }
}

static PyObject *
read_bytes(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long address;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "Kn", &address, &length)) {
        return NULL;
    }
    PyObject *copy = PyBytes_FromStringAndSize(NULL, length);
    if (!copy) {
        return NULL;
    }
    lw_reader reader;
    lw_reader_open(&reader, false, -1);
    bool ok = lw_read(&reader, (uintptr_t)address, PyBytes_AS_STRING(copy), (size_t)length);
    lw_reader_close(&reader);
    if (!ok) {
        Py_DECREF(copy);
        Py_RETURN_NONE;
    }
    return copy;
}

static PyObject *
reader_facts(PyObject *Py_UNUSED(module), PyObject *args)
{
    int backend, own_table, mem_fd;
    if (!PyArg_ParseTuple(args, "ipi", &backend, &own_table, &mem_fd)) {
        return NULL;
    }
    lw_reader reader;
    open_reader(&reader, backend, own_table, mem_fd);
    PyObject *facts = lw_test_reader_facts(&reader);
    lw_reader_close(&reader);
    return facts;
}

static PyObject *
read_batch(PyObject *Py_UNUSED(module), PyObject *args)
{
    int backend, mem_fd;
    PyObject *pairs;
    lw_test_batch batch;
    if (!PyArg_ParseTuple(args, "iiO", &backend, &mem_fd, &pairs) ||
        lw_test_batch_parse(pairs, &batch) < 0) {
        return NULL;
    }
    lw_reader reader;
    open_reader(&reader, backend, true, mem_fd);
    size_t whole = lw_read_batch(&reader, batch.segments, batch.n);
    lw_reader_close(&reader);
    PyObject *copied = lw_test_batch_copied(&batch, whole);
    lw_test_batch_free(&batch);
    return copied;
}

static PyObject *
time_reads(PyObject *Py_UNUSED(module), PyObject *args)
{
    int backend, mem_fd;
    PyObject *pairs;
    unsigned int rounds;
    lw_test_batch batch;
    if (!PyArg_ParseTuple(args, "iiOI", &backend, &mem_fd, &pairs, &rounds) ||
        lw_test_batch_parse(pairs, &batch) < 0) {
        return NULL;
    }
    lw_reader reader;
    open_reader(&reader, backend, true, mem_fd);
    size_t whole = lw_read_batch(&reader, batch.segments, batch.n);
    lw_ns begin_ns = lw_clock_ns(CLOCK_MONOTONIC);
    for (unsigned int i = 0; i < rounds && whole == batch.n; i++) {
        whole = lw_read_batch(&reader, batch.segments, batch.n);
    }
    lw_ns end_ns = lw_clock_ns(CLOCK_MONOTONIC);
    lw_reader_close(&reader);
    bool ok = whole == batch.n;
    lw_test_batch_free(&batch);
    if (!ok) {
        Py_RETURN_NONE;
    }
    return PyFloat_FromDouble((double)(end_ns - begin_ns) / (double)rounds);
}

#ifndef LW_PORTABLE

/* --- a reader that a child inherits --- */

static PyObject *
read_in_child(PyObject *Py_UNUSED(module), PyObject *args)
{
    int backend, mem_fd;
    PyObject *pairs;
    lw_test_batch batch;
    if (!PyArg_ParseTuple(args, "iiO", &backend, &mem_fd, &pairs) ||
        lw_test_batch_parse(pairs, &batch) < 0) {
        return NULL;
    }
    lw_reader reader;
    open_reader(&reader, backend, true, mem_fd);
    int ends[2];
    if (pipe(ends)) {
        PyErr_SetFromErrno(PyExc_OSError);
        goto done;
    }
    pid_t child = fork();
    if (child == 0) {
        size_t whole = lw_read_batch(&reader, batch.segments, batch.n);
        lw_reader_close(&reader);
        _exit(write(ends[1], &whole, sizeof whole) == (ssize_t)sizeof whole ? 0 : 1);
    }
    close(ends[1]);
    size_t in_child = 0;
    if (read(ends[0], &in_child, sizeof in_child) != (ssize_t)sizeof in_child) {
        PyErr_SetString(PyExc_RuntimeError, "the child died");
    }
    close(ends[0]);
    waitpid(child, NULL, 0);
done:;
    size_t in_parent = lw_read_batch(&reader, batch.segments, batch.n);
    lw_reader_close(&reader);
    lw_test_batch_free(&batch);
    return PyErr_Occurred() ? NULL
                            : Py_BuildValue("nn", (Py_ssize_t)in_child, (Py_ssize_t)in_parent);
}

/* --- memory with a hole behind it --- */

#define HINT                                                                                       \
    ((void *)(uintptr_t)0x200000000000) /* nothing else is mapped around here: a hole stays one */

static PyObject *
map_hole(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *kind;
    if (!PyArg_ParseTuple(args, "s", &kind)) {
        return NULL;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bool beyond = !strcmp(kind, "beyond the end of a file");
    int fd = -1;
    if (beyond) {
        fd = (int)syscall(SYS_memfd_create, "hole", 1u);
        if (fd < 0 || ftruncate(fd, (off_t)page)) {
            return PyErr_SetFromErrno(PyExc_OSError);
        }
    }
    int flags = beyond ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    char *map = mmap(HINT, 3 * page, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (fd >= 0) {
        close(fd);
    }
    if (map == MAP_FAILED) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    for (size_t i = 0; i < page; i++) {
        map[i] = (char)(i * 7 + i / 251);
    }
    int result = 0;
    if (!strcmp(kind, "unmapped")) {
        result = munmap(map + page, 2 * page);
    }
    else if (!strcmp(kind, "unreadable")) {
        result = mprotect(map + page, page, PROT_NONE);
    }
    if (result) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return Py_BuildValue("KnN", (unsigned long long)(uintptr_t)map, (Py_ssize_t)page,
                         PyBytes_FromStringAndSize(map, (Py_ssize_t)page));
}

static PyObject *
unmap_hole(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "K", &address)) {
        return NULL;
    }
    if (munmap((void *)(uintptr_t)address, 3 * (size_t)sysconf(_SC_PAGESIZE))) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* --- seccomp --- */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static const struct {
    const char *name;
    unsigned int number;
} calls[] = {
    {"process_vm_readv", SYS_process_vm_readv},
    {"pwritev", SYS_pwritev},
    {"writev", SYS_writev},
    {"memfd_create", SYS_memfd_create},
    {"pidfd_open", SYS_pidfd_open},
    {"pidfd_getfd", SYS_pidfd_getfd},
    {"close_range", SYS_close_range},
    {"pread64", SYS_pread64},
};

static bool
call_number(const char *name, unsigned int *number)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (!strcmp(calls[i].name, name)) {
            *number = calls[i].number;
            return true;
        }
    }
    return false;
}

static PyObject *
deny_syscalls(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *names;
    unsigned int error;
    if (!PyArg_ParseTuple(args, "O!I", &PyList_Type, &names, &error)) {
        return NULL;
    }
    struct sock_filter filter[2 + 2 * sizeof calls / sizeof *calls] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    unsigned short n = 1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); i++) {
        const char *name = PyUnicode_AsUTF8(PyList_GET_ITEM(names, i));
        unsigned int number;
        if (!name || !call_number(name, &number) || n + 2u >= sizeof filter / sizeof *filter) {
            return PyErr_Occurred() ? NULL
                                    : PyErr_Format(PyExc_ValueError, "unknown call %s", name);
        }
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                                   SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA));
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}
#endif

PyMethodDef lw_test_read_methods[] = {
    {"read_bytes", read_bytes, METH_VARARGS,
     "read_bytes(address, length) -> bytes | None, by a guarded read."},
    {"reader_facts", reader_facts, METH_VARARGS,
     "reader_facts(backend, own_table, mem_fd) -> dict; backend -1: the one that lw_reader_open "
     "chooses."},
    {"read_batch", read_batch, METH_VARARGS,
     "read_batch(backend, mem_fd, [(address, length), ...]) -> [bytes, ...], the segments that "
     "were copied whole."},
    {"time_reads", time_reads, METH_VARARGS,
     "time_reads(backend, mem_fd, [(address, length), ...], rounds) -> nanoseconds a call, None: "
     "not readable."},
#ifndef LW_PORTABLE
    {"read_in_child", read_in_child, METH_VARARGS,
     "read_in_child(backend, mem_fd, pairs) -> (segments read in a forked child, in the parent "
     "afterwards)."},
    {"map_hole", map_hole, METH_VARARGS,
     "map_hole(kind) -> (address, page size, content): a page with a hole of this kind behind it."},
    {"unmap_hole", unmap_hole, METH_VARARGS, "unmap_hole(address)"},
    {"deny_syscalls", deny_syscalls, METH_VARARGS,
     "deny_syscalls(names, errno): a seccomp filter for the whole process, for good."},
#endif
    {NULL, NULL, 0, NULL},
};
