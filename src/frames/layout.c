/* Chooses the layout header of the version compiled for and fills the table from it.
 *
 * The layout headers see the interpreter's internal headers; the rest is from the public ones
 * (PyCodeObject, the object heads), which are fixed for a minor version. A wrong layout must never
 * be used: lw_layout_setup checks that the interpreter that runs is the one compiled for and that
 * each offset lies within its struct, and lw_frames_setup compares a real snapshot afterwards.
 */
#define Py_BUILD_CORE_MODULE 1
#include <Python.h>

#include "layout.h"

#include <assert.h>
#include <stddef.h>

#if defined(LW_PORTABLE) || !defined(__linux__)
#define LW_NO_LAYOUT "this build leaves the reading of interpreter memory out"
#elif UINTPTR_MAX != UINT64_MAX
#define LW_NO_LAYOUT "the memory layout of builds for other than 64 bits is not known"
#elif PY_VERSION_HEX >= 0x030E0000 && defined(Py_GIL_DISABLED)
#define LW_NO_LAYOUT "the memory layout of free-threaded builds from 3.14 on is not known"
#elif PY_VERSION_HEX >= 0x03100000
#define LW_NO_LAYOUT "the memory layout of Python 3.16 and later is not known"
#elif PY_VERSION_HEX >= 0x030F0000
#include "layout_315.h"
#elif PY_VERSION_HEX >= 0x030E0000
#include "layout_314.h"
#elif PY_VERSION_HEX >= 0x030D0000
#include "layout_313.h"
#elif PY_VERSION_HEX >= 0x030C0000
#include "layout_312.h"
#elif PY_VERSION_HEX >= 0x030B0000
#include "layout_311.h"
#else
#define LW_NO_LAYOUT "the memory layout of Python before 3.11 is not known"
#endif

lw_layout lw_the_layout;

#ifdef LW_NO_LAYOUT

lw_result
lw_layout_setup(const char **reason)
{
    *reason = LW_NO_LAYOUT;
    return LW_ERR_FRAMES_VERSION;
}

#else

static_assert(sizeof(uintptr_t) == sizeof(unsigned long), "thread idents are read as words");
static_assert(sizeof(int) == 4, "int fields are read as 32 bits");
static_assert(sizeof(digit) == 4 && PyLong_SHIFT == 30,
              "a digit is read as 32 bits, never negative");
static_assert(sizeof(_Py_CODEUNIT) == 2, "an instruction is two bytes");
static_assert(sizeof(((PyCodeObject *)0)->co_firstlineno) == 4, "read as 32 bits");
static_assert(sizeof(((PyCodeObject *)0)->_co_firsttraceable) == 4, "read as 32 bits");
static_assert(offsetof(_PyStackChunk, previous) == offsetof(lw_raw_chunk, previous),
              "chunk header");
static_assert(offsetof(_PyStackChunk, size) == offsetof(lw_raw_chunk, size), "chunk header");
static_assert(offsetof(_PyStackChunk, top) == offsetof(lw_raw_chunk, top), "chunk header");
static_assert(offsetof(_PyStackChunk, data) == sizeof(lw_raw_chunk), "chunk header");
static_assert(offsetof(PyThreadState, datastack_top) ==
                  offsetof(PyThreadState, datastack_chunk) + sizeof(void *),
              "the top follows the chunk, also where the offsets are read at run time");

/* What the public headers fix for a whole minor version. */
static void
fill_public(lw_layout *layout)
{
    layout->object_type = offsetof(PyObject, ob_type);
    layout->object_size = offsetof(PyVarObject, ob_size);
    layout->bytes_data = offsetof(PyBytesObject, ob_sval);
    layout->code_firstlineno = offsetof(PyCodeObject, co_firstlineno);
    layout->code_filename = offsetof(PyCodeObject, co_filename);
    layout->code_name = offsetof(PyCodeObject, co_name);
    layout->code_qualname = offsetof(PyCodeObject, co_qualname);
    layout->code_linetable = offsetof(PyCodeObject, co_linetable);
    layout->code_consts = offsetof(PyCodeObject, co_consts);
    layout->code_firsttraceable = offsetof(PyCodeObject, _co_firsttraceable);
    layout->code_instructions = offsetof(PyCodeObject, co_code_adaptive);
    layout->code_type = (uintptr_t)&PyCode_Type;
    layout->unicode_type = (uintptr_t)&PyUnicode_Type;
    layout->bytes_type = (uintptr_t)&PyBytes_Type;
    layout->int_type = (uintptr_t)&PyLong_Type;
}

static bool
words_fit(const uint32_t *offsets, size_t n, uint32_t length)
{
    for (size_t i = 0; i < n; i++) {
        if (offsets[i] % sizeof(uint32_t) || offsets[i] + sizeof(uintptr_t) > length) {
            return false;
        }
    }
    return true;
}

/* What is looked at of the GIL stands at the begin of its struct. */
static bool
gil_fits(const lw_layout *layout)
{
    uint32_t most = layout->gil_length < LW_GIL_COPY_MAX ? layout->gil_length : LW_GIL_COPY_MAX;
    const uint32_t fields[] = {layout->gil_holder, layout->gil_locked, layout->gil_enabled};
    return words_fit(fields, sizeof fields / sizeof *fields, most);
}

/* Every field lies in what is copied of its struct, and the copies have room. */
static bool
fits(const lw_layout *layout)
{
    const uint32_t thread[] = {layout->thread_next,    layout->thread_interpreter,
                               layout->thread_ident,   layout->thread_tid,
                               layout->thread_current, layout->thread_chunk,
                               layout->thread_top};
    const uint32_t frame[] = {layout->frame_executable, layout->frame_previous,
                              layout->frame_instruction};
    const uint32_t code[] = {
        layout->code_firstlineno, layout->code_filename,       layout->code_name,
        layout->code_qualname,    layout->code_linetable,      layout->code_consts,
        layout->code_version,     layout->code_firsttraceable, layout->object_size};
    return layout->thread_length <= LW_THREAD_COPY_MAX && gil_fits(layout) &&
           layout->int_length <= LW_INT_COPY_MAX && layout->frame_length <= LW_FRAME_COPY_MAX &&
           layout->code_length <= LW_CODE_COPY_MAX && layout->frame_owner < layout->frame_length &&
           words_fit(thread, sizeof thread / sizeof *thread, layout->thread_length) &&
           words_fit(frame, sizeof frame / sizeof *frame, layout->frame_length) &&
           words_fit(code, sizeof code / sizeof *code, layout->code_length);
}

lw_result
lw_layout_setup(const char **reason)
{
    lw_layout layout = {0};
    if (Py_Version >> 16 != PY_VERSION_HEX >> 16) {
        *reason = "built for another minor version of Python than the one that runs";
        return LW_ERR_FRAMES_VERSION;
    }
    if ((Py_Version & 0xF0) != 0xF0) {
        *reason = "the memory layout of a pre-release of Python is not final";
        return LW_ERR_FRAMES_VERSION;
    }
    fill_public(&layout);
    *reason = lw_layout_fill(&layout);
    if (*reason) {
        return LW_ERR_FRAMES_VERSION;
    }
    layout.code_length = layout.code_instructions;
    layout.int_length = layout.int_digit + (uint32_t)sizeof(digit);
    layout.thread_length = layout.thread_top + (uint32_t)sizeof(uintptr_t);
    for (int owner = 0; owner < LW_OWNERS; owner++) {
        layout.owners[owner] = lw_layout_owner(owner);
    }
    if (!fits(&layout)) {
        *reason = "the interpreter's offsets do not lie within its structs";
        return LW_ERR_FRAMES_VERSION;
    }
    lw_the_layout = layout;
    return LW_OK;
}

#endif
