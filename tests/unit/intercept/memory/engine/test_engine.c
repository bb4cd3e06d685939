/* The seam under the road for memory: an engine that puts every allocation at an address of its own choosing. What the
 * program sees are the engine's addresses, the driver keeps its own, and the ledger is right all the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fixture.h"
#include "intercept/memory/engine/engine.h"

/* --- The engine ------------------------------------------------------------------------------------ */

#define ELSEWHERE UINT64_C(0x600000000000)
#define APART (UINT64_C(1) << 36) /* what lies between two addresses */
#define MOST 64u

static CUdeviceptr drivers[MOST]; /* the driver's address of ELSEWHERE + i * APART; 0: free */

static CUresult allocate_elsewhere(const struct allocation *wanted, CUcontext owner)
{
    CUdeviceptr *address = wanted->got;
    CUresult result = plain_allocate(wanted);
    const struct alloc_row *row = &alloc_rows[wanted->way];
    if (result != CUDA_SUCCESS || row->record != RECORD_POINTER || !row->can_move)
        return result;
    unsigned at = 0;
    while (drivers[at])
        at++;
    assert_true(at < MOST);
    drivers[at] = *address;
    *address = ELSEWHERE + at * APART;
    return result;
}

static CUdeviceptr *driver_of(CUdeviceptr address)
{
    uint64_t at = (address - ELSEWHERE) / APART;
    return address >= ELSEWHERE && at < MOST && drivers[at] ? &drivers[at] : NULL;
}

static CUresult release_elsewhere(enum release_way way, uint64_t key, CUstream stream)
{
    CUdeviceptr *driver = release_rows[way].record == RECORD_POINTER ? driver_of(key) : NULL;
    CUresult result = plain_release(way, driver ? *driver : key, stream);
    if (result == CUDA_SUCCESS && driver)
        *driver = 0;
    return result;
}

static CUresult range_elsewhere(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct record record;
    if (!records_find_around(memory_records(), address, &record))
        return engine_plain.address_range(base, bytes, address);
    *base = record.key;
    *bytes = record.charged.bytes;
    return CUDA_SUCCESS;
}

static CUresult attribute_elsewhere(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    CUdeviceptr base;
    size_t bytes;
    if (which != CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
        range_elsewhere(&base, &bytes, address) != CUDA_SUCCESS)
        return engine_plain.pointer_attribute(value, which, address);
    *(CUdeviceptr *)value = base;
    return CUDA_SUCCESS;
}

static CUresult attributes_elsewhere(unsigned count, CUpointer_attribute *which, void **values,
                                     CUdeviceptr address)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = attribute_elsewhere(values[i], which[i], address);
    return result;
}

static const struct engine elsewhere = {
    .uses_ranges = true,
    .allocate = allocate_elsewhere,
    .release = release_elsewhere,
    .address_range = range_elsewhere,
    .pointer_attribute = attribute_elsewhere,
    .pointer_attributes = attributes_elsewhere,
};

/* --- What the driver says of addresses: it knows none of the engine's ------------------------------- */

static CUresult driver_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    if (address >= ELSEWHERE)
        return CUDA_ERROR_INVALID_VALUE;
    *base = address & ~(CUdeviceptr)UINT32_MAX;
    *bytes = 4096;
    return CUDA_SUCCESS;
}

static CUresult driver_attribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    if (address >= ELSEWHERE || which != CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        return CUDA_ERROR_INVALID_VALUE;
    *(CUmemorytype *)value = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}

static CUresult driver_attributes(unsigned count, CUpointer_attribute *which, void **values,
                                  CUdeviceptr address)
{
    return count ? driver_attribute(values[0], which[0], address) : CUDA_ERROR_INVALID_VALUE;
}

/* --- Tests ----------------------------------------------------------------------------------------- */

static int use_elsewhere(void **state)
{
    engine_in_use = &elsewhere;
    return make_context(state);
}

static int use_plain(void **state)
{
    int result = destroy_context(state);
    engine_in_use = &engine_plain;
    for (unsigned i = 0; i < MOST; i++)
        drivers[i] = 0; /* gone with the context */
    return result;
}

static void the_program_gets_the_engines_addresses(void **state)
{
    CUdeviceptr first = linear(MIB), second = linear(2 * MIB), pitched;
    size_t pitch;
    assert_int_equal(first, ELSEWHERE);
    assert_int_equal(second, ELSEWHERE + APART);
    assert_int_equal(cuMemAllocPitch_v2(&pitched, &pitch, 1, 100, 4), CUDA_SUCCESS);
    assert_int_equal(pitched, ELSEWHERE + 2 * APART);
    assert_int_equal(used(), 3 * MIB + 100 * FAKE_PITCH);
    assert_int_equal(fake_held(0), used());
    assert_int_equal(cuMemFree_v2(second), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeAsync(first, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(pitched), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(fake_held(0), 0);
    assert_int_equal(cuMemFree_v2(first), CUDA_ERROR_INVALID_VALUE);
}

static void an_interior_pointer_is_told_by_our_table(void **state)
{
    CUdeviceptr address = linear(MIB), base = 0;
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address + MIB - 1), CUDA_SUCCESS);
    assert_int_equal(base, address);
    assert_int_equal(bytes, MIB);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address + MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 5),
                     CUDA_SUCCESS);
    assert_int_equal(begin, address);
    begin = 0;
    assert_int_equal(cuPointerGetAttributes(1, (CUpointer_attribute[]){CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
                                            (void *[]){&begin}, address + 7),
                     CUDA_SUCCESS);
    assert_int_equal(begin, address);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address), CUDA_ERROR_INVALID_VALUE);
}

static void plain_passes_questions_about_addresses_through(void **state)
{
    CUdeviceptr address, base;
    size_t bytes;
    CUmemorytype type = 0;
    engine_in_use = &engine_plain;
    address = linear(MIB);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address + 1), CUDA_SUCCESS);
    assert_int_equal(base, address);
    assert_int_equal(bytes, 4096); /* the driver's word, whatever was asked for */
    assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CUDA_SUCCESS);
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    type = 0;
    assert_int_equal(cuPointerGetAttributes(1, (CUpointer_attribute[]){CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
                                            (void *[]){&type}, address),
                     CUDA_SUCCESS);
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
}

static void what_cannot_move_stays_where_the_driver_puts_it(void **state)
{
    CUdeviceptr managed;
    assert_int_equal(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    assert_true(managed < ELSEWHERE);
    assert_int_equal(used(), MIB);
    assert_int_equal(cuMemFree_v2(managed), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void what_does_not_fit_is_undone_by_the_engine(void **state)
{
    CUdeviceptr rest = linear(LIMIT - 100 * FAKE_PITCH), address;
    size_t pitch;
    assert_int_equal(cuMemAllocPitch_v2(&address, &pitch, 1, 101, 4), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake_held(0), LIMIT - 100 * FAKE_PITCH);
    assert_null(driver_of(ELSEWHERE + APART));
    assert_int_equal(cuMemFree_v2(rest), CUDA_SUCCESS);
}

static void a_free_that_fails_leaves_the_address_valid(void **state)
{
    CUdeviceptr address = linear(MIB), base;
    size_t bytes;
    fake_next_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_int_equal(cuMemFree_v2(address), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(used(), MIB);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, address + 9), CUDA_SUCCESS);
    assert_int_equal(base, address);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
}

static void addresses_go_with_their_context(void **state)
{
    CUdeviceptr kept = linear(MIB), lost, base;
    size_t bytes;
    CUcontext other = fake_context(0);
    lost = linear(2 * MIB);
    assert_int_equal(cuCtxDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(used(), MIB);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, lost), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemGetAddressRange_v2(&base, &bytes, kept + 1), CUDA_SUCCESS);
    real(cuCtxPushCurrent_v2)(context);
    assert_int_equal(cuMemFree_v2(kept), CUDA_SUCCESS);
}

#define INSTALL(symbol, function)                                                                            \
    real_functions[CUDA_ID_##symbol] = (void *)(__typeof__(&symbol))                                         \
    {                                                                                                        \
        function                                                                                             \
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, use_elsewhere, use_plain)

int main(void)
{
    setenv("GPUSLICE_MEMORY_LIMIT", "64MiB", 1);
    fake_driver_install();
    INSTALL(cuMemGetAddressRange_v2, driver_range);
    INSTALL(cuPointerGetAttribute, driver_attribute);
    INSTALL(cuPointerGetAttributes, driver_attributes);
    const struct CMUnitTest tests[] = {
        TEST(the_program_gets_the_engines_addresses),
        TEST(an_interior_pointer_is_told_by_our_table),
        TEST(plain_passes_questions_about_addresses_through),
        TEST(what_cannot_move_stays_where_the_driver_puts_it),
        TEST(what_does_not_fit_is_undone_by_the_engine),
        TEST(a_free_that_fails_leaves_the_address_valid),
        TEST(addresses_go_with_their_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
