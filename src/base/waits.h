/* waits.h - waits counted by their length, in the same buckets in the interceptor, on the wire, in the daemon and
 * in metrics. */
#pragma once

#include <stdint.h>

#define WAITS_BUCKETS 16u

/* The longest wait that each bucket counts. */
static const uint64_t waits_bounds_ns[WAITS_BUCKETS] = {
    50000,    100000,   200000,    500000,    1000000,   2000000,    5000000,    10000000,
    20000000, 50000000, 100000000, 200000000, 500000000, 1000000000, 5000000000, UINT64_MAX};

static inline unsigned waits_bucket(uint64_t ns)
{
    unsigned bucket = 0;
    while (ns > waits_bounds_ns[bucket])
        bucket++;
    return bucket;
}

/* The length in ns that `part` (0..1) of the waits do not exceed. Waits are taken to be spread evenly within their
 * bucket. For waits in the last bucket, which has no bound, the result is the bound before it. 0 when there were no
 * waits. */
static inline double waits_quantile_ns(const uint64_t counts[WAITS_BUCKETS], double part)
{
    double all = 0, below = 0;
    for (unsigned i = 0; i < WAITS_BUCKETS; i++)
        all += (double)counts[i];
    for (unsigned i = 0; i < WAITS_BUCKETS; i++) {
        double from = i ? (double)waits_bounds_ns[i - 1] : 0, count = (double)counts[i];
        if (count > 0 && below + count >= part * all)
            return i == WAITS_BUCKETS - 1
                       ? from
                       : from + ((double)waits_bounds_ns[i] - from) * (part * all - below) / count;
        below += count;
    }
    return 0;
}
