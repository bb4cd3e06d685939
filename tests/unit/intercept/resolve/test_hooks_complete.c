/* No way to take, free or tell memory, to give the GPU work, to wait for it or to hand out entry points is without a
 * hook. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/entry_points.h"
#include "intercept/resolve/hooks.h"

static void every_row_of_consequence_has_a_hook(void **state)
{
    unsigned missing = 0;
    (void)state;
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++) {
        enum cuda_class class = cuda_entries[id].class;
        if (class == CUDA_NEUTRAL || hook_functions[id])
            continue;
        print_error("%s has no hook\n", cuda_entries[id].symbol);
        missing++;
    }
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_of_consequence_has_a_hook)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
