/* Counts of turns by their busy time: log-linear buckets, at most 1 % wide, from 1 us to 1 h.
 *
 * One writer, the loop thread, in the hook around its selector; any thread reads. Each counter is
 * an atomic of its own, written with relaxed order: a reader may see a turn in `sum_ns` and not yet
 * in its bucket, never a torn number. Counts are exact. No lock, no allocation, a few ns an add.
 */
#ifndef LW_HISTOGRAM_H
#define LW_HISTOGRAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"

/* Values below 2^LW_HISTOGRAM_LOW_BITS ns share the linear first range; each octave above is split
 * in 2^LW_HISTOGRAM_SUB_BITS buckets. From 1 us on a bucket is at most 0.8 % of its value wide. */
#define LW_HISTOGRAM_SUB_BITS 7
#define LW_HISTOGRAM_LOW_BITS 10 /* 1.024 us: below, buckets of 8 ns */
#define LW_HISTOGRAM_TOP_BITS 42 /* 4398 s: what is longer counts in the last bucket */
#define LW_HISTOGRAM_BUCKETS                                                                       \
    ((size_t)(LW_HISTOGRAM_TOP_BITS - LW_HISTOGRAM_LOW_BITS + 1) << LW_HISTOGRAM_SUB_BITS)

typedef struct lw_histogram {
    _Atomic uint64_t buckets[LW_HISTOGRAM_BUCKETS];
    _Atomic uint64_t sum_ns; /* of all values */
    _Atomic uint64_t max_ns; /* the largest value */
} lw_histogram;

/* The bucket of a value, and the least value of a bucket (of bucket LW_HISTOGRAM_BUCKETS: the end
 * of the last one). */
size_t lw_histogram_bucket(lw_ns value_ns);
lw_ns lw_histogram_edge(size_t bucket);

/* Loop thread only, GIL or not. The second only keeps the largest value (heartbeat: no turns to
 * count). */
void lw_histogram_add(lw_histogram *histogram, lw_ns value_ns, uint32_t n); /* n times */
void lw_histogram_note_max(lw_histogram *histogram, lw_ns value_ns);

#endif
