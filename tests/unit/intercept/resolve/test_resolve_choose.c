/* Choosing by the name asked and the pointer returned, on a driver made of numbers: its function for row N is
 * DRIVER(N), ours HOOK(N). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/entry_points.h"
#include "intercept/resolve/resolve.h"

#define DRIVER(symbol) ((void *)(uintptr_t)(0x10000 + CUDA_ID_##symbol))
#define HOOK(symbol) ((void *)(uintptr_t)(0x20000 + CUDA_ID_##symbol))
#define STRANGER ((void *)0x30000)

static void *hooks[CUDA_ENTRY_COUNT];
static int missing, twin_of, twin;

static void *driver_function(int id)
{
    if (id == missing)
        return NULL;
    if (id == twin)
        id = twin_of;
    return (void *)(uintptr_t)(0x10000 + id);
}

static int set_up(void **state)
{
    memset(hooks, 0, sizeof hooks);
    missing = twin = twin_of = -1;
    hooks[CUDA_ID_cuMemAlloc_v2] = HOOK(cuMemAlloc_v2);
    hooks[CUDA_ID_cuMemAllocAsync] = HOOK(cuMemAllocAsync);
    hooks[CUDA_ID_cuMemAllocAsync_ptsz] = HOOK(cuMemAllocAsync_ptsz);
    hooks[CUDA_ID_cuCtxCreate_v2] = HOOK(cuCtxCreate_v2);
    hooks[CUDA_ID_cuCtxDestroy_v2] = HOOK(cuCtxDestroy_v2);
    hooks[CUDA_ID_cuMemGetInfo_v2] = HOOK(cuMemGetInfo_v2);
    return 0;
}

static struct resolve_choice choose(const char *name, int version, cuuint64_t flags, const void *pointer)
{
    const struct resolve_tables tables = {.hooks = hooks, .driver_function = driver_function};
    return resolve_choose(&tables, name, version, flags, pointer);
}

static void assert_choice(struct resolve_choice choice, int id, bool unknown)
{
    assert_int_equal(choice.id, id);
    assert_int_equal(choice.unknown, unknown);
}

static void the_drivers_pointer_becomes_the_hook_of_its_form(void **state)
{
    assert_choice(choose("cuMemAlloc", 3020, 0, DRIVER(cuMemAlloc_v2)), CUDA_ID_cuMemAlloc_v2, false);
    assert_choice(choose("cuMemAlloc", 99999, 0, DRIVER(cuMemAlloc_v2)), CUDA_ID_cuMemAlloc_v2, false);
}

static void a_form_without_a_hook_stays(void **state)
{
    assert_choice(choose("cuMemAlloc", 2000, 0, DRIVER(cuMemAlloc)), -1, false);
    assert_choice(choose("cuInit", 2000, 0, DRIVER(cuInit)), -1, false);
}

static void the_per_thread_form_has_its_own_hook(void **state)
{
    cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    assert_choice(choose("cuMemAllocAsync", 11020, per_thread, DRIVER(cuMemAllocAsync_ptsz)),
                  CUDA_ID_cuMemAllocAsync_ptsz, false);
    assert_choice(choose("cuMemAllocAsync", 11020, 0, DRIVER(cuMemAllocAsync)), CUDA_ID_cuMemAllocAsync,
                  false);
}

/* An older driver answers version 12050 with the form of 3020: the pointer decides, not the version. */
static void another_form_than_the_version_says_is_chosen_by_its_pointer(void **state)
{
    assert_choice(choose("cuCtxCreate", 12050, 0, DRIVER(cuCtxCreate_v2)), CUDA_ID_cuCtxCreate_v2, false);
    assert_choice(choose("cuCtxCreate", 12050, 0, DRIVER(cuCtxCreate_v3)), -1, false);
}

static void one_function_under_two_symbols_is_chosen_by_version(void **state)
{
    twin = CUDA_ID_cuCtxDestroy;
    twin_of = CUDA_ID_cuCtxDestroy_v2;
    assert_choice(choose("cuCtxDestroy", 4000, 0, DRIVER(cuCtxDestroy_v2)), CUDA_ID_cuCtxDestroy_v2, false);
    assert_choice(choose("cuCtxDestroy", 2000, 0, DRIVER(cuCtxDestroy_v2)), -1, false);
}

static void an_unknown_pointer_that_allocates_is_chosen_by_name_and_version(void **state)
{
    assert_choice(choose("cuMemAlloc", 12000, 0, STRANGER), CUDA_ID_cuMemAlloc_v2, true);
    assert_choice(choose("cuMemAllocAsync", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, STRANGER),
                  CUDA_ID_cuMemAllocAsync_ptsz, true);
    /* Never another form than the one asked for. */
    assert_choice(choose("cuMemAlloc", 2000, 0, STRANGER), -1, true);
}

/* Whatever a hook does: pacing needs what waits, captures and contexts, the session's view needs queries. */
static void an_unknown_pointer_of_any_hooked_row_is_chosen_by_name(void **state)
{
    unsigned seen = 0;
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        hooks[id] = (void *)(uintptr_t)(0x20000 + id);
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++) {
        cuuint64_t flags = cuda_entries[id].stream == CUDA_STREAM_PER_THREAD
                               ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                               : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
        if (cuda_entry_resolve(cuda_entries[id].name, cuda_entries[id].since, flags) != id)
            continue; /* forms that a name never leads to */
        assert_choice(choose(cuda_entries[id].name, cuda_entries[id].since, flags, STRANGER), id, true);
        seen++;
    }
    assert_true(seen > 500);
}

static void an_unknown_pointer_of_no_name_of_ours_is_new(void **state)
{
    const char *const names[] = {"cuMemAlloc_v2", "", "cuBrandNew"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_choice(choose(names[i], 14000, 0, STRANGER), -1, false);
        assert_true(choose(names[i], 14000, 0, STRANGER).is_new);
    }
    assert_false(choose("cuMemAlloc", 14000, 0, STRANGER).is_new);
    assert_false(choose("cuInit", 14000, 0, DRIVER(cuInit)).is_new);
}

/* Our hook would have nothing to call. */
static void an_unknown_pointer_is_new_where_the_driver_exports_no_such_form(void **state)
{
    missing = CUDA_ID_cuMemAlloc_v2;
    assert_choice(choose("cuMemAlloc", 12000, 0, STRANGER), -1, false);
    assert_true(choose("cuMemAlloc", 12000, 0, STRANGER).is_new);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_drivers_pointer_becomes_the_hook_of_its_form, set_up),
        cmocka_unit_test_setup(a_form_without_a_hook_stays, set_up),
        cmocka_unit_test_setup(the_per_thread_form_has_its_own_hook, set_up),
        cmocka_unit_test_setup(another_form_than_the_version_says_is_chosen_by_its_pointer, set_up),
        cmocka_unit_test_setup(one_function_under_two_symbols_is_chosen_by_version, set_up),
        cmocka_unit_test_setup(an_unknown_pointer_that_allocates_is_chosen_by_name_and_version, set_up),
        cmocka_unit_test_setup(an_unknown_pointer_of_any_hooked_row_is_chosen_by_name, set_up),
        cmocka_unit_test_setup(an_unknown_pointer_of_no_name_of_ours_is_new, set_up),
        cmocka_unit_test_setup(an_unknown_pointer_is_new_where_the_driver_exports_no_such_form, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
