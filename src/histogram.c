/* Counts of turns by their busy time, in log-linear buckets.
 *
 * Why: a quantile of the lag over days needs every turn, also the short ones, in a fixed amount of
 * memory and for a few nanoseconds each. Buckets that grow with the value keep the relative error
 * the same from a microsecond to an hour.
 *
 * How: an octave is the values that share their highest set bit. Each octave from 2^LOW_BITS on is
 * cut in 2^SUB_BITS equal buckets, so a bucket is at most 1/128 (0.78 %) of its value wide. Below
 * lies a linear range with buckets as wide as those of the first octave. The bits behind the
 * highest one, cut to SUB_BITS, are the place in the octave.
 */
#include "histogram.h"

#include <assert.h>

#define SUB_BUCKETS ((lw_ns)1 << LW_HISTOGRAM_SUB_BITS)
#define LOW_SHIFT (LW_HISTOGRAM_LOW_BITS - LW_HISTOGRAM_SUB_BITS)

static_assert(LW_HISTOGRAM_LOW_BITS >= LW_HISTOGRAM_SUB_BITS, "a bucket is at least 1 ns wide");
static_assert(LW_HISTOGRAM_TOP_BITS < 64, "the end of the last bucket is a lw_ns");
static_assert((uint64_t)1 << LW_HISTOGRAM_TOP_BITS > 3600 * LW_NS_PER_S, "an hour is within range");
static_assert(100 <= 1 << LW_HISTOGRAM_SUB_BITS, "a bucket is at most 1 % of its value wide");

size_t
lw_histogram_bucket(lw_ns value_ns)
{
    if (value_ns >> LW_HISTOGRAM_LOW_BITS == 0) {
        return (size_t)(value_ns >> LOW_SHIFT);
    }
    if (value_ns >> LW_HISTOGRAM_TOP_BITS != 0) {
        return LW_HISTOGRAM_BUCKETS - 1;
    }
    unsigned highest_bit = 63U - (unsigned)__builtin_clzll(value_ns);
    /* From SUB_BUCKETS to 2 * SUB_BUCKETS - 1: the linear range has taken the first SUB_BUCKETS. */
    lw_ns place = value_ns >> (highest_bit - LW_HISTOGRAM_SUB_BITS);
    return (size_t)((highest_bit - LW_HISTOGRAM_LOW_BITS) * SUB_BUCKETS + place);
}

lw_ns
lw_histogram_edge(size_t bucket)
{
    assert(bucket <= LW_HISTOGRAM_BUCKETS);
    if (bucket < SUB_BUCKETS) {
        return (lw_ns)bucket << LOW_SHIFT;
    }
    unsigned octave = (unsigned)(bucket >> LW_HISTOGRAM_SUB_BITS) - 1;
    lw_ns place = SUB_BUCKETS + (bucket & (SUB_BUCKETS - 1));
    return place << (octave + LOW_SHIFT);
}

/* One writer: nobody else stores to the counter between the load and the store, so that no locked
 * instruction is needed. */
static void
increase(_Atomic uint64_t *counter, uint64_t by)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + by, memory_order_relaxed);
}

void
lw_histogram_note_max(lw_histogram *histogram, lw_ns value_ns)
{
    if (value_ns > atomic_load_explicit(&histogram->max_ns, memory_order_relaxed)) {
        atomic_store_explicit(&histogram->max_ns, value_ns, memory_order_relaxed);
    }
}

/* Without the GIL or with it, on the loop thread alone. Takes no lock, allocates nothing, touches
 * no Python object. A reader beside it sees each counter whole and never going back, and the
 * counters in any order. */
void
lw_histogram_add(lw_histogram *histogram, lw_ns value_ns, uint32_t n)
{
    if (n) {
        increase(&histogram->buckets[lw_histogram_bucket(value_ns)], n);
        increase(&histogram->sum_ns, n * value_ns);
        lw_histogram_note_max(histogram, value_ns);
    }
}
