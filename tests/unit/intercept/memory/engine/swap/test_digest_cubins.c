/* The kernel of digests as machine code: which of the cubins is chosen, and that the simulated card takes each of those that
 * the build has made where it should, and nowhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "intercept/memory/engine/swap/move/digest_cubins.h"
#include "intercept/memory/engine/swap/move/digest_ptx.h"
#include "simgpu/code/module.h"

static void the_newest_cubin_of_the_generation_is_chosen(void **state)
{
    static const struct digest_cubin table[] = {
        {75, NULL, 1}, {80, NULL, 2}, {86, NULL, 3}, {90, NULL, 4}, {0}};
    static const struct {
        unsigned capability;
        size_t chosen; /* 0: none */
    } rows[] = {{0, 0}, {70, 0}, {75, 1}, {80, 2}, {85, 2}, {86, 3}, {89, 3}, {90, 4}, {100, 0}};
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct digest_cubin *cubin = digest_cubin_for(table, rows[i].capability);
        assert_int_equal(cubin ? cubin->bytes : 0, rows[i].chosen);
    }
}

static void see_it_taken(const struct digest_cubin *cubin, unsigned capability)
{
    struct sim_image *image;
    assert_int_equal(sim_image_parse(cubin->image, cubin->bytes, capability, &image, NULL), CUDA_SUCCESS);
    const struct sim_kernel_image *kernel = sim_image_kernel(image, DIGEST_KERNEL);
    assert_non_null(kernel);
    assert_int_equal(kernel->parameter_count, 2);
    assert_int_equal(kernel->max_threads, DIGEST_THREADS);
    sim_image_free(image);
}

static void a_card_takes_the_cubins_of_its_generation(void **state)
{
    static const unsigned cards[] = {70, 75, 80, 86, 89, 90, 100, 103, 110, 120, 121};
    for (unsigned i = 0; i < sizeof(cards) / sizeof(cards[0]); i++) {
        const struct digest_cubin *chosen = digest_cubin_for(digest_cubins, cards[i]);
        if (chosen)
            see_it_taken(chosen, cards[i]);
        for (const struct digest_cubin *other = digest_cubins; other->capability; other++) {
            struct sim_image *image;
            if (!chosen || other > chosen)
                assert_int_equal(sim_image_parse(other->image, other->bytes, cards[i], &image, NULL),
                                 CUDA_ERROR_NO_BINARY_FOR_GPU);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_cubin_of_the_generation_is_chosen),
        cmocka_unit_test(a_card_takes_the_cubins_of_its_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
