/* Finds where asyncio keeps its running loop and task, and where a C task keeps what names it.
 *
 * Why calibrate: these are private fields, at other offsets on every version and not in any header.
 * How: make a task, put it where asyncio puts a running one, and look which words of the thread
 * state and of the task now have the addresses of the loop, the task, its name and its coroutine.
 * Each must be found exactly once. Then the task is read as task.c will read all others; only if
 * that brings what was put there, tasks are read at all.
 *
 * The probe's task is never run and its loop is a function with two attributes, so nothing of
 * a program's is touched; the coroutine is closed and the task told not to complain, so both go
 * without a warning, and out of asyncio's weak sets with them. It becomes current on the importing
 * thread, which may be inside a running loop: the collector is off meanwhile, no Python code runs,
 * and what was current before is put back.
 *
 * With the GIL, at import.
 */
#include "task.h"
#include "task_layout.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define THREAD_WORDS_MAX 1024u /* of the thread state that are looked through */
#define THREAD_CHUNK 64u       /* words read at once: where the thread state ends is not known */

static const char *reason = "asyncio was not looked at yet";

static const char probe_source[] = "def loop(): pass\n"
                                   "loop.get_debug = lambda: False\n"
                                   "loop.call_soon = lambda *args, **named: None\n"
                                   "async def coroutine(): pass\n"
                                   "coro = coroutine()\n"
                                   "name = 'the name of a probe'\n"
                                   "qualname = coro.__qualname__ = 'the qualname of a probe'\n"
                                   "task = Task(coro, loop=loop, name=name)\n"
                                   "task._log_destroy_pending = False\n"
                                   "coro.close()\n";

typedef struct probe {
    PyObject *names;                                /* the namespace of probe_source */
    PyObject *loop, *task, *name, *coro, *qualname; /* borrowed from it */
} probe;

static bool
probe_make(probe *made, PyObject *task_type)
{
    memset(made, 0, sizeof *made);
    made->names = PyDict_New();
    if (!made->names || PyDict_SetItemString(made->names, "Task", task_type) < 0) {
        return false;
    }
    PyObject *ran = PyRun_String(probe_source, Py_file_input, made->names, made->names);
    Py_XDECREF(ran);
    made->loop = PyDict_GetItemString(made->names, "loop");
    made->task = PyDict_GetItemString(made->names, "task");
    made->name = PyDict_GetItemString(made->names, "name");
    made->coro = PyDict_GetItemString(made->names, "coro");
    made->qualname = PyDict_GetItemString(made->names, "qualname");
    return ran && made->loop && made->task && made->name && made->coro && made->qualname;
}

static void
probe_drop(probe *made)
{
    if (made->names) {
        PyDict_Clear(made->names); /* its functions refer to it */
        Py_CLEAR(made->names);
    }
}

/* --- words of an object --- */

/* Where the object has the address of `wanted`; false unless that is exactly one place, and near
 * enough to its start to be copied later. */
static bool
find_field(PyObject *object, PyObject *wanted, uint32_t *offset)
{
    size_t size = (size_t)Py_TYPE(object)->tp_basicsize;
    size_t end = size < LW_TASK_COPY_MAX ? size : LW_TASK_COPY_MAX;
    unsigned found = 0;
    for (size_t at = sizeof(PyObject); at + sizeof(uintptr_t) <= end; at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, (const char *)object + at, sizeof word);
        if (word == (uintptr_t)wanted) {
            *offset = (uint32_t)at;
            found++;
        }
    }
    return found == 1;
}

/* --- places in the thread state --- */

#if LW_RUNNING_LOOP_IN_THREAD

typedef struct thread_words {
    size_t n;
    uintptr_t words[THREAD_WORDS_MAX];
} thread_words;

/* Too large for a small stack; only the importing thread uses them. */
static thread_words thread_before, thread_after;

static void
read_thread(lw_reader *reader, thread_words *out)
{
    uintptr_t tstate = (uintptr_t)PyThreadState_Get();
    for (out->n = 0; out->n < THREAD_WORDS_MAX; out->n += THREAD_CHUNK) {
        uintptr_t address = tstate + out->n * sizeof(uintptr_t);
        if (!lw_read(reader, address, out->words + out->n, THREAD_CHUNK * sizeof(uintptr_t))) {
            break;
        }
    }
}

/* Which word has become the address of `wanted` since the last look; false unless exactly one has.
 */
static bool
find_slot(lw_reader *reader, PyObject *wanted, uint32_t *offset)
{
    unsigned found = 0;
    read_thread(reader, &thread_after);
    for (size_t i = 0; i < thread_before.n && i < thread_after.n; i++) {
        if (thread_after.words[i] == (uintptr_t)wanted &&
            thread_before.words[i] != (uintptr_t)wanted) {
            *offset = (uint32_t)(i * sizeof(uintptr_t));
            found++;
        }
    }
    thread_before = thread_after;
    return found == 1;
}

static void
look_before(lw_reader *reader)
{
    read_thread(reader, &thread_before);
}

static bool
find_loop(lw_reader *reader, PyObject *loop)
{
    return find_slot(reader, loop, &lw_the_task_layout.thread_loop);
}

#else

static void
look_before(lw_reader *reader)
{
    (void)reader;
}

/* It is under the key; what is to be learned is the type that wraps it on 3.11. */
static bool
find_loop(lw_reader *reader, PyObject *loop)
{
    (void)reader, (void)loop;
    PyObject *names = PyThreadState_GetDict();
    PyObject *key = (PyObject *)lw_the_task_layout.loop_key;
    PyObject *value = names ? PyDict_GetItemWithError(names, key) : NULL;
    lw_the_task_layout.holder_type = value ? (uintptr_t)Py_TYPE(value) : 0;
    return value != NULL;
}

#endif

static bool
find_task(lw_reader *reader, PyObject *task)
{
#if LW_RUNNING_TASK_IN_THREAD
    return find_slot(reader, task, &lw_the_task_layout.thread_task);
#else
    (void)reader, (void)task;
    return true; /* in the dict that is held */
#endif
}

/* --- the probe as the current task --- */

/* Makes `task` the current one of `loop`, or none where it is None; what was current before. */
static PyObject *
swap_task(PyObject *asyncio, PyObject *loop, PyObject *task, PyObject *before)
{
#if PY_VERSION_HEX >= 0x030C0000
    (void)before;
    return PyObject_CallMethod(asyncio, "_swap_current_task", "OO", loop, task);
#else
    return task == Py_None ? PyObject_CallMethod(asyncio, "_leave_task", "OO", loop, before)
                           : PyObject_CallMethod(asyncio, "_enter_task", "OO", loop, task);
#endif
}

static bool
set_loop(PyObject *asyncio, PyObject *loop)
{
    PyObject *none = PyObject_CallMethod(asyncio, "_set_running_loop", "O", loop);
    Py_XDECREF(none);
    return none != NULL;
}

static bool
is_text(const char *text, PyObject *expected)
{
    return PyUnicode_CompareWithASCIIString(expected, text) == 0;
}

/* Reads the probe, which is current, as task.c reads any task. */
static bool
reads_right(lw_reader *reader, const probe *made)
{
    uintptr_t tstate = (uintptr_t)PyThreadState_Get();
    uintptr_t loop;
    lw_task task;
    if (!lw_task_loop(reader, tstate, &loop) || loop != (uintptr_t)made->loop) {
        return false;
    }
    lw_task_read(reader, tstate, loop, &task);
    return task.known && task.native && task.address == (uintptr_t)made->task &&
           is_text(task.name, made->name) && is_text(task.coroutine, made->qualname);
}

/* Makes the probe's task current in its loop, which is, looks, and puts back what was. */
static bool
look_at_task(lw_reader *reader, PyObject *asyncio, const probe *made)
{
    PyObject *task_before = swap_task(asyncio, made->loop, made->task, Py_None);
    if (!task_before) {
        return false;
    }
    bool right = false;
    if (find_task(reader, made->task)) {
        lw_the_task_layout.ready = true;
        right = reads_right(reader, made);
        lw_the_task_layout.ready = false;
    }
    Py_XDECREF(swap_task(asyncio, made->loop, task_before, made->task));
    Py_DECREF(task_before);
    return right;
}

/* The same with the loop around it. */
static bool
look_at_loop(lw_reader *reader, PyObject *asyncio, const probe *made)
{
    PyObject *loop_before = PyObject_CallMethod(asyncio, "_get_running_loop", NULL);
    if (!loop_before) {
        return false;
    }
    bool right = false;
    look_before(reader);
    if (set_loop(asyncio, made->loop)) {
        right = find_loop(reader, made->loop) && look_at_task(reader, asyncio, made);
        PyErr_Clear();
        right = set_loop(asyncio, loop_before) && right;
    }
    Py_DECREF(loop_before);
    return right;
}

static bool
calibrate(lw_reader *reader, PyObject *asyncio, PyObject *task_type)
{
    lw_task_layout *layout = &lw_the_task_layout;
    probe made;
    bool right = false;
    int collecting = PyGC_Disable();
    if (probe_make(&made, task_type) && find_field(made.task, made.name, &layout->task_name) &&
        find_field(made.task, made.coro, &layout->task_coroutine) &&
        find_field(made.coro, made.qualname, &layout->coroutine_qualname)) {
        right = look_at_loop(reader, asyncio, &made);
    }
    probe_drop(&made);
    if (collecting) {
        PyGC_Enable();
    }
    return right;
}

/* --- what stays --- */

static lw_result
refuse(lw_result error, const char *why)
{
    reason = why;
    PyErr_Clear();
    return error;
}

/* The objects that task.c compares addresses with. The references are kept for good: they are
 * asyncio's own, and live as long as the process anyway. */
static bool
hold(PyObject *asyncio)
{
    lw_task_layout *layout = &lw_the_task_layout;
    PyObject *type = PyObject_GetAttrString(asyncio, "Task");
    if (!type || !PyType_Check(type)) {
        Py_XDECREF(type);
        return false;
    }
    layout->task_type = (uintptr_t)type;
#if !LW_RUNNING_TASK_IN_THREAD
    layout->current_tasks = (uintptr_t)PyObject_GetAttrString(asyncio, "_current_tasks");
    if (!layout->current_tasks) {
        return false;
    }
#endif
#if !LW_RUNNING_LOOP_IN_THREAD
    layout->loop_key = (uintptr_t)PyUnicode_InternFromString("__asyncio_running_event_loop__");
    if (!layout->loop_key) {
        return false;
    }
#endif
    return true;
}

static lw_result
setup(lw_reader *reader)
{
    if (reader->backend == LW_READ_NONE) {
        return refuse(LW_ERR_FRAMES_READ, lw_result_message(LW_ERR_FRAMES_READ));
    }
    PyObject *package =
        PyImport_ImportModule("asyncio"); /* _asyncio alone would import half of it */
    PyObject *asyncio = package ? PyImport_ImportModule("_asyncio") : NULL;
    Py_XDECREF(package);
    if (!asyncio || !hold(asyncio)) {
        Py_XDECREF(asyncio);
        return refuse(LW_ERR_FRAMES_CALIBRATE, "asyncio has no tasks written in C here");
    }
    bool right = calibrate(reader, asyncio, (PyObject *)lw_the_task_layout.task_type);
    Py_DECREF(asyncio);
    if (!right) {
        return refuse(LW_ERR_FRAMES_CALIBRATE,
                      "a task made to find the layout of tasks did not look as expected");
    }
    lw_the_task_layout.ready = true;
    reason = NULL;
    return LW_OK;
}

/* --- once --- */

static bool done;
static lw_result result;

lw_result
lw_task_setup(void)
{
    if (!done) {
        done = true;
        lw_reader reader;
        int mem_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
        lw_reader_open(&reader, false, mem_fd);
        result = setup(&reader);
        lw_reader_close(&reader);
        if (mem_fd >= 0) {
            close(mem_fd);
        }
    }
    return result;
}

const char *
lw_task_reason(void)
{
    return reason;
}

#ifdef LW_TEST
void
lw_task_forget(void)
{
    lw_task_layout *layout = &lw_the_task_layout;
    Py_XDECREF((PyObject *)layout->task_type);
    Py_XDECREF((PyObject *)layout->current_tasks);
    Py_XDECREF((PyObject *)layout->loop_key);
    memset(layout, 0, sizeof *layout);
    done = false;
}
#endif
