/* When a program that gives the GPU nothing counts as idle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "intercept/agent/idleness.h"

#define MS UINT64_C(1000000)
#define LOOK (10 * MS)

struct program {
    struct idleness idleness;
    uint64_t now_ns;
};

static void work(struct program *program, uint64_t ns)
{
    for (uint64_t end_ns = program->now_ns + ns; program->now_ns < end_ns; program->now_ns += LOOK)
        idleness_work(&program->idleness, program->now_ns);
}

/* How long it rests until it is idle; UINT64_MAX: it is not within `ns`. */
static uint64_t rest(struct program *program, uint64_t ns)
{
    uint64_t begin_ns = program->now_ns, idle_ns = UINT64_MAX;
    for (; program->now_ns < begin_ns + ns; program->now_ns += LOOK) {
        idleness_rest(&program->idleness, program->now_ns);
        if (program->idleness.is_idle && idle_ns == UINT64_MAX)
            idle_ns = program->now_ns - begin_ns;
    }
    return idle_ns;
}

static void a_program_without_gaps_is_idle_almost_at_once(void **state)
{
    struct program program = {.now_ns = 1000 * MS};
    work(&program, 5000 * MS);
    assert_in_range(rest(&program, 5000 * MS), IDLENESS_LEAST_NS - LOOK, IDLENESS_LEAST_NS + LOOK);
    work(&program, 100 * MS);
    assert_false(program.idleness.is_idle);
    assert_in_range(rest(&program, 5000 * MS), IDLENESS_LEAST_NS - LOOK, IDLENESS_LEAST_NS + LOOK);
}

static void usual_gaps_are_learned_and_forgotten(void **state)
{
    struct program program = {.now_ns = 1000 * MS};
    work(&program, 300 * MS);
    assert_int_not_equal(rest(&program, 70 * MS), UINT64_MAX); /* it could not be known */
    for (int i = 0; i < 10; i++) {
        work(&program, 300 * MS);
        assert_int_equal(rest(&program, 70 * MS), UINT64_MAX);
    }
    work(&program, 300 * MS);
    assert_in_range(rest(&program, 5000 * MS), 150 * MS, IDLENESS_MOST_NS);
    work(&program, 60000 * MS);
    assert_in_range(rest(&program, 5000 * MS), IDLENESS_LEAST_NS - LOOK, IDLENESS_LEAST_NS + 2 * LOOK);
}

static void nobody_rests_for_long_without_being_idle(void **state)
{
    struct program program = {.now_ns = 1000 * MS};
    for (int i = 0; i < 10; i++) {
        work(&program, 300 * MS);
        rest(&program, 180 * MS);
    }
    work(&program, 300 * MS);
    assert_in_range(rest(&program, 5000 * MS), IDLENESS_MOST_NS - LOOK, IDLENESS_MOST_NS + LOOK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_without_gaps_is_idle_almost_at_once),
        cmocka_unit_test(usual_gaps_are_learned_and_forgotten),
        cmocka_unit_test(nobody_rests_for_long_without_being_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
