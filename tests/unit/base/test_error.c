/* Error messages, whatever they quote. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

static void a_message_is_one_line_that_steers_no_terminal(void **state)
{
    struct error error;
    error_set(&error, EINVAL, NULL, "'%s' is wrong", "a\nb\r\t\033[31m\177");
    assert_string_equal(error.message, "'a?b???[31m?' is wrong");
    error_set(&error, EINVAL, NULL, "%s", "C1: \302\233, space: \302\240");
    assert_string_equal(error.message, "C1: ??, space: \302\240");
    error_set_errno(&error, ENOENT, "cannot open %s", "x\ny");
    assert_string_equal(error.message, "cannot open x?y: No such file or directory");
}

static void what_is_not_utf8_is_marked_and_what_is_stays(void **state)
{
    static const struct {
        const char *given, *kept;
    } rows[] = {
        {"Gr\303\266\303\237e \342\202\254 \360\237\230\200",
         "Gr\303\266\303\237e \342\202\254 \360\237\230\200"},
        {"\377\376", "??"},
        {"a\200b", "a?b"},
        {"cut \342\202", "cut ??"},
        {"overlong \300\257 \340\200\257", "overlong ?? ???"},
        {"surrogate \355\240\200", "surrogate ???"},
        {"beyond \364\220\200\200", "beyond ????"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error error;
        error_set(&error, EINVAL, NULL, "%s", rows[i].given);
        assert_string_equal(error.message, rows[i].kept);
    }
}

static void a_long_message_is_cut_between_characters(void **state)
{
    char text[2 * ERROR_MESSAGE_BYTES + 1];
    struct error error;
    for (size_t i = 0; i < sizeof(text) - 1; i += 2)
        memcpy(text + i, "\303\266", 2);
    text[sizeof(text) - 1] = '\0';
    error_set(&error, EINVAL, NULL, "%s", text);
    assert_int_equal(strlen(error.message), ERROR_MESSAGE_BYTES - 1);
    assert_int_equal(error.message[ERROR_MESSAGE_BYTES - 2], '?');
    assert_int_equal(memcmp(error.message, text, ERROR_MESSAGE_BYTES - 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_one_line_that_steers_no_terminal),
        cmocka_unit_test(what_is_not_utf8_is_marked_and_what_is_stays),
        cmocka_unit_test(a_long_message_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
