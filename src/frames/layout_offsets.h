/* CPython 3.13 and later: what _Py_DebugOffsets, at the start of _PyRuntime, says of the
 * interpreter that runs. Included by the layout headers of these versions only, each of which adds
 * the meaning of a frame's owner and the tag bits.
 */
#include "internal/pycore_gil.h"
#include "internal/pycore_runtime.h"

static_assert(offsetof(_PyRuntimeState, debug_offsets) == 0,
              "where every reader from outside looks for it");
static_assert(sizeof(((struct _PyInterpreterFrame *)0)->owner) == 1, "read as one byte");

static_assert(sizeof(((struct _gil_runtime_state *)0)->locked) == 4, "read as 32 bits");

#ifdef Py_GIL_DISABLED
static_assert(sizeof(((struct _gil_runtime_state *)0)->enabled) == 4, "read as 32 bits");
#define LW_FREE_THREADED 1
#else
#define LW_FREE_THREADED 0
#endif

/* The offsets of what is in the GIL count from the interpreter's state, in which the interpreter's
 * own one lies; but `enabled` from the begin of the GIL. Its length is not among them. */
static const char *
lw_layout_fill_gil(lw_layout *layout, const struct _Py_DebugOffsets *offsets)
{
    uint64_t own = offsets->interpreter_state.gil_runtime_state;
    uint64_t holder = offsets->interpreter_state.gil_runtime_state_holder - own;
    uint64_t locked = offsets->interpreter_state.gil_runtime_state_locked - own;
    uint64_t enabled = offsets->interpreter_state.gil_runtime_state_enabled;
    uint64_t length = sizeof(struct _gil_runtime_state);
    if (own > UINT32_MAX || offsets->interpreter_state.ceval_gil > UINT32_MAX ||
        offsets->interpreter_state.threads_head > UINT32_MAX || holder >= length ||
        locked >= length || enabled >= length) {
        return "the interpreter's debug offsets make no sense";
    }
    layout->interpreter_gil = (uint32_t)offsets->interpreter_state.ceval_gil;
    layout->interpreter_own_gil = (uint32_t)own;
    layout->gil_length = (uint32_t)length;
    layout->gil_holder = (uint32_t)holder;
    layout->gil_locked = (uint32_t)locked;
    layout->gil_enabled = (uint32_t)enabled;
    layout->gil_optional = LW_FREE_THREADED;
    return NULL;
}

static const char *
lw_layout_fill_offsets(lw_layout *layout)
{
    const struct _Py_DebugOffsets *offsets = &_PyRuntime.debug_offsets;
    if (memcmp(offsets->cookie, _Py_Debug_Cookie, sizeof offsets->cookie)) {
        return "the interpreter's debug offsets do not begin with their cookie";
    }
    if (offsets->version >> 16 != PY_VERSION_HEX >> 16 ||
        offsets->free_threaded != LW_FREE_THREADED) {
        return "the interpreter's debug offsets are those of another build of Python";
    }
    /* The three fields of a code object that the offsets do not have are taken from its public
     * struct. */
    if (offsets->code_object.size != sizeof(PyCodeObject) ||
        offsets->code_object.firstlineno != offsetof(PyCodeObject, co_firstlineno) ||
        offsets->code_object.co_code_adaptive != offsetof(PyCodeObject, co_code_adaptive)) {
        return "the code object of this interpreter is not the one built for";
    }
    if (offsets->thread_state.size > UINT32_MAX || offsets->interpreter_frame.size > UINT32_MAX) {
        return "the interpreter's debug offsets make no sense";
    }
    layout->thread_next = (uint32_t)offsets->thread_state.next;
    layout->interpreter_threads = (uint32_t)offsets->interpreter_state.threads_head;
    layout->thread_interpreter = (uint32_t)offsets->thread_state.interp;
    layout->thread_ident = (uint32_t)offsets->thread_state.thread_id;
    layout->thread_tid = (uint32_t)offsets->thread_state.native_thread_id;
    layout->thread_current = (uint32_t)offsets->thread_state.current_frame;
    layout->thread_chunk = (uint32_t)offsets->thread_state.datastack_chunk;
    layout->thread_top = (uint32_t)(offsets->thread_state.datastack_chunk + sizeof(void *));
    layout->frame_length = (uint32_t)offsets->interpreter_frame.localsplus;
    layout->frame_executable = (uint32_t)offsets->interpreter_frame.executable;
    layout->frame_previous = (uint32_t)offsets->interpreter_frame.previous;
    layout->frame_instruction = (uint32_t)offsets->interpreter_frame.instr_ptr;
    layout->frame_owner = (uint32_t)offsets->interpreter_frame.owner;
    layout->code_filename = (uint32_t)offsets->code_object.filename;
    layout->code_name = (uint32_t)offsets->code_object.name;
    layout->code_qualname = (uint32_t)offsets->code_object.qualname;
    layout->code_linetable = (uint32_t)offsets->code_object.linetable;
    layout->code_version = offsetof(PyCodeObject, co_version);
    layout->int_size = offsetof(PyLongObject, long_value.lv_tag);
    layout->int_digit = offsetof(PyLongObject, long_value.ob_digit);
    layout->int_size_tagged = true;
    return lw_layout_fill_gil(layout, offsets);
}
