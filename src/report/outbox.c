/* A single-producer single-consumer ring and a table of claims: outbox.h. Head and tail only grow;
 * the place in the ring is their remainder. Each record is preceded by its length; a length of WRAP
 * says that the rest of the ring is unused. */
#include "outbox.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "park.h"

#define RELAXED memory_order_relaxed
#define WRAP UINT64_MAX
#define CLAIMS                                                                                     \
    64 /* urgent records that may be on their way at once; an older one counts as delivered */

enum claim_state { WAITING = 0, TAKEN, DELIVERED, DUMPED };

static struct {
    char *bytes;
    _Atomic uint64_t head;              /* written by the watchdog */
    _Atomic uint64_t tail;              /* written by the reporter */
    _Atomic uint64_t written, released; /* records */
    uint64_t reserved; /* the watchdog's: head after the record that is being written */
    lw_park park;      /* the reporter sleeps here */
    _Atomic uint32_t interrupted;
    uint64_t last_token;             /* the watchdog's */
    _Atomic uint64_t claims[CLAIMS]; /* token << 2 | claim_state */
} box;

bool
lw_outbox_setup(void)
{
    if (!box.bytes) {
        box.bytes = malloc(LW_OUTBOX_BYTES);
    }
    return box.bytes != NULL;
}

void
lw_outbox_forget(void)
{
    atomic_store_explicit(&box.tail, atomic_load_explicit(&box.head, RELAXED), RELAXED);
    atomic_store_explicit(&box.released, atomic_load_explicit(&box.written, RELAXED), RELAXED);
    atomic_store_explicit(&box.interrupted, 0, RELAXED);
}

/* --- the ring --- */

static uint64_t *
length_at(uint64_t position)
{
    return (uint64_t *)(void *)(box.bytes + position % LW_OUTBOX_BYTES);
}

void *
lw_outbox_reserve(size_t n)
{
    uint64_t need = 8 + ((n + 7) & ~(uint64_t)7);
    uint64_t head = atomic_load_explicit(&box.head, RELAXED);
    uint64_t to_edge = LW_OUTBOX_BYTES - head % LW_OUTBOX_BYTES;
    uint64_t skip = need > to_edge ? to_edge : 0;
    uint64_t used = head - atomic_load_explicit(&box.tail, memory_order_acquire);
    if (used + skip + need > LW_OUTBOX_BYTES) {
        return NULL;
    }
    if (skip) {
        *length_at(head) = WRAP;
    }
    *length_at(head + skip) = need;
    box.reserved = head + skip + need;
    return length_at(head + skip) + 1;
}

void
lw_outbox_commit(void)
{
    atomic_fetch_add_explicit(&box.written, 1, memory_order_release);
    atomic_store_explicit(&box.head, box.reserved, memory_order_release);
    lw_park_wake(&box.park);
}

const void *
lw_outbox_peek(void)
{
    uint64_t tail = atomic_load_explicit(&box.tail, RELAXED);
    uint64_t head = atomic_load_explicit(&box.head, memory_order_acquire);
    if (tail == head) {
        return NULL;
    }
    if (*length_at(tail) == WRAP) {
        tail += LW_OUTBOX_BYTES - tail % LW_OUTBOX_BYTES;
        atomic_store_explicit(&box.tail, tail, memory_order_release);
        assert(tail != head); /* a wrap is only written together with the record behind it */
    }
    return length_at(tail) + 1;
}

void
lw_outbox_release(void)
{
    uint64_t tail = atomic_load_explicit(&box.tail, RELAXED);
    atomic_store_explicit(&box.tail, tail + *length_at(tail), memory_order_release);
    atomic_fetch_add_explicit(&box.released, 1, memory_order_release);
}

uint64_t
lw_outbox_taken(void)
{
    return atomic_load_explicit(&box.released, memory_order_acquire);
}

uint64_t
lw_outbox_pending(void)
{
    uint64_t released = atomic_load_explicit(&box.released, memory_order_acquire);
    uint64_t written = atomic_load_explicit(&box.written, memory_order_acquire);
    return written - released;
}

bool
lw_outbox_wait(lw_ns deadline_ns)
{
    for (;;) {
        uint32_t seen = lw_park_seen(&box.park);
        if (box.bytes && lw_outbox_peek()) {
            return true;
        }
        if (atomic_load_explicit(&box.interrupted, memory_order_acquire) ||
            lw_now_ns() >= deadline_ns) {
            return false;
        }
        lw_park_wait(&box.park, seen, deadline_ns);
    }
}

void
lw_outbox_interrupt(void)
{
    atomic_store_explicit(&box.interrupted, 1, memory_order_release);
    lw_park_wake(&box.park);
}

bool
lw_outbox_interrupted(void)
{
    return atomic_exchange_explicit(&box.interrupted, 0, memory_order_acq_rel);
}

/* --- claims --- */

static _Atomic uint64_t *
claim_of(uint64_t token)
{
    return &box.claims[token % CLAIMS];
}

static uint64_t
claim_word(uint64_t token, enum claim_state state)
{
    return token << 2 | state;
}

static bool
move(uint64_t token, enum claim_state from, enum claim_state to)
{
    uint64_t expected = claim_word(token, from);
    return atomic_compare_exchange_strong_explicit(
        claim_of(token), &expected, claim_word(token, to), memory_order_acq_rel, RELAXED);
}

uint64_t
lw_outbox_token(void)
{
    uint64_t token = ++box.last_token;
    atomic_store_explicit(claim_of(token), claim_word(token, WAITING), memory_order_release);
    return token;
}

bool
lw_outbox_waits(uint64_t token)
{
    return atomic_load_explicit(claim_of(token), memory_order_acquire) ==
           claim_word(token, WAITING);
}

bool
lw_outbox_take_over(uint64_t token)
{
    return move(token, WAITING, DUMPED) || move(token, TAKEN, DUMPED);
}

bool
lw_outbox_claim(uint64_t token)
{
    if (!token) { /* not urgent: nobody else will have it */
        return true;
    }
    uint64_t now = atomic_load_explicit(claim_of(token), memory_order_acquire);
    if (token == LW_NO_TOKEN || now >> 2 != token) {
        return true; /* not one of those that are dumped */
    }
    return move(token, WAITING, TAKEN) || (now & 3) == TAKEN;
}

void
lw_outbox_delivered(uint64_t token)
{
    if (token != LW_NO_TOKEN && !move(token, WAITING, DELIVERED)) {
        move(token, TAKEN, DELIVERED);
    }
}
