/* The way from the watchdog to the reporter: a ring of bytes with one writer and one reader, and
 * the claims on urgent records.
 *
 * A record lies in one piece. Where there is no room it is not written, and the writer counts it.
 * An urgent record (a stall that goes on) is claimed once: by the reporter before a sink sees it,
 * or by the watchdog, which then writes it to dump_to itself. A claim that is not delivered (the
 * sink is stuck) may still be taken over by the watchdog.
 *
 *     WAITING -> TAKEN (lw_outbox_claim) -> DELIVERED
 *        \---------\---> DUMPED (lw_outbox_take_over)
 *
 * A request for frames goes to no sink: it is DELIVERED from WAITING.
 */
#ifndef LW_OUTBOX_H
#define LW_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"

#define LW_OUTBOX_BYTES ((size_t)2 << 20)

/* With the GIL or on the starting thread: allocates the ring once. False without memory. */
bool lw_outbox_setup(void);

/* In a forked child, before it has a reporter or a watchdog: forgets what the parent's reporter
 * will deliver. Async-signal-safe. */
void lw_outbox_forget(void);

/* --- the watchdog --- */

/* Room for a record of n bytes, 8-byte aligned; NULL: none. lw_outbox_commit makes it visible and
 * wakes the reporter. */
void *lw_outbox_reserve(size_t n);
void lw_outbox_commit(void);

#define LW_NO_TOKEN 0 /* of a record that is not urgent: every claim on it succeeds */

/* A new token that is WAITING, for a record that is to be claimed. */
uint64_t lw_outbox_token(void);

/* Nobody has taken it yet: the record still waits. */
bool lw_outbox_waits(uint64_t token);

/* True where it was not delivered yet: it is the watchdog's now. */
bool lw_outbox_take_over(uint64_t token);

/* --- the reporter --- */

/* The oldest record, valid until lw_outbox_release; NULL where there is none. */
const void *lw_outbox_peek(void);
void lw_outbox_release(void);

/* Sleeps, without the GIL, until there is a record, lw_outbox_interrupt() was called, or the
 * deadline. True: a record. */
bool lw_outbox_wait(lw_ns deadline_ns);

/* Any thread: the next (or present) lw_outbox_wait returns at once. */
void lw_outbox_interrupt(void);

/* True once after lw_outbox_interrupt. */
bool lw_outbox_interrupted(void);

bool lw_outbox_claim(uint64_t token);
void lw_outbox_delivered(uint64_t token);

/* How many records are written and not released. */
uint64_t lw_outbox_pending(void);

/* How many records were ever released. */
uint64_t lw_outbox_taken(void);

#endif
