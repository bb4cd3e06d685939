/* A cap on GPU time, without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/units.h"
#include "intercept/submit/cap_bucket.h"

#define MS UINT64_C(1000000)

/* A process that always has work, in pieces of `piece_ns`: how much of `span_ns` it gets. */
static double share_of(uint32_t cap, uint64_t piece_ns, uint64_t span_ns)
{
    struct cap_bucket bucket;
    uint64_t now = 5 * MS, end = now + span_ns, busy = 0;
    cap_bucket_begin(&bucket, cap, now);
    while (now < end) {
        cap_bucket_advance(&bucket, cap, now);
        if (cap_bucket_is_spent(&bucket)) {
            now += cap_bucket_wait_ns(&bucket);
            continue;
        }
        now += piece_ns;
        busy += piece_ns;
        cap_bucket_charge(&bucket, piece_ns);
    }
    return (double)busy / (double)span_ns;
}

static void a_busy_process_gets_its_cap_and_no_more(void **state)
{
    static const uint32_t caps[] = {100, 1000, 2500, 5000, 9000};
    static const uint64_t pieces[] = {MS / 20, MS, 20 * MS};
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        for (size_t j = 0; j < sizeof(pieces) / sizeof(pieces[0]); j++) {
            double share = share_of(caps[i], pieces[j], 10000 * MS), cap = caps[i] / (double)SHARE_WHOLE;
            assert_true(share > cap - 0.01 && share < cap + 0.01);
        }
    }
}

static void a_rest_is_made_up_for_by_one_bucket_at_most(void **state)
{
    struct cap_bucket bucket;
    cap_bucket_begin(&bucket, 2500, 0);
    cap_bucket_charge(&bucket, 50 * MS);
    assert_true(cap_bucket_is_spent(&bucket));
    cap_bucket_advance(&bucket, 2500, 3600000 * MS);
    cap_bucket_charge(&bucket, 49 * MS);
    assert_false(cap_bucket_is_spent(&bucket));
    cap_bucket_charge(&bucket, MS);
    assert_true(cap_bucket_is_spent(&bucket));
}

static void a_turn_is_waited_for_until_it_is_worth_having(void **state)
{
    struct cap_bucket bucket;
    cap_bucket_begin(&bucket, 5000, 0);
    cap_bucket_charge(&bucket, 50 * MS);
    assert_int_equal(cap_bucket_wait_ns(&bucket), 40 * MS); /* for 20 ms at half the rate */
    cap_bucket_charge(&bucket, 10 * MS);                    /* an overrun is paid for */
    assert_int_equal(cap_bucket_wait_ns(&bucket), 60 * MS);
    cap_bucket_begin(&bucket, 100, 0);
    cap_bucket_charge(&bucket, 50 * MS);
    assert_int_equal(cap_bucket_wait_ns(&bucket), 100 * MS); /* 1 ms, at a hundredth */
}

static void a_cap_can_change_at_any_time(void **state)
{
    struct cap_bucket bucket;
    cap_bucket_begin(&bucket, 1000, 0);
    cap_bucket_charge(&bucket, 50 * MS);
    cap_bucket_advance(&bucket, 5000, 10 * MS); /* 1 ms came by the old rate */
    assert_int_equal(bucket.left_ns, MS);
    cap_bucket_advance(&bucket, 5000, 20 * MS);
    assert_int_equal(bucket.left_ns, 6 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_busy_process_gets_its_cap_and_no_more),
        cmocka_unit_test(a_rest_is_made_up_for_by_one_bucket_at_most),
        cmocka_unit_test(a_turn_is_waited_for_until_it_is_worth_having),
        cmocka_unit_test(a_cap_can_change_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
