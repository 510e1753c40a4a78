/* What any thread may ask of the watchdog while it looks: the stall that goes on (watch.current), the
 * accounts of the profile (watch.profile, watch.slow_turns), and where other threads stand (the
 * workers of a full pool).
 *
 * The capture of a stall, the accounts and the snapper belong to the watchdog thread, so whoever
 * wants to see them asks for a record and waits. An account is empty once it was answered. There is
 * one question at a time; a second asker waits for the first. Nobody
 * waits on the watchdog's side.
 *
 *     IDLE -> (asker) CLAIMED -> ASKED -> (watchdog) ANSWERING -> ANSWERED -> (asker) IDLE
 *                                   \-> (asker gives up) IDLE
 */
#ifndef LW_ASK_H
#define LW_ASK_H

#include <stdbool.h>

#include "look.h"
#include "report/record.h"
#include "stacks.h"

/* With the GIL or on the starting thread: allocates the answer's memory, once. */
bool lw_ask_setup(void);

/* In a forked child, before its watchdog starts. */
void lw_ask_forget(void);

/* Any thread, without the GIL: the stall that goes on at this slot (LW_RECORD_ONGOING), or one of
 * its accounts (LW_RECORD_PROFILE, LW_RECORD_SLOW). NULL: there is none, or no answer in time. Where
 * it is not NULL, lw_ask_done must follow; the record is valid until then. */
const lw_record *lw_ask(lw_slot *slot, lw_record_kind kind, lw_ns timeout_ns);

/* Likewise: a record of kind CAPTURE with a sample for each of the threads that was found (stacks.h).
 * NULL also where frames are not read raw here. */
const lw_record *lw_ask_stacks(lw_slot *slot, const lw_threads *wanted, lw_ns timeout_ns);
void lw_ask_done(void);

/* The watchdog, after its looks. */
void lw_ask_serve(lw_eye *eye);

#endif
