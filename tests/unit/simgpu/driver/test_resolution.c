/* Tests of how the simulated driver hands out its entry points. */
#include "simulated.h"

#include <dlfcn.h>
#include <string.h>

#include "cuda/entry_points.h"

static void *library;

/* What a program gets by the symbol's own name. */
static void *exported(const char *symbol)
{
    void *address = dlsym(library, symbol);
    if (!address)
        fail_msg("%s is not exported", symbol);
    return address;
}

static void every_entry_point_is_exported_and_found_by_name_version_and_stream_form(void **state)
{
    for (int row = 0; row < CUDA_ENTRY_COUNT; row++) {
        const struct cuda_entry *entry = &cuda_entries[row];
        cuuint64_t flags = entry->stream == CUDA_STREAM_PER_THREAD
                               ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                               : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
        void *address = NULL;
        CUdriverProcAddressQueryResult status;
        if (cuda_entry_resolve(entry->name, entry->since, flags) != row)
            continue; /* another form of the same version is the newer one */
        assert_cuda(cuGetProcAddress_v2(entry->name, &address, entry->since, flags, &status));
        assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
        assert_ptr_equal(address, exported(entry->symbol));
    }
    for (int row = 0; row < CUDA_ENTRY_COUNT; row++)
        exported(cuda_entries[row].symbol);
}

/* Of before CUDA 3.2: found, and refused in any context, as a 64-bit driver does. */
static void forms_with_32_bit_addresses_are_refused(void **state)
{
    static const char *const names[] = {"cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuMemcpyHtoD"};
    CUcontext context;
    assert_cuda(cuInit(0));
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CUresult (*narrow)(uint64_t, uint64_t, uint64_t);
        CUdriverProcAddressQueryResult status;
        void *address = NULL;
        assert_cuda(cuGetProcAddress_v2(names[i], &address, 2000, 0, &status));
        memcpy(&narrow, &address, sizeof(narrow));
        assert_int_equal(narrow(0, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
    }
    assert_cuda(cuCtxDestroy_v2(context));
}

/* As a card's driver may do: each has another address than its symbol, and does the same. */
static void pointers_may_differ_from_exported_symbols(void **state)
{
    void *seen[CUDA_ENTRY_COUNT];
    size_t count = 0;
    setenv("FAKECUDA_APART_POINTERS", "1", 1);
    for (int row = 0; row < CUDA_ENTRY_COUNT; row++) {
        const struct cuda_entry *entry = &cuda_entries[row];
        if (entry->stream == CUDA_STREAM_PER_THREAD ||
            cuda_entry_resolve(entry->name, entry->since, 0) != row)
            continue;
        assert_cuda(cuGetProcAddress_v2(entry->name, &seen[count], entry->since, 0, NULL));
        assert_ptr_not_equal(seen[count], exported(entry->symbol));
        for (size_t other = 0; other < count; other++)
            assert_ptr_not_equal(seen[count], seen[other]);
        count++;
    }
    assert_true(count > 300);
    CUresult (*version)(int *);
    int number = 0;
    void *address;
    assert_cuda(cuGetProcAddress_v2("cuDriverGetVersion", &address, 2020, 0, NULL));
    memcpy(&version, &address, sizeof(version));
    assert_cuda(version(&number));
    assert_int_equal(number, CUDA_ENTRY_NEWEST);
    unsetenv("FAKECUDA_APART_POINTERS");
}

static void cudart_finds_what_it_asks_for(void **state)
{
    static const struct {
        const char *name;
        int version;
        cuuint64_t flags;
        const char *symbol;
    } lookups[] = {
#define LOOKUP(name, version, flags, symbol) {name, version, flags, symbol},
#include "cudart_lookups.def"
#undef LOOKUP
    };
    assert_true(sizeof(lookups) / sizeof(lookups[0]) > 400);
    for (size_t i = 0; i < sizeof(lookups) / sizeof(lookups[0]); i++) {
        void *address = NULL;
        CUdriverProcAddressQueryResult status;
        assert_cuda(
            cuGetProcAddress_v2(lookups[i].name, &address, lookups[i].version, lookups[i].flags, &status));
        if (address != exported(lookups[i].symbol))
            fail_msg("%s %d %d is not %s", lookups[i].name, lookups[i].version, (int)lookups[i].flags,
                     lookups[i].symbol);
    }
}

static void a_form_newer_than_the_version_asked_for_is_not_given(void **state)
{
    void *address = &address;
    CUdriverProcAddressQueryResult status;
    assert_cuda(cuGetProcAddress_v2("cuMemAllocAsync", &address, 11010, 0, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    assert_null(address);
    assert_cuda(cuGetProcAddress_v2("cuMemAlloc", &address, 3010, 0, &status));
    assert_ptr_equal(address, exported("cuMemAlloc"));
    assert_cuda(cuGetProcAddress_v2("cuMemAlloc", &address, 13000, 0, &status));
    assert_ptr_equal(address, exported("cuMemAlloc_v2"));
}

static void no_flag_means_the_per_thread_forms_to_programs_compiled_for_them(void **state)
{
    void *address;
    assert_cuda(cuGetProcAddress_v2("cuStreamQuery", &address, 13000, 0, NULL));
    assert_ptr_equal(address, exported("cuStreamQuery"));
    assert_cuda(cuGetProcAddress_v2_ptsz("cuStreamQuery", &address, 13000, 0, NULL));
    assert_ptr_equal(address, exported("cuStreamQuery_ptsz"));
    assert_cuda(
        cuGetProcAddress_v2_ptsz("cuStreamQuery", &address, 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL));
    assert_ptr_equal(address, exported("cuStreamQuery"));
}

static void unknown_names_and_wrong_arguments_are_refused(void **state)
{
    void *address = &address;
    CUdriverProcAddressQueryResult status;
    assert_cuda(cuGetProcAddress_v2("", &address, 0, 0, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    assert_null(address);
    assert_int_equal(cuGetProcAddress("cuNoSuchThing", &address, 13000, 0), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuGetProcAddress(NULL, &address, 13000, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGetProcAddress("cuInit", NULL, 13000, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGetProcAddress("cuInit", &address, 13000, 3), CUDA_ERROR_INVALID_VALUE);
}

static void what_is_not_simulated_says_so(void **state)
{
    assert_int_equal(cuGraphicsMapResources(0, NULL, NULL), CUDA_ERROR_NOT_INITIALIZED);
    assert_cuda(cuInit(0));
    assert_int_equal(cuGraphicsMapResources(0, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=1GiB", NULL});
    library = dlopen("libcuda.so.1", RTLD_NOW);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_point_is_exported_and_found_by_name_version_and_stream_form),
        cmocka_unit_test(pointers_may_differ_from_exported_symbols),
        cmocka_unit_test(cudart_finds_what_it_asks_for),
        cmocka_unit_test(a_form_newer_than_the_version_asked_for_is_not_given),
        cmocka_unit_test(no_flag_means_the_per_thread_forms_to_programs_compiled_for_them),
        cmocka_unit_test(unknown_names_and_wrong_arguments_are_refused),
        cmocka_unit_test(what_is_not_simulated_says_so),
        cmocka_unit_test(forms_with_32_bit_addresses_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
