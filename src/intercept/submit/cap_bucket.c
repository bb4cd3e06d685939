#include "intercept/submit/cap_bucket.h"

#include "base/units.h"

#define BUCKET_NS INT64_C(50000000)
/* A turn begins once the bucket has TURN_NS, or what it gains in TURN_PERIOD_NS if that is less. */
#define TURN_NS INT64_C(20000000)
#define TURN_PERIOD_NS INT64_C(100000000)
/* The bucket gains and loses no more than this at once, so that the time for which a process was stopped, or a machine
 * suspended, does not count. */
#define ADVANCE_MOST_NS INT64_C(10000000000)

void cap_bucket_begin(struct cap_bucket *bucket, uint32_t cap, uint64_t now_ns)
{
    *bucket = (struct cap_bucket){.cap = cap, .left_ns = BUCKET_NS, .at_ns = now_ns};
}

void cap_bucket_advance(struct cap_bucket *bucket, uint32_t cap, uint64_t now_ns)
{
    int64_t passed_ns = now_ns > bucket->at_ns ? (int64_t)(now_ns - bucket->at_ns) : 0;
    if (passed_ns > ADVANCE_MOST_NS)
        passed_ns = ADVANCE_MOST_NS;
    bucket->left_ns += passed_ns * (int64_t)bucket->cap / (int64_t)SHARE_WHOLE;
    if (bucket->left_ns > BUCKET_NS)
        bucket->left_ns = BUCKET_NS;
    bucket->at_ns = now_ns;
    bucket->cap = cap;
}

void cap_bucket_charge(struct cap_bucket *bucket, uint64_t busy_ns)
{
    bucket->left_ns -= busy_ns < (uint64_t)ADVANCE_MOST_NS ? (int64_t)busy_ns : ADVANCE_MOST_NS;
}

bool cap_bucket_is_spent(const struct cap_bucket *bucket)
{
    return bucket->left_ns <= 0;
}

uint64_t cap_bucket_wait_ns(const struct cap_bucket *bucket)
{
    int64_t cap = bucket->cap ? bucket->cap : 1;
    int64_t enough_ns = TURN_PERIOD_NS * cap / (int64_t)SHARE_WHOLE;
    if (enough_ns > TURN_NS)
        enough_ns = TURN_NS;
    int64_t missing_ns = enough_ns - bucket->left_ns;
    return missing_ns > 0 ? (uint64_t)((missing_ns * (int64_t)SHARE_WHOLE + cap - 1) / cap) : 0;
}
