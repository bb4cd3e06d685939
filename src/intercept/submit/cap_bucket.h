/* cap_bucket.h - a token bucket that caps the GPU time of a process without a daemon. Pure: the clock is the caller's.
 *
 * The bucket fills at the cap's rate, up to 50 ms of GPU time. The time for which the process keeps the GPU busy is taken
 * from it, also below zero. When it is empty the process's turn is over. The next turn begins once the bucket has 20 ms,
 * or what it gains in 100 ms if that is less. So over any ten seconds, the cap holds to within the bucket. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cap_bucket {
    uint32_t cap; /* ten-thousandths of the time (SHARE_WHOLE: no cap) */
    int64_t left_ns;
    uint64_t at_ns; /* when `left_ns` was computed */
};

/* Begin with a full bucket. */
void cap_bucket_begin(struct cap_bucket *bucket, uint32_t cap, uint64_t now_ns);

/* Fill the bucket up to `now_ns`, at the rate of the cap so far. From then on, `cap` holds. */
void cap_bucket_advance(struct cap_bucket *bucket, uint32_t cap, uint64_t now_ns);

/* The process kept the GPU busy for `busy_ns`. */
void cap_bucket_charge(struct cap_bucket *bucket, uint64_t busy_ns);

/* Whether the turn is over. */
bool cap_bucket_is_spent(const struct cap_bucket *bucket);

/* How long until the next turn may begin; 0: now. */
uint64_t cap_bucket_wait_ns(const struct cap_bucket *bucket);
