/* Whose job a helper does next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/loop/job.h"
#include "daemon/loop/job_turns.h"

#define SECOND UINT64_C(1000000000)

static struct worker_job jobs[100];
static unsigned job_count;

static void add(struct job_turns *turns, uint64_t payer, unsigned count)
{
    while (count--) {
        jobs[job_count].payer = payer;
        job_turns_add(turns, &jobs[job_count++]);
    }
}

/* The next job's payer; the job takes so long. */
static uint64_t next(struct job_turns *turns, uint64_t took_ns)
{
    struct worker_job *job = job_turns_take(turns);
    assert_non_null(job);
    job_turns_charge(turns, took_ns);
    return job->payer;
}

static int begin(void **state)
{
    static struct job_turns turns;
    turns = (struct job_turns){.payers = NULL};
    job_count = 0;
    *state = &turns;
    return 0;
}

static int end(void **state)
{
    assert_null(job_turns_take(*state));
    job_turns_end(*state);
    return 0;
}

static void many_jobs_of_one_keep_nobody_waiting(void **state)
{
    struct job_turns *turns = *state;
    add(turns, 7, 50);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(next(turns, SECOND), 7);
    for (unsigned i = 0; i < 8; i++) { /* the other's next job comes when one is done */
        add(turns, 8, 1);
        assert_int_equal(next(turns, SECOND), 8);
        assert_int_equal(next(turns, SECOND), 7);
    }
    for (unsigned i = 0; i < 32; i++)
        assert_int_equal(next(turns, SECOND), 7);
}

static void long_jobs_of_one_come_more_seldom(void **state)
{
    struct job_turns *turns = *state;
    unsigned counts[2] = {0};
    add(turns, 7, 10);
    add(turns, 8, 40);
    for (unsigned i = 0; i < 25; i++) {
        struct worker_job *job = job_turns_take(turns);
        job_turns_charge(turns, job->payer == 7 ? 4 * SECOND : SECOND);
        counts[job->payer - 7]++;
    }
    assert_int_equal(counts[0], 5);
    assert_int_equal(counts[1], 20);
    while (job_turns_take(turns))
        continue;
}

/* Nobody is owed the time before. */
static void a_late_session_takes_turns_at_once(void **state)
{
    struct job_turns *turns = *state;
    add(turns, 7, 6);
    for (unsigned i = 0; i < 3; i++)
        next(turns, SECOND);
    add(turns, 8, 4);
    unsigned counts[2] = {0};
    for (unsigned i = 0; i < 4; i++)
        counts[next(turns, SECOND) - 7]++;
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 2);
    while (job_turns_take(turns))
        continue;
}

static void jobs_of_one_keep_their_order(void **state)
{
    struct job_turns *turns = *state;
    add(turns, 7, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_ptr_equal(job_turns_take(turns), &jobs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_jobs_of_one_keep_nobody_waiting, begin, end),
        cmocka_unit_test_setup_teardown(long_jobs_of_one_come_more_seldom, begin, end),
        cmocka_unit_test_setup_teardown(a_late_session_takes_turns_at_once, begin, end),
        cmocka_unit_test_setup_teardown(jobs_of_one_keep_their_order, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
