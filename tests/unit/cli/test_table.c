#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"

#define GIB (UINT64_C(1) << 30)

static void bars_show_use_in_ten_steps(void **state)
{
    static const struct {
        uint64_t used, limit;
        const char *bar;
    } rows[] = {
        {0, 4 * GIB, "[..........]"},
        {1, 4 * GIB, "[#.........]"},
        {2 * GIB, 4 * GIB, "[#####.....]"},
        {4 * GIB - 1, 4 * GIB, "[#########.]"},
        {4 * GIB, 4 * GIB, "[##########]"},
        {5 * GIB, 4 * GIB, "[##########]"},
        {0, 0, "[..........]"},
        {1, 0, "[##########]"},
        {UINT64_MAX, UINT64_MAX, "[##########]"},
        {UINT64_MAX, 1, "[##########]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char bar[TABLE_BAR_TEXT];
        assert_string_equal(table_bar(rows[i].used, rows[i].limit, bar), rows[i].bar);
    }
}

static void colours_warn_before_the_limit(void **state)
{
    assert_int_equal(table_usage_colour(0, 100), TABLE_GREEN);
    assert_int_equal(table_usage_colour(74, 100), TABLE_GREEN);
    assert_int_equal(table_usage_colour(75, 100), TABLE_YELLOW);
    assert_int_equal(table_usage_colour(89, 100), TABLE_YELLOW);
    assert_int_equal(table_usage_colour(90, 100), TABLE_RED);
    assert_int_equal(table_usage_colour(UINT64_MAX, UINT64_MAX), TABLE_RED);
    assert_int_equal(table_usage_colour(0, 0), TABLE_GREEN);
}

static const struct table_column columns[] = {
    {"ID"},
    {"NAME", .shrink = true},
    {"USED", .right = true},
    {NULL},
};

static struct table two_rows(void)
{
    struct table table = {.columns = columns};
    struct table_cell *row = table_add_row(&table);
    table_cell_print(&row[0], TABLE_PLAIN, "abc");
    table_cell_print(&row[1], TABLE_PLAIN, "a-name-of-some-length");
    table_cell_print(&row[2], TABLE_RED, "%d", 5);
    row = table_add_row(&table);
    table_cell_print(&row[0], TABLE_PLAIN, "d");
    table_cell_print(&row[1], TABLE_PLAIN, "short");
    return table;
}

static void check_printed(size_t width, bool colour, const char *expected)
{
    struct table table = two_rows();
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    table_print(&table, stream, width, colour);
    fclose(stream);
    assert_string_equal(text, expected);
    free(text);
    table_free(&table);
}

static void columns_are_aligned(void **state)
{
    check_printed(SIZE_MAX, false,
                  "ID   NAME                   USED\n"
                  "abc  a-name-of-some-length     5\n"
                  "d    short\n");
}

static void a_wide_table_shrinks_one_column_to_fit(void **state)
{
    check_printed(22, false,
                  "ID   NAME         USED\n"
                  "abc  a-name-of..     5\n"
                  "d    short\n");
    check_printed(5, false,
                  "ID   NAME      USED\n"
                  "abc  a-name..     5\n"
                  "d    short\n");
}

static void columns_yield_before_one_shrinks(void **state)
{
    static const struct table_column yielding[] = {
        {"ID"}, {"NAME", .shrink = true}, {"BAR", .yields = 1}, {"SPEED", .yields = 2}, {NULL}};
    static const struct {
        size_t width;
        const char *heads;
    } cases[] = {{40, "ID   NAME                   BAR  SPEED\n"},
                 {32, "ID   NAME                   BAR\n"},
                 {28, "ID   NAME\n"},
                 {20, "ID   NAME\n"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct table table = two_rows();
        char *text = NULL;
        size_t length;
        table.columns = yielding;
        FILE *stream = open_memstream(&text, &length);
        table_print(&table, stream, cases[i].width, false);
        fclose(stream);
        assert_memory_equal(text, cases[i].heads, strlen(cases[i].heads));
        assert_int_equal(strstr(text, "a-name-of-some-length") != NULL, cases[i].width > 20);
        free(text);
        table_free(&table);
    }
}

static void colour_changes_no_column(void **state)
{
    check_printed(SIZE_MAX, true,
                  "\033[1mID\033[0m   \033[1mNAME\033[0m                   \033[1mUSED\033[0m\n"
                  "abc  a-name-of-some-length     \033[31m5\033[0m\n"
                  "d    short\n");
}

static void names_cannot_steer_the_terminal(void **state)
{
    struct table_cell cell;
    table_cell_print(&cell, TABLE_PLAIN, "a\033[2Jb\nc\302\233d\177");
    assert_string_equal(cell.text, "a?[2Jb?c??d?");
}

static void a_text_is_printed_whole(void **state)
{
    char sentence[4 * TABLE_CELL_BYTES + 1], *printed = NULL;
    size_t length;
    memset(sentence, 'x', sizeof(sentence) - 1);
    sentence[0] = '\033';
    sentence[sizeof(sentence) - 1] = '\0';
    FILE *stream = open_memstream(&printed, &length);
    table_print_text(sentence, stream);
    fclose(stream);
    sentence[0] = '?';
    assert_string_equal(printed, sentence);
    free(printed);
}

static void usage_is_written_with_units(void **state)
{
    char text[TABLE_USAGE_TEXT];
    assert_string_equal(table_usage(GIB / 2, 4 * GIB, text), "512MiB / 4GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bars_show_use_in_ten_steps),
        cmocka_unit_test(colours_warn_before_the_limit),
        cmocka_unit_test(columns_are_aligned),
        cmocka_unit_test(a_wide_table_shrinks_one_column_to_fit),
        cmocka_unit_test(columns_yield_before_one_shrinks),
        cmocka_unit_test(colour_changes_no_column),
        cmocka_unit_test(names_cannot_steer_the_terminal),
        cmocka_unit_test(a_text_is_printed_whole),
        cmocka_unit_test(usage_is_written_with_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
