#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/entry_points.h"

static const char *lookups_file;

static void every_symbol_is_found_at_its_row(void **state)
{
    for (int row = 0; row < CUDA_ENTRY_COUNT; row++)
        assert_int_equal(cuda_entry_find(cuda_entries[row].symbol), row);
    assert_int_equal(cuda_entry_find("cuMemAlloc_v9"), -1);
    assert_int_equal(cuda_entry_find(""), -1);
    assert_int_equal(cuda_entry_find("zz"), -1);
}

static void the_newest_form_not_above_the_version_is_chosen(void **state)
{
    static const struct {
        const char *name;
        int version;
        cuuint64_t flags;
        const char *symbol;
    } rows[] = {
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3010, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 99999, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 13000, 2, "cuMemAlloc_v2"},
        {"cuCtxCreate", 11039, 0, "cuCtxCreate_v2"},
        {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
        {"cuCtxCreate", 13000, 0, "cuCtxCreate_v4"},
        {"cuMemFreeAsync", 11020, 0, "cuMemFreeAsync"},
        {"cuMemFreeAsync", 11020, 2, "cuMemFreeAsync_ptsz"},
        {"cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int row = cuda_entry_resolve(rows[i].name, rows[i].version, rows[i].flags);
        assert_true(row >= 0);
        assert_string_equal(cuda_entries[row].symbol, rows[i].symbol);
    }
    assert_int_equal(cuda_entry_resolve("cuMemAlloc", 1999, 0), CUDA_ENTRY_TOO_NEW);
    assert_int_equal(cuda_entry_resolve("cuMemAlloc_v2", 13000, 0), CUDA_ENTRY_UNKNOWN);
    assert_int_equal(cuda_entry_resolve("cuNothing", 13000, 0), CUDA_ENTRY_UNKNOWN);
    assert_int_equal(cuda_entry_resolve("", 0, 0), CUDA_ENTRY_UNKNOWN);
}

static int is_interop(const char *name)
{
    return strstr(name, "GL") || strstr(name, "Egl") || strstr(name, "VDPAU");
}

static void what_cudart_asks_for_is_answered_as_the_driver_does(void **state)
{
    FILE *file = fopen(lookups_file, "r");
    assert_non_null(file);
    char line[512], name[128], symbol[128];
    int version, compared = 0;
    unsigned flags;
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%127[^\t]\t%d\t%u\t%127[^\n]", name, &version, &flags, symbol) != 4 ||
            is_interop(name))
            continue;
        int row = cuda_entry_resolve(strcmp(name, "\"\"") == 0 ? "" : name, version, flags);
        assert_string_equal(row >= 0 ? cuda_entries[row].symbol : "NOT FOUND", symbol);
        compared++;
    }
    fclose(file);
    assert_true(compared > 400);
}

static void results_have_their_names(void **state)
{
    assert_string_equal(cuda_result_name(CUDA_ERROR_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY");
    assert_string_equal(cuda_result_name(CUDA_SUCCESS), "CUDA_SUCCESS");
    assert_null(cuda_result_name((CUresult)12345));
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_symbol_is_found_at_its_row),
        cmocka_unit_test(the_newest_form_not_above_the_version_is_chosen),
        cmocka_unit_test(what_cudart_asks_for_is_answered_as_the_driver_does),
        cmocka_unit_test(results_have_their_names),
    };
    if (count != 2) {
        fprintf(stderr, "usage: %s LOOKUPS.tsv\n", arguments[0]);
        return 2;
    }
    lookups_file = arguments[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
