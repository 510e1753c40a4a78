/* By what a histogram grew, in few bytes.
 *
 * Why: a window of five minutes in steps of five seconds needs sixty histograms. In full they are a
 * megabyte and more for each loop; but in five seconds a loop's turns fall into some dozens to some
 * hundreds of buckets, most of them a few times.
 *
 * How: for each bucket that grew, how many buckets after the last one that is, and by how much; both
 * as numbers of seven bits a byte, lowest first, the highest bit set on all but the last byte. A zero
 * ends it: no bucket is its own successor.
 */
#include "growth.h"

#define RELAXED memory_order_relaxed

static uint32_t
put(_Atomic uint8_t *to, uint32_t at, uint32_t number)
{
    while (number >= 0x80) {
        atomic_store_explicit(&to[at++], (uint8_t)(number | 0x80), RELAXED);
        number >>= 7;
    }
    atomic_store_explicit(&to[at++], (uint8_t)number, RELAXED);
    return at;
}

uint32_t
lw_growth_encode(lw_histogram *histogram, _Atomic uint32_t *base, _Atomic uint8_t *to)
{
    uint32_t at = 0, last = UINT32_MAX; /* the first bucket is one after it */
    for (uint32_t i = 0; i < LW_HISTOGRAM_BUCKETS; i++) {
        uint32_t count = (uint32_t)atomic_load_explicit(&histogram->buckets[i], RELAXED);
        uint32_t more = count - atomic_load_explicit(&base[i], RELAXED);
        if (more) {
            atomic_store_explicit(&base[i], count, RELAXED);
            at = put(to, at, i - last);
            at = put(to, at, more);
            last = i;
        }
    }
    return put(to, at, 0);
}

/* Zero too where the bytes are at their end. */
static uint32_t
take(_Atomic uint8_t *from, uint32_t length, uint32_t *at)
{
    uint32_t number = 0;
    for (unsigned shift = 0; *at < length && shift < 32; shift += 7) {
        uint8_t byte = atomic_load_explicit(&from[(*at)++], RELAXED);
        number |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            break;
        }
    }
    return number;
}

void
lw_growth_add(_Atomic uint8_t *from, uint32_t length, uint64_t *counts)
{
    uint32_t at = 0, bucket = UINT32_MAX, step;
    while ((step = take(from, length, &at)) != 0) {
        bucket += step;
        if (bucket >= LW_HISTOGRAM_BUCKETS) {
            return; /* torn: the reader will try again */
        }
        counts[bucket] += take(from, length, &at);
    }
}
