/* CPython 3.11: final, so everything is from the headers compiled against. Included by layout.c
 * only.
 *
 * The current frame hangs in a _PyCFrame on the C stack; prev_instr is the code unit before the
 * next instruction, and f_lasti counts from it.
 */
#include "internal/pycore_frame.h"
#include "internal/pycore_runtime.h"

static_assert(offsetof(_PyCFrame, current_frame) == 8,
              "the _PyCFrame of 3.11: use_tracing comes first");
static_assert(FRAME_OWNED_BY_THREAD == 0 && FRAME_OWNED_BY_GENERATOR == 1 &&
                  FRAME_OWNED_BY_FRAME_OBJECT == 2,
              "as in 3.11.0");
static_assert(sizeof(((_PyInterpreterFrame *)0)->owner) == 1, "read as one byte");
static_assert(offsetof(_PyInterpreterFrame, previous) == 48 &&
                  offsetof(_PyInterpreterFrame, prev_instr) == 56 &&
                  offsetof(_PyInterpreterFrame, f_code) == 32 &&
                  offsetof(_PyInterpreterFrame, owner) == 69,
              "the frame of 3.11, on 64 bits");

static_assert(sizeof(((struct _gil_runtime_state *)0)->locked) == 4, "read as 32 bits");
static_assert(offsetof(struct _gil_runtime_state, last_holder) == 8 &&
                  offsetof(struct _gil_runtime_state, locked) == 16,
              "the GIL of 3.11, on 64 bits");

static lw_owner
lw_layout_owner(int owner)
{
    switch ((enum _frameowner)owner) {
    case FRAME_OWNED_BY_THREAD:
    case FRAME_OWNED_BY_FRAME_OBJECT:
        return LW_OWNER_STACK;
    case FRAME_OWNED_BY_GENERATOR:
        return LW_OWNER_GENERATOR;
    }
    return LW_OWNER_BAD;
}

static const char *
lw_layout_fill(lw_layout *layout)
{
    layout->thread_next = offsetof(PyThreadState, next);
    layout->interpreter_threads = offsetof(PyInterpreterState, threads.head);
    layout->thread_interpreter = offsetof(PyThreadState, interp);
    layout->thread_ident = offsetof(PyThreadState, thread_id);
    layout->thread_tid = offsetof(PyThreadState, native_thread_id);
    layout->thread_current = offsetof(PyThreadState, cframe);
    layout->current_in_cframe = true;
    layout->cframe_current = offsetof(_PyCFrame, current_frame);
    layout->thread_chunk = offsetof(PyThreadState, datastack_chunk);
    layout->thread_top = offsetof(PyThreadState, datastack_top);
    layout->frame_length = offsetof(_PyInterpreterFrame, localsplus);
    layout->frame_executable = offsetof(_PyInterpreterFrame, f_code);
    layout->frame_previous = offsetof(_PyInterpreterFrame, previous);
    layout->frame_instruction = offsetof(_PyInterpreterFrame, prev_instr);
    layout->frame_owner = offsetof(_PyInterpreterFrame, owner);
    layout->gil_address = (uintptr_t)&_PyRuntime.ceval.gil;
    layout->gil_length = sizeof(struct _gil_runtime_state);
    layout->gil_holder = offsetof(struct _gil_runtime_state, last_holder);
    layout->gil_locked = offsetof(struct _gil_runtime_state, locked);
    layout->int_size = offsetof(PyVarObject, ob_size);
    layout->int_digit = offsetof(PyLongObject, ob_digit);
    return NULL;
}
