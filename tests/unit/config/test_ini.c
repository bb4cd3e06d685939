/* Sections of `key = value` lines, and where in them a mistake is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/ini.h"

/* Entries as "line:section:key=value;" */
static char seen[512];

static int note(void *context, const struct ini_entry *entry, struct error *error)
{
    size_t used = strlen(seen);
    if (context && entry->line == *(unsigned *)context)
        return error_set(error, ERANGE, NULL, "enough");
    if (entry->key)
        snprintf(seen + used, sizeof(seen) - used, "%u:%s:%s=%s;", entry->line, entry->section, entry->key,
                 entry->value);
    else
        snprintf(seen + used, sizeof(seen) - used, "%u:[%s];", entry->line, entry->section);
    return 0;
}

static int parse(const char *text, unsigned *line, struct error *error)
{
    char copy[512];
    strcpy(copy, text);
    seen[0] = '\0';
    return ini_parse(copy, note, NULL, line, error);
}

static void entries_come_in_order_with_their_lines(void **state)
{
    unsigned line;
    assert_int_equal(
        parse("early=1\n\n# comment\n[one]\r\n  a =  b c  \r\n;x=y\n\tk=\n[ two:x ]\nq=a=b", &line, NULL), 0);
    assert_string_equal(seen, "1::early=1;4:[one];5:one:a=b c;7:one:k=;8:[two:x];9:two:x:q=a=b;");
}

static void an_empty_text_has_no_entries(void **state)
{
    unsigned line;
    assert_int_equal(parse("", &line, NULL), 0);
    assert_int_equal(parse("\n\n  \n", &line, NULL), 0);
    assert_string_equal(seen, "");
}

static void a_mistake_is_told_with_its_line(void **state)
{
    static const struct {
        const char *text;
        unsigned line;
    } wrong[] = {
        {"[open\n", 1}, {"\n[a] b\n", 2}, {"[a]\nword\n", 2},   {"[a]\n\n= value\n", 3},
        {"[]\n", 1},    {"[ ]", 1},       {"[a]\nb=\x01\n", 2},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct error error = {0};
        unsigned line = 0;
        assert_int_equal(parse(wrong[i].text, &line, &error), -EINVAL);
        assert_int_equal(line, wrong[i].line);
        assert_true(strlen(error.message) > 0);
    }
}

static void the_reader_of_the_entries_may_stop(void **state)
{
    char text[] = "[a]\nb=1\nc=2\n";
    unsigned stop = 2, line;
    struct error error;
    seen[0] = '\0';
    assert_int_equal(ini_parse(text, note, &stop, &line, &error), -ERANGE);
    assert_int_equal(line, 2);
    assert_string_equal(seen, "1:[a];");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_come_in_order_with_their_lines),
        cmocka_unit_test(an_empty_text_has_no_entries),
        cmocka_unit_test(a_mistake_is_told_with_its_line),
        cmocka_unit_test(the_reader_of_the_entries_may_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
