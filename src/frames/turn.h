/* How many callbacks the loop's turn has, and which of them runs: the locals of asyncio's
 * _run_once. */
#ifndef LW_TURN_H
#define LW_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "view.h"

/* With the GIL, at module exec, idempotent; asyncio gets imported. Finds the code and the places of
 * its locals; where they are not as expected, no frame will be a turn. */
void lw_turn_setup(void);

/* The code object is _run_once's: its frame has a turn. Without the GIL. */
bool lw_turn_is(uintptr_t code);

/* The locals of such a frame, which the view's walk has just met; -1: not known, or not set yet.
 * Without the GIL. */
void lw_turn_read(lw_view *view, uintptr_t frame, int32_t *callbacks, int32_t *callback);

#endif
