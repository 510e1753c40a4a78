/* Reading the running task, for tests/core/test_task.py: the calling thread or any other one, by
 * its thread state. And what it is read with, for test_task_parts.py. */
#include "testcore.h"

#include "frames/strings.h"
#include "frames/task.h"
#if PY_VERSION_HEX < 0x030E0000
#include "frames/dict.h"
#endif

#include <string.h>

static PyObject *
task_setup(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    lw_result result = lw_task_setup();
    return Py_BuildValue("iz", (int)result, lw_task_reason());
}

/* Importing this module has set up frames, and tasks with them: again, under what has changed since. */
static PyObject *
task_setup_again(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    lw_task_forget();
    lw_result result = lw_task_setup();
    return Py_BuildValue("iz", (int)result, lw_task_reason());
}

static PyObject *
tstate_here(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyLong_FromVoidPtr(PyThreadState_Get());
}

static PyObject *
decode(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogatepass");
}

static PyObject *
look(lw_reader *reader, uintptr_t tstate)
{
    uintptr_t loop = 0;
    lw_task task;
    memset(&task, 0xAA, sizeof task);
    bool loop_known;
    Py_BEGIN_ALLOW_THREADS /* as the watchdog: without the GIL */
    loop_known = lw_task_loop(reader, tstate, &loop);
    lw_task_read(reader, tstate, loop, &task);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("{s:O,s:K,s:O,s:K,s:O,s:N,s:N}", "loop_known",
                         loop_known ? Py_True : Py_False, "loop", (unsigned long long)loop, "known",
                         task.known ? Py_True : Py_False, "task", (unsigned long long)task.address,
                         "native", task.native ? Py_True : Py_False, "name", decode(task.name),
                         "coroutine", decode(task.coroutine));
}

static PyObject *
task_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long tstate;
    if (!PyArg_ParseTuple(args, "K", &tstate)) {
        return NULL;
    }
    lw_reader reader;
    lw_reader_open(&reader, false, -1);
    PyObject *seen = look(&reader, (uintptr_t)tstate);
    lw_reader_close(&reader);
    return seen;
}

/* --- a reader that lies --- */

typedef struct liar {
    lw_read_function truth;
    uint64_t random;
    unsigned int one_in; /* one read in so many is spoiled */
} liar;

static uint64_t
next_random(liar *context)
{
    context->random =
        context->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return context->random >> 33;
}

/* What a read of memory that changes can bring: other bytes, words of zero, another pointer, or
 * nothing. */
static size_t
read_with_lies(lw_reader *reader, const lw_segment *segments, size_t n)
{
    liar *context = reader->context;
    size_t whole = context->truth(reader, segments, n);
    if (!whole || next_random(context) % context->one_in) {
        return whole;
    }
    const lw_segment *segment = &segments[next_random(context) % whole];
    unsigned char *copy = segment->copy;
    for (size_t i = 0; i < segment->length; i++) {
        switch (next_random(context) % 8) {
        case 0:
            copy[i] = (unsigned char)next_random(context);
            break;
        case 1:
            copy[i] = 0;
            break;
        case 2:
            copy[i] = 0xFF;
            break;
        default:
            break;
        }
    }
    return next_random(context) % 4 ? whole : 0;
}

static PyObject *
task_of_lies(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long tstate, seed;
    unsigned int rounds, one_in;
    if (!PyArg_ParseTuple(args, "KKII", &tstate, &seed, &rounds, &one_in)) {
        return NULL;
    }
    lw_reader reader;
    lw_reader_open(&reader, false, -1);
    liar context = {reader.read, seed, one_in};
    reader.context = &context;
    reader.read = read_with_lies;
    unsigned int known = 0;
    bool bounded = true;
    for (unsigned int i = 0; i < rounds; i++) {
        uintptr_t loop;
        lw_task task;
        memset(&task, 0xAA, sizeof task);
        lw_task_loop(&reader, (uintptr_t)tstate, &loop);
        lw_task_read(&reader, (uintptr_t)tstate, loop, &task);
        known += task.known;
        bounded = bounded && memchr(task.name, 0, sizeof task.name) &&
                  memchr(task.coroutine, 0, sizeof task.coroutine);
    }
    lw_reader_close(&reader);
    return Py_BuildValue("IO", known, bounded ? Py_True : Py_False);
}

/* --- a thread that goes on meanwhile --- */

/* Looks again and again without the GIL. What is read may be torn; names that start with `prefix`,
 * or are empty, are counted as right, others as wrong. */
static PyObject *
task_watch(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long tstate;
    const char *prefix;
    unsigned int rounds;
    if (!PyArg_ParseTuple(args, "KsI", &tstate, &prefix, &rounds)) {
        return NULL;
    }
    unsigned int named = 0;
    unsigned int wrong = 0;
    bool bounded = true;
    Py_BEGIN_ALLOW_THREADS
    lw_reader reader;
    lw_reader_open(&reader, false, -1);
    for (unsigned int i = 0; i < rounds; i++) {
        uintptr_t loop;
        lw_task task;
        lw_task_loop(&reader, (uintptr_t)tstate, &loop);
        lw_task_read(&reader, (uintptr_t)tstate, loop, &task);
        bounded = bounded && memchr(task.name, 0, sizeof task.name) &&
                  memchr(task.coroutine, 0, sizeof task.coroutine);
        if (bounded && task.name[0]) {
            named++;
            wrong += strncmp(task.name, prefix, strlen(prefix)) != 0;
        }
    }
    lw_reader_close(&reader);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("IIO", named, wrong, bounded ? Py_True : Py_False);
}

/* --- strings and dicts --- */

static PyObject *
string_read(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    Py_ssize_t room;
    if (!PyArg_ParseTuple(args, "On", &object, &room)) {
        return NULL;
    }
    PyObject *copy = PyBytes_FromStringAndSize(NULL, room); /* its own NUL is behind it */
    if (!copy) {
        return NULL;
    }
    lw_reader reader;
    lw_reader_open(&reader, false, -1);
    size_t length;
    bool ok =
        lw_string_read(&reader, (uintptr_t)object, PyBytes_AS_STRING(copy), (size_t)room, &length);
    lw_reader_close(&reader);
    bool ended = PyBytes_AS_STRING(copy)[length] == '\0';
    PyObject *text = ok && ended
                         ? PyBytes_FromStringAndSize(PyBytes_AS_STRING(copy), (Py_ssize_t)length)
                         : Py_NewRef(Py_None);
    Py_DECREF(copy);
    return text;
}

#if PY_VERSION_HEX < 0x030E0000
static PyObject *
dict_find(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *dict, *key;
    if (!PyArg_ParseTuple(args, "OO", &dict, &key)) {
        return NULL;
    }
    lw_reader reader;
    lw_reader_open(&reader, false, -1);
    uintptr_t value;
    bool ok = lw_dict_find(&reader, (uintptr_t)dict, (uintptr_t)key, &value);
    lw_reader_close(&reader);
    return ok ? PyLong_FromVoidPtr((void *)value) : Py_NewRef(Py_None);
}
#endif

PyMethodDef lw_test_task_methods[] = {
    {"task_setup", task_setup, METH_NOARGS, "task_setup() -> (result, reason)"},
    {"task_setup_again", task_setup_again, METH_NOARGS, "As task_setup, as if for the first time."},
    {"tstate_here", tstate_here, METH_NOARGS, "The address of the calling thread's state."},
    {"task_of", task_of, METH_VARARGS,
     "task_of(tstate) -> dict: the loop and the task that run there, read raw."},
    {"task_of_lies", task_of_lies, METH_VARARGS,
     "task_of_lies(tstate, seed, rounds, one_in) -> (how often a task was known, all strings "
     "ended)"},
    {"task_watch", task_watch, METH_VARARGS,
     "task_watch(tstate, prefix, rounds) -> (looks with a name, names without the prefix, all "
     "strings ended)"},
    {"string_read", string_read, METH_VARARGS, "string_read(object, room) -> bytes | None"},
#if PY_VERSION_HEX < 0x030E0000
    {"dict_find", dict_find, METH_VARARGS,
     "dict_find(dict, key) -> address of the value, 0 or None"},
#endif
    {NULL, NULL, 0, NULL},
};
