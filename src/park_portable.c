/* lw_park with one condition variable for the process. Sleepers are few (two threads and whoever
 * asks for a stop), so that waking all of them costs nothing worth a variable each. */
#include "park.h"

#if !defined(__linux__) || defined(LW_PORTABLE)

#include <errno.h>
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

/* Condition variables take the wall clock by default, which may be set: one second at most, and the
 * caller's loop sees the rest. */
static struct timespec
wall_deadline(lw_ns deadline_ns)
{
    lw_ns now_ns = lw_now_ns();
    lw_ns left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    if (left_ns > LW_NS_PER_S) {
        left_ns = LW_NS_PER_S;
    }
    lw_ns at_ns = lw_clock_ns(CLOCK_REALTIME) + left_ns;
    return (struct timespec){(time_t)(at_ns / LW_NS_PER_S), (long)(at_ns % LW_NS_PER_S)};
}

bool
lw_park_wait(lw_park *park, uint32_t seen, lw_ns deadline_ns)
{
    pthread_mutex_lock(&mutex);
    bool late = false;
    while (lw_park_seen(park) == seen && !late) {
        struct timespec at = wall_deadline(deadline_ns);
        pthread_cond_timedwait(&moved, &mutex, &at);
        late = deadline_ns != LW_NS_NEVER && lw_now_ns() >= deadline_ns;
    }
    pthread_mutex_unlock(&mutex);
    return late;
}

void
lw_park_wake(lw_park *park)
{
    pthread_mutex_lock(&mutex);
    atomic_fetch_add_explicit(&park->count, 1, memory_order_seq_cst);
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&mutex);
}

/* The copied condition variable counts sleepers that this process lacks, and a broadcast waits for
 * them; the copied mutex may be held by one of them. */
void
lw_park_forget(void)
{
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    moved = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

#endif
