/* By what a histogram grew, in few bytes: most buckets do not, and the others by little. */
#ifndef LW_GROWTH_H
#define LW_GROWTH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"

/* All buckets in use: two bytes for the way from one to the next at most, five for its count, and the
 * end. */
#define LW_GROWTH_MAX ((uint32_t)(LW_HISTOGRAM_BUCKETS * 7 + 1))
#define LW_GROWTH_ROOM (1u << 20)

/* What each bucket has more than base[], whose counts become those of the histogram; returns how
 * many bytes that took. The loop thread, which writes the histogram; `to` has LW_GROWTH_MAX. */
uint32_t lw_growth_encode(lw_histogram *histogram, _Atomic uint32_t *base, _Atomic uint8_t *to);

/* Adds it to counts[]. Any bytes will do: what is no growth is bounded nonsense. */
void lw_growth_add(_Atomic uint8_t *from, uint32_t length, uint64_t *counts);

#endif
