#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cuda/uuid.h"

static const uint8_t example[GPU_UUID_BYTES] = {0x8f, 0x2d, 0x0c, 0x6e, 0x2f, 0x0b, 0x5d, 0x2c,
                                                0x9a, 0x51, 0x0d, 0x7a, 0x6f, 0x1c, 0x3b, 0x42};

static void a_uuid_survives_being_written_and_read(void **state)
{
    char text[GPU_UUID_TEXT];
    uint8_t uuid[GPU_UUID_BYTES];
    assert_string_equal(gpu_uuid_format(example, text), "GPU-8f2d0c6e-2f0b-5d2c-9a51-0d7a6f1c3b42");
    assert_true(gpu_uuid_parse(text, uuid));
    assert_memory_equal(uuid, example, sizeof(example));
    assert_string_equal(gpu_uuid_set_mig(text), "MIG-8f2d0c6e-2f0b-5d2c-9a51-0d7a6f1c3b42");
}

static void either_case_mig_and_bare_forms_are_read(void **state)
{
    static const char *const rows[] = {"gpu-8F2D0C6E-2F0B-5D2C-9A51-0D7A6F1C3B42",
                                       "MIG-8f2d0c6e-2f0b-5d2c-9a51-0d7a6f1c3b42",
                                       "8f2d0c6e-2f0b-5d2c-9a51-0d7a6f1c3b42"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t uuid[GPU_UUID_BYTES] = {0};
        assert_true(gpu_uuid_parse(rows[i], uuid));
        assert_memory_equal(uuid, example, sizeof(example));
    }
}

static void anything_else_changes_nothing(void **state)
{
    static const char *const rows[] = {"",
                                       "GPU-",
                                       "0",
                                       "GPU-8f2d0c6e-2f0b-5d2c-9a51-0d7a6f1c3b4",
                                       "GPU-8f2d0c6e-2f0b-5d2c-9a51-0d7a6f1c3b422",
                                       "GPU-8f2d0c6e+2f0b-5d2c-9a51-0d7a6f1c3b42",
                                       "GPU-8f2d0c6g-2f0b-5d2c-9a51-0d7a6f1c3b42"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t uuid[GPU_UUID_BYTES], before[GPU_UUID_BYTES];
        memset(uuid, 7, sizeof(uuid));
        memset(before, 7, sizeof(before));
        assert_false(gpu_uuid_parse(rows[i], uuid));
        assert_memory_equal(uuid, before, sizeof(before));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_uuid_survives_being_written_and_read),
        cmocka_unit_test(either_case_mig_and_bare_forms_are_read),
        cmocka_unit_test(anything_else_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
