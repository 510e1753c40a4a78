/* How long an event waits that becomes ready at a random moment of a window: 0 where it finds the
 * loop idle, else for the rest of the turn. Of all moments, those in which the rest is longer than
 * w are the sum over turns of (busy - w), a falling line between two neighbouring busy times, which
 * is inverted here. Lag.waiting in loopwatch/_lag.py is the exact twin; here a turn counts as the
 * middle of its bucket. */
#include "history.h"

lw_ns
lw_window_waiting_ns(const lw_window *window, double quantile)
{
    double time_ns = (double)(window->totals.busy_ns + window->totals.idle_ns);
    double wanted_ns = (1 - quantile) * time_ns; /* so many nanoseconds are worse */
    double turns = 0, busy_ns = 0;               /* of the buckets above */
    for (size_t bucket = LW_HISTOGRAM_BUCKETS; bucket-- > 0;) {
        double middle_ns = (double)(lw_histogram_edge(bucket) + lw_histogram_edge(bucket + 1)) / 2;
        if (turns > 0 && busy_ns - turns * middle_ns >= wanted_ns) {
            break;
        }
        turns += (double)window->counts[bucket];
        busy_ns += (double)window->counts[bucket] * middle_ns;
    }
    return turns > 0 && busy_ns > wanted_ns ? (lw_ns)((busy_ns - wanted_ns) / turns) : 0;
}
