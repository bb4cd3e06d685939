/* Tests of the built-in kernels: their results against plain C, and what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "kernels_ptx.h"
#include "simgpu/code/kernels.h"
#include "simgpu/code/module.h"

#define COUNT 1000u

/* The only memory that is mapped. */
static struct {
    _Alignas(16) unsigned char bytes[COUNT * 8 + 64];
} mapped;

static bool is_mapped(void *memory, uint64_t address, uint64_t bytes, bool writes)
{
    assert_ptr_equal(memory, &mapped);
    assert_true(bytes > 0);
    assert_true(address + bytes > address);
    uint64_t begin = (uintptr_t)mapped.bytes, end = begin + sizeof(mapped.bytes);
    return address >= begin && address < end && bytes <= end - address;
}

static const struct sim_launch launch = {
    .grid = {3, 2, 1}, .block = {32, 2, 1}, .is_mapped = is_mapped, .memory = &mapped};

static CUresult run(const char *name, void *const *arguments)
{
    const struct sim_kernel *kernel = sim_kernel_find(name);
    assert_non_null(kernel);
    return kernel->run(&launch, arguments);
}

static uint64_t at(size_t offset)
{
    return (uintptr_t)mapped.bytes + offset;
}

static void a_fill_writes_exactly_its_words(void **state)
{
    uint32_t *words = (uint32_t *)(void *)mapped.bytes, value = 0xdeadbeef;
    uint64_t address = at(4), count = COUNT;
    memset(&mapped, 0x11, sizeof(mapped));
    assert_int_equal(run("gs_fill_u32", (void *[]){&address, &value, &count}), CUDA_SUCCESS);
    assert_int_equal(words[0], 0x11111111);
    for (unsigned i = 1; i <= COUNT; i++)
        assert_int_equal(words[i], 0xdeadbeef);
    assert_int_equal(words[COUNT + 1], 0x11111111);
}

static void saxpy_rounds_once(void **state)
{
    /* (1 + 2^-12)^2 - 1 keeps its last bit only if the product is not rounded. */
    float *x = (float *)(void *)mapped.bytes, *y = x + COUNT, a = 1.0f + 0x1p-12f;
    for (unsigned i = 0; i < COUNT; i++) {
        x[i] = i ? (float)i : a;
        y[i] = i ? (float)i * 0.5f : -1.0f;
    }
    uint64_t count = COUNT, x_address = at(0), y_address = at(COUNT * 4);
    assert_int_equal(run("gs_saxpy_f32", (void *[]){&count, &a, &x_address, &y_address}), CUDA_SUCCESS);
    assert_true(y[0] == 0x1p-11f + 0x1p-24f);
    assert_true(y[7] == fmaf(a, 7.0f, 3.5f));
    assert_true(y[999] == fmaf(a, 999.0f, 499.5f));
}

static void saxpy_answers_the_cards_nan(void **state)
{
    static const uint32_t payload = 0x7fc12345;
    float *x = (float *)(void *)mapped.bytes, *y = x + 1, a = 2.0f;
    uint32_t bits;
    uint64_t count = 1, x_address = at(0), y_address = at(4);
    memcpy(x, &payload, sizeof(*x));
    *y = 1.0f;
    assert_int_equal(run("gs_saxpy_f32", (void *[]){&count, &a, &x_address, &y_address}), CUDA_SUCCESS);
    memcpy(&bits, y, sizeof(bits));
    assert_int_equal(bits, 0x7fffffff);
}

static void checksums_wrap_and_add_to_what_is_there(void **state)
{
    uint32_t *words = (uint32_t *)(void *)mapped.bytes;
    for (unsigned i = 0; i < COUNT; i++)
        words[i] = 0xfffffff0u + i;
    uint64_t address = at(0), count = COUNT, out = at(COUNT * 4), wide_out = at(COUNT * 8);
    words[COUNT] = 5;
    assert_int_equal(run("gs_checksum_u32", (void *[]){&address, &count, &out}), CUDA_SUCCESS);
    assert_int_equal(words[COUNT], 0xfffffff0u * COUNT + COUNT * (COUNT - 1) / 2 + 5);

    uint64_t *longs = (uint64_t *)(void *)mapped.bytes, expected = 7;
    count = COUNT / 2;
    for (unsigned i = 0; i < COUNT / 2; i++)
        expected += longs[i];
    longs[COUNT] = 7;
    assert_int_equal(run("gs_checksum_u64", (void *[]){&address, &count, &wide_out}), CUDA_SUCCESS);
    assert_int_equal(longs[COUNT], expected);
}

static void spin_takes_what_was_asked_for(void **state)
{
    const struct sim_kernel *kernel = sim_kernel_find("gs_spin_us");
    uint64_t microseconds = 250, forever = UINT64_MAX;
    assert_int_equal(kernel->duration_ns(&launch, (void *[]){&microseconds}), 250000);
    assert_true(kernel->duration_ns(&launch, (void *[]){&forever}) == UINT64_MAX);
    assert_int_equal(kernel->run(&launch, (void *[]){&microseconds}), CUDA_SUCCESS);
}

static void steps_take_their_time_and_have_a_result(void **state)
{
    const struct sim_kernel *kernel = sim_kernel_find("gs_steps_u32");
    uint64_t steps = 3, none = 0, out = at(0), forever = UINT64_MAX;
    uint32_t x = 1;
    for (unsigned i = 0; i < 8 * 3; i++)
        x = x * 1664525 + 1013904223;
    assert_int_equal(run("gs_steps_u32", (void *[]){&steps, &out}), CUDA_SUCCESS);
    assert_int_equal(*(uint32_t *)(void *)mapped.bytes, x);
    assert_int_equal(run("gs_steps_u32", (void *[]){&steps, &none}), CUDA_SUCCESS);
    assert_int_equal(kernel->duration_ns(&launch, (void *[]){&steps, &none}), 60);
    assert_true(kernel->duration_ns(&launch, (void *[]){&forever, &none}) == UINT64_MAX);
}

static void unmapped_memory_is_an_illegal_address_and_nothing_is_written(void **state)
{
    unsigned char before[sizeof(mapped.bytes)];
    uint32_t value = 1;
    float a = 2;
    uint64_t inside = at(0), beyond = at(sizeof(mapped.bytes) - 8), zero = 0, count = 3, one = 1;
    uint64_t huge = UINT64_MAX / 2, last = UINT64_MAX & ~UINT64_C(7), eight = 8;
    memset(&mapped, 0x22, sizeof(mapped));
    memcpy(before, mapped.bytes, sizeof(before));
    assert_int_equal(run("gs_fill_u32", (void *[]){&beyond, &value, &count}), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run("gs_fill_u32", (void *[]){&zero, &value, &one}), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run("gs_fill_u32", (void *[]){&inside, &value, &huge}), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run("gs_fill_u32", (void *[]){&last, &value, &eight}), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run("gs_saxpy_f32", (void *[]){&count, &a, &inside, &beyond}),
                     CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run("gs_saxpy_f32", (void *[]){&count, &a, &beyond, &inside}),
                     CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run("gs_checksum_u32", (void *[]){&inside, &one, &zero}), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run("gs_checksum_u64", (void *[]){&beyond, &count, &inside}),
                     CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_memory_equal(before, mapped.bytes, sizeof(before));
}

static void a_crooked_pointer_is_a_misaligned_address(void **state)
{
    uint32_t value = 1;
    uint64_t crooked = at(2), half = at(4), inside = at(0), one = 1;
    assert_int_equal(run("gs_fill_u32", (void *[]){&crooked, &value, &one}), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_int_equal(run("gs_checksum_u64", (void *[]){&inside, &one, &half}), CUDA_ERROR_MISALIGNED_ADDRESS);
}

static void no_elements_touch_no_memory(void **state)
{
    uint32_t value = 1;
    float a = 1;
    uint64_t nowhere = 1, none = 0;
    assert_int_equal(run("gs_fill_u32", (void *[]){&nowhere, &value, &none}), CUDA_SUCCESS);
    assert_int_equal(run("gs_saxpy_f32", (void *[]){&none, &a, &nowhere, &nowhere}), CUDA_SUCCESS);
}

static void every_ptx_entry_is_a_kernel_with_the_same_parameters(void **state)
{
    struct error error;
    struct sim_image *image;
    assert_int_equal(sim_image_parse(kernels_ptx, SIM_IMAGE_UNKNOWN_BYTES, 70, &image, &error), CUDA_SUCCESS);
    assert_int_equal(image->kernel_count, 6);
    for (uint32_t i = 0; i < image->kernel_count; i++) {
        const struct sim_kernel_image *entry = &image->kernels[i];
        const struct sim_kernel *kernel = sim_kernel_find(entry->name);
        assert_non_null(kernel);
        assert_int_equal(kernel->parameter_count, entry->parameter_count);
        for (uint32_t j = 0; j < entry->parameter_count; j++)
            assert_int_equal(kernel->parameter_bytes[j], entry->parameters[j].size_bytes);
    }
    sim_image_free(image);
    assert_null(sim_kernel_find("gs_fill_u3"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fill_writes_exactly_its_words),
        cmocka_unit_test(saxpy_rounds_once),
        cmocka_unit_test(saxpy_answers_the_cards_nan),
        cmocka_unit_test(checksums_wrap_and_add_to_what_is_there),
        cmocka_unit_test(spin_takes_what_was_asked_for),
        cmocka_unit_test(steps_take_their_time_and_have_a_result),
        cmocka_unit_test(unmapped_memory_is_an_illegal_address_and_nothing_is_written),
        cmocka_unit_test(a_crooked_pointer_is_a_misaligned_address),
        cmocka_unit_test(no_elements_touch_no_memory),
        cmocka_unit_test(every_ptx_entry_is_a_kernel_with_the_same_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
