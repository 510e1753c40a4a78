/* What libuv calls on the loop's thread, and what the handles' life needs of that: uv_turns.c. */
#ifndef LW_UV_TURNS_H
#define LW_UV_TURNS_H

#include "uv_handle.h"

/* The prepare handle's callback: libuv calls it before each poll, without the GIL. */
void lw_uv_on_prepare(void *handle);

/* Where libuv may be called, outside of that callback: the handle rests no longer. */
void lw_uv_wake(lw_uv *uv);

/* uv_handle.c: of whom a handle is. */
lw_uv *lw_uv_of_prepare(void *handle);
lw_uv *lw_uv_of_timer(void *handle);

/* uv_handle.c: NULL where the slot has another pulse, or this one is stopped. */
lw_uv *lw_uv_of_slot(lw_slot *slot);

#endif
