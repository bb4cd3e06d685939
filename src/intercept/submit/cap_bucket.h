/* cap_bucket.h - a cap on the GPU time of a process on its own: a token bucket. Pure: the clock is the caller's.
 *
 * The bucket fills at the cap's rate up to 50 ms of GPU time, and what the process keeps the GPU busy is
 * taken from it, also below zero. When it is empty the process's turn is over; the next begins once there is
 * enough for a turn worth having. So the cap holds over any ten seconds to within the bucket. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cap_bucket {
    uint32_t cap; /* ten-thousandths of the time (SHARE_WHOLE: none) */
    int64_t left_ns;
    uint64_t at_ns; /* `left_ns` is of then */
};

/* A full bucket. */
void cap_bucket_begin(struct cap_bucket *bucket, uint32_t cap, uint64_t now_ns);

/* Go on to `now_ns`, from when on `cap` holds. */
void cap_bucket_advance(struct cap_bucket *bucket, uint32_t cap, uint64_t now_ns);

/* The process kept the GPU busy for so long. */
void cap_bucket_charge(struct cap_bucket *bucket, uint64_t busy_ns);

/* Whether the turn is over. */
bool cap_bucket_is_spent(const struct cap_bucket *bucket);

/* How long until the next turn may begin; 0: now. */
uint64_t cap_bucket_wait_ns(const struct cap_bucket *bucket);
