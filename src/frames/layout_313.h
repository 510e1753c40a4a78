/* CPython 3.13, with and without the GIL. Included by layout.c only.
 *
 * instr_ptr is the instruction that runs or is about to. The free-threaded build of 3.13 has one
 * copy of each code object's instructions (thread-local ones came with 3.14), and its frames hold
 * plain pointers to code.
 */
#include "layout_offsets.h"

#include "internal/pycore_frame.h"

static_assert(FRAME_OWNED_BY_THREAD == 0 && FRAME_OWNED_BY_GENERATOR == 1 &&
                  FRAME_OWNED_BY_FRAME_OBJECT == 2 && FRAME_OWNED_BY_CSTACK == 3,
              "as in 3.13.0");

static lw_owner
lw_layout_owner(int owner)
{
    switch ((enum _frameowner)owner) {
    case FRAME_OWNED_BY_THREAD:
    case FRAME_OWNED_BY_FRAME_OBJECT:
        return LW_OWNER_STACK;
    case FRAME_OWNED_BY_GENERATOR:
        return LW_OWNER_GENERATOR;
    case FRAME_OWNED_BY_CSTACK:
        return LW_OWNER_SKIP;
    }
    return LW_OWNER_BAD;
}

static const char *
lw_layout_fill(lw_layout *layout)
{
    layout->tag_bits = 0;
    return lw_layout_fill_offsets(layout);
}
