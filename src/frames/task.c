/* Reads the running loop of a thread, and the task that it runs, where asyncio keeps them.
 *
 * Why: a frame says where the loop stood, the task says on whose behalf. asyncio.current_task()
 * would say it, and needs the GIL.
 *
 * How: task_setup.c has found the places (task_layout.h). The loop is a word of the thread state or
 * an entry of its dict; the task likewise. A C task, or an instance of a subclass, has its name and
 * its coroutine at the same offsets; a coroutine has its qualname as generators do. An object of
 * another type (a task in pure Python, a coroutine of Cython's) is only told by its address, or
 * not described at all.
 *
 * Everything here runs without the GIL on the reader's thread, through guarded reads only. It
 * allocates nothing and touches no reference count. Any pointer may be stale: types are checked
 * before an object is understood as one, and what does not fit is left out. Whether loop, task and
 * frames belong together is for the caller to find out, by reading again.
 */
#include "task.h"
#include "task_layout.h"

#include "strings.h"
#if !LW_RUNNING_TASK_IN_THREAD
#include "dict.h"
#endif

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BASES_MAX 32 /* classes between a task's and _asyncio.Task */

lw_task_layout lw_the_task_layout;

static uintptr_t
word_at(const char *copy, uint32_t offset)
{
    uintptr_t word;
    memcpy(&word, copy + offset, sizeof word);
    return word;
}

static uintptr_t
type_of(const char *copy)
{
    return word_at(copy, (uint32_t)offsetof(PyObject, ob_type));
}

/* --- the loop --- */

#if LW_RUNNING_LOOP_IN_THREAD

static bool
read_loop(lw_reader *reader, uintptr_t tstate, uintptr_t *loop)
{
    return lw_read(reader, tstate + lw_the_task_layout.thread_loop, loop, sizeof *loop);
}

#else

#if LW_RUNNING_LOOP_IN_HOLDER
static bool
unwrap(lw_reader *reader, uintptr_t value, uintptr_t *loop)
{
    lw_loop_holder holder;
    if (!lw_read(reader, value, &holder, sizeof holder) ||
        (uintptr_t)Py_TYPE(&holder.head) != lw_the_task_layout.holder_type) {
        return false;
    }
    *loop = holder.pid == getpid() ? holder.loop : 0;
    return true;
}
#else
static bool
unwrap(lw_reader *reader, uintptr_t value, uintptr_t *loop)
{
    (void)reader;
    *loop = value;
    return true;
}
#endif

static bool
read_loop(lw_reader *reader, uintptr_t tstate, uintptr_t *loop)
{
    uintptr_t dict, value;
    *loop = 0;
    if (!lw_read(reader, tstate + offsetof(PyThreadState, dict), &dict, sizeof dict)) {
        return false;
    }
    if (!dict) {
        return true; /* no loop has run on this thread */
    }
    if (!lw_dict_find(reader, dict, lw_the_task_layout.loop_key, &value)) {
        return false;
    }
    return !value || unwrap(reader, value, loop);
}

#endif

bool
lw_task_loop(lw_reader *reader, uintptr_t tstate, uintptr_t *loop)
{
    if (!lw_the_task_layout.ready || !read_loop(reader, tstate, loop)) {
        *loop = 0;
        return false;
    }
    if (*loop == (uintptr_t)Py_None) {
        *loop = 0;
    }
    return true;
}

/* --- the task --- */

static bool
read_current(lw_reader *reader, uintptr_t tstate, uintptr_t loop, uintptr_t *task)
{
#if LW_RUNNING_TASK_IN_THREAD
    (void)loop;
    return lw_read(reader, tstate + lw_the_task_layout.thread_task, task, sizeof *task);
#else
    (void)tstate;
    return lw_dict_find(reader, lw_the_task_layout.current_tasks, loop, task);
#endif
}

/* _asyncio.Task itself or a subclass of it, along tp_base: a class with several bases has the one
 * whose layout it extends there. */
static bool
is_task_type(lw_reader *reader, uintptr_t type)
{
    for (int i = 0; i < BASES_MAX && type; i++) {
        if (type == lw_the_task_layout.task_type) {
            return true;
        }
        type = lw_read_word(reader, type + offsetof(PyTypeObject, tp_base), 0);
    }
    return false;
}

#if PY_VERSION_HEX >= 0x030C0000
/* An unnamed task has a number for a name until somebody asks for the name. */
static void
read_number(lw_reader *reader, uintptr_t object, char *name, size_t size)
{
    enum { DIGITS_MAX = (64 + PyLong_SHIFT - 1) / PyLong_SHIFT, SIGN_BITS = 3, TAG_SHIFT = 3 };
    PyLongObject head;
    digit digits[DIGITS_MAX];
    if (!lw_read(reader, object, &head, offsetof(PyLongObject, long_value.ob_digit)) ||
        Py_TYPE((PyObject *)&head) != &PyLong_Type || (head.long_value.lv_tag & SIGN_BITS) != 0) {
        return;
    }
    uintptr_t n = head.long_value.lv_tag >> TAG_SHIFT;
    uintptr_t address = object + offsetof(PyLongObject, long_value.ob_digit);
    if (n > DIGITS_MAX || !lw_read(reader, address, digits, n * sizeof *digits)) {
        return;
    }
    unsigned long long number = 0;
    for (size_t i = n; i > 0; i--) {
        number = number << PyLong_SHIFT | digits[i - 1];
    }
    (void)snprintf(name, size, "Task-%llu", number);
}
#endif

static void
read_name(lw_reader *reader, uintptr_t object, char name[LW_TASK_NAME_MAX + 1])
{
    size_t length;
    if (lw_string_read(reader, object, name, LW_TASK_NAME_MAX, &length)) {
        return;
    }
#if PY_VERSION_HEX >= 0x030C0000
    read_number(reader, object, name, LW_TASK_NAME_MAX + 1);
#endif
}

static void
read_coroutine(lw_reader *reader, uintptr_t object, char qualname[LW_TASK_NAME_MAX + 1])
{
    char copy[LW_TASK_COPY_MAX];
    uint32_t offset = lw_the_task_layout.coroutine_qualname;
    size_t length;
    if (lw_read(reader, object, copy, offset + sizeof(uintptr_t)) &&
        (type_of(copy) == (uintptr_t)&PyCoro_Type || type_of(copy) == (uintptr_t)&PyGen_Type)) {
        lw_string_read(reader, word_at(copy, offset), qualname, LW_TASK_NAME_MAX, &length);
    }
}

/* Copies the part of the task that has the name and the coroutine; false where it is not a C task.
 */
static bool
read_fields(lw_reader *reader, uintptr_t task, uintptr_t *name, uintptr_t *coroutine)
{
    const lw_task_layout *layout = &lw_the_task_layout;
    char copy[LW_TASK_COPY_MAX];
    uint32_t last =
        layout->task_name > layout->task_coroutine ? layout->task_name : layout->task_coroutine;
    if (!lw_read(reader, task, copy, last + sizeof(uintptr_t)) ||
        !is_task_type(reader, type_of(copy))) {
        return false;
    }
    *name = word_at(copy, layout->task_name);
    *coroutine = word_at(copy, layout->task_coroutine);
    return true;
}

void
lw_task_read(lw_reader *reader, uintptr_t tstate, uintptr_t loop, lw_task *out)
{
    uintptr_t task = 0;
    uintptr_t name, coroutine;
    out->address = 0;
    out->native = false;
    out->name[0] = out->coroutine[0] = '\0';
    out->known = lw_the_task_layout.ready && (!loop || read_current(reader, tstate, loop, &task));
    if (!out->known || !task || task == (uintptr_t)Py_None) {
        return;
    }
    out->address = task;
    out->native = read_fields(reader, task, &name, &coroutine);
    if (out->native) {
        read_name(reader, name, out->name);
        read_coroutine(reader, coroutine, out->coroutine);
    }
}
