/* What programs read in a session's policy, by what libgpuslice(7) says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/loop/daemon.h"
#include "daemon/session/policy.h"
#include "daemon/session/session.h"

static struct daemon two_cards;
static struct session session;

static int set_up(void **state)
{
    struct error error;
    two_cards = (struct daemon){.gpu_count = 2};
    two_cards.gpus[0] = (struct gpu){.total_bytes = 8192, .busy_percent = 37};
    two_cards.gpus[1] = (struct gpu){.total_bytes = 8192, .busy_percent = -1};
    session = (struct session){.daemon = &two_cards, .id = "0123456789ab", .gpu_count = 3};
    for (int i = 0; i < 3; i++)
        session.gpus[i] =
            (struct session_gpu){.uuid = {(uint8_t)(0xa0 + i)}, .gpu = i < 2 ? i : -1, .limit_bytes = 64};
    return policy_make(&session, &error);
}

static int tear_down(void **state)
{
    policy_unmake(&session);
    return 0;
}

static uint32_t word_at(size_t at)
{
    uint32_t word;
    memcpy(&word, (const char *)session.ledger.policy + at, sizeof(word));
    return word;
}

static void programs_find_how_busy_each_gpu_is(void **state)
{
    assert_int_equal(word_at(12), 3);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(*((const uint8_t *)session.ledger.policy + 64 + 64 * i), 0xa0 + i);
    assert_int_equal(word_at(64 + 60), 38);
    assert_int_equal(word_at(64 + 64 + 60), 0);  /* NVML does not say */
    assert_int_equal(word_at(64 + 128 + 60), 0); /* the card is not there */
}

static void each_sample_says_it_anew(void **state)
{
    two_cards.gpus[0].busy_percent = 0;
    two_cards.gpus[1].busy_percent = 100;
    policy_publish_sample(&session);
    assert_int_equal(word_at(64 + 60), 1);
    assert_int_equal(word_at(64 + 64 + 60), 101);
    two_cards.gpus[1].busy_percent = -1;
    policy_publish_sample(&session);
    assert_int_equal(word_at(64 + 64 + 60), 0);
}

static void a_session_without_a_region_is_passed_over(void **state)
{
    struct session other = {.daemon = &two_cards, .gpu_count = 1};
    policy_publish_sample(&other);
    assert_null(other.ledger.policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(programs_find_how_busy_each_gpu_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_sample_says_it_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_session_without_a_region_is_passed_over, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
