/* CPython 3.15 with the GIL. Included by layout.c only.
 *
 * A frame holds its code object as a _PyStackRef, whose lowest bits are tags. A frame that is being
 * torn down has a null executable for a moment. FRAME_OWNED_BY_CSTACK is gone.
 */
#include "layout_offsets.h"

#include "internal/pycore_interpframe.h"

static_assert(FRAME_OWNED_BY_THREAD == 0 && FRAME_OWNED_BY_GENERATOR == 1 &&
                  FRAME_OWNED_BY_FRAME_OBJECT == 2 && FRAME_OWNED_BY_INTERPRETER == 3,
              "as in 3.15.0");
static_assert(Py_TAG_BITS == 3, "two tag bits");
static_assert(Py_INT_TAG == 3, "both are set in a small integer, which stands above them");
static_assert(sizeof(_PyStackRef) == sizeof(uintptr_t), "a tagged pointer");

static lw_owner
lw_layout_owner(int owner)
{
    switch ((enum _frameowner)owner) {
    case FRAME_OWNED_BY_THREAD:
    case FRAME_OWNED_BY_FRAME_OBJECT:
        return LW_OWNER_STACK;
    case FRAME_OWNED_BY_GENERATOR:
        return LW_OWNER_GENERATOR;
    case FRAME_OWNED_BY_INTERPRETER:
        return LW_OWNER_SKIP;
    }
    return LW_OWNER_BAD;
}

static const char *
lw_layout_fill(lw_layout *layout)
{
    layout->tag_bits = Py_TAG_BITS;
    layout->tag_int = Py_INT_TAG;
    return lw_layout_fill_offsets(layout);
}
