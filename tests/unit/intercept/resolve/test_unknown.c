/* A function that no table knows is called as the program calls it, and seen. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "intercept/resolve/unknown.h"

/* What a function was called with. */
static struct {
    uint64_t whole[9];
    double parts[3];
} got;

static uint64_t brand_new(uint64_t a, uint64_t b, uint64_t c, double x, uint64_t d, uint64_t e, uint64_t f,
                          float y, uint64_t g, uint64_t h, uint64_t i, double z)
{
    const uint64_t whole[] = {a, b, c, d, e, f, g, h, i};
    memcpy(got.whole, whole, sizeof(whole));
    got.parts[0] = x;
    got.parts[1] = (double)y;
    got.parts[2] = z;
    return a + i;
}

static struct {
    unsigned calls;
    char name[32];
    uint64_t replaced, by;
} met;

static void meet(const char *name, uint64_t arguments[static UNKNOWN_ARGUMENTS])
{
    met.calls++;
    snprintf(met.name, sizeof(met.name), "%s", name);
    for (unsigned i = 0; i < UNKNOWN_ARGUMENTS; i++)
        if (met.replaced && arguments[i] == met.replaced)
            arguments[i] = met.by;
    errno = EXDEV;
}

static unsigned told;

static void tell(void)
{
    told++;
}

static void the_call_is_as_the_program_made_it(void **state)
{
    __typeof__(brand_new) *function =
        (__typeof__(brand_new) *)unknown_function("cuBrandNew", (void *)brand_new);
    assert_ptr_not_equal(function, brand_new);
    for (unsigned round = 0; round < 2; round++) {
        memset(&got, 0, sizeof(got));
        memset(&met, 0, sizeof(met));
        met.replaced = round ? 4 : 0;
        met.by = 44;
        errno = ENOTTY;
        assert_int_equal(function(1, 2, 3, 0.5, 4, 5, 6, 1.5F, 7, 8, 9, 2.5), 10);
        assert_int_equal(errno, ENOTTY);
        const uint64_t whole[] = {1, 2, 3, round ? 44 : 4, 5, 6, 7, 8, 9};
        const double parts[] = {0.5, 1.5, 2.5};
        assert_memory_equal(got.whole, whole, sizeof(whole));
        assert_memory_equal(got.parts, parts, sizeof(parts));
        assert_int_equal(met.calls, 1);
        assert_string_equal(met.name, "cuBrandNew");
    }
}

static uint64_t other(void)
{
    return 5;
}

static void a_function_has_one_thunk_and_is_told_of_once(void **state)
{
    char names[64];
    void *thunk = unknown_function("cuBrandNew", (void *)brand_new);
    assert_ptr_equal(unknown_function("cuBrandNew", (void *)brand_new), thunk);
    assert_int_equal(told, 2);
    assert_int_equal(unknown_names(names, sizeof(names)), 2);
    assert_string_equal(names, "cuOther cuBrandNew");
    assert_int_equal(unknown_names(names, strlen("cuOther") + 3), 1);
    assert_string_equal(names, "cuOther");
    assert_int_equal(unknown_names(names, 3), 0);
    assert_string_equal(names, "");
}

/* Nobody could be told before: whoever comes later hears of it. */
static void calls_of_before_are_remembered(void **state)
{
    assert_false(unknown_when_called(NULL));
    __typeof__(other) *function = (__typeof__(other) *)unknown_function("cuOther", (void *)other);
    assert_false(unknown_when_called(NULL));
    assert_int_equal(function(), 5);
    assert_true(unknown_when_called(meet));
}

static void *ask(void *place)
{
    *(void **)place = unknown_function("cuSame", (void *)ask);
    return NULL;
}

static void threads_that_ask_at_once_get_the_same(void **state)
{
    pthread_t threads[8];
    void *got_by[8];
    for (unsigned i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, ask, &got_by[i]);
    for (unsigned i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 1; i < 8; i++)
        assert_ptr_equal(got_by[i], got_by[0]);
}

/* Last: no place is left afterwards. */
static void without_a_thunk_asking_counts_as_calling(void **state)
{
    static char functions[UNKNOWN_MOST];
    unsigned direct = 0;
    memset(&met, 0, sizeof(met));
    for (unsigned i = 0; i < UNKNOWN_MOST; i++)
        direct += unknown_function("cuMany", &functions[i]) == &functions[i];
    assert_in_range(direct, 1, UNKNOWN_MOST - 1);
    assert_int_equal(met.calls, direct);
    assert_string_equal(met.name, "cuMany");
}

int main(void)
{
    unknown_when_asked(tell);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_before_are_remembered),
        cmocka_unit_test(the_call_is_as_the_program_made_it),
        cmocka_unit_test(a_function_has_one_thunk_and_is_told_of_once),
        cmocka_unit_test(threads_that_ask_at_once_get_the_same),
        cmocka_unit_test(without_a_thunk_asking_counts_as_calling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
