/* What `gpuslice top` shows: bars, sparklines, rows. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/top/top_rows.h"

static void a_bar_shows_eighths_and_the_least_there_is(void **state)
{
    char text[TOP_TEXT(4)];
    assert_string_equal(top_bar(0, 4, true, text), "    ");
    assert_string_equal(top_bar(0.0001, 4, true, text), "▏   ");
    assert_string_equal(top_bar(0.5, 4, true, text), "██  ");
    assert_string_equal(top_bar(0.53125, 4, true, text), "██▏ ");
    assert_string_equal(top_bar(7, 4, true, text), "████");
    assert_string_equal(top_bar(0.5, 4, false, text), "##..");
    assert_string_equal(top_bar(0.0001, 4, false, text), "#...");
}

static void a_sparkline_ends_with_the_newest(void **state)
{
    struct top_past past = {0};
    char text[TOP_TEXT(4)];
    assert_string_equal(top_sparkline(&past, 4, false, text), "    ");
    top_past_add(&past, 0.5);
    top_past_add(&past, 1.5);
    assert_string_equal(top_sparkline(&past, 4, true, text), "  ▄█");
    for (int i = 0; i < 3 * TOP_PAST; i++)
        top_past_add(&past, 0);
    top_past_add(&past, -1);
    assert_string_equal(top_sparkline(&past, 4, true, text), "    ");
    assert_int_equal(past.count, TOP_PAST);
}

static void names_are_cut_at_cells_and_lead_no_terminal(void **state)
{
    char shown[TOP_CLIPPED];
    assert_int_equal(top_clip("train", 8, shown), 5);
    assert_string_equal(shown, "train");
    assert_int_equal(top_clip("train-llama", 8, shown), 8);
    assert_string_equal(shown, "train-..");
    assert_int_equal(top_clip("a\033[2Jb\n\xff", 20, shown), 8);
    assert_string_equal(shown, "a?[2Jb??");
    assert_int_equal(top_clip("データ", 6, shown), 6);
    assert_string_equal(shown, "データ");
    assert_int_equal(top_clip("データ", 5, shown), 4); /* a wide character is shown whole or not at all */
    assert_string_equal(shown, "デ..");
    assert_int_equal(top_clip("e\xcc\x81t\xc3\xa9", 3, shown), 3);
    assert_string_equal(shown, "e\xcc\x81t\xc3\xa9");
    assert_int_equal(top_clip("long", 1, shown), 1);
    assert_int_equal(top_clip("", 4, shown), 0);
}

static json_t *session(const char *id, const char *name, uint64_t used, double waited)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:f,s:f,s:f,s:[{s:s,s:i}],s:[{s:i,s:n,s:I,s:I,s:f}]}",
                     "session_id", id, "name", name, "owner", "ana", "state", "active", "lease", "none",
                     "waiting", 0, "gate_wait_seconds", waited, "compute_min_ratio", 0.25,
                     "compute_max_ratio", 0.5, "processes", "command", "python", "pid", 7, "gpus", "index", 1,
                     "mig_index", "used_bytes", (json_int_t)used, "limit_bytes", (json_int_t)1000,
                     "compute_achieved_ratio", 0.4);
}

static void rows_are_sorted_and_filtered_and_stay_selected(void **state)
{
    struct top_rows rows = {0};
    top_rows_take(&rows,
                  json_pack("[o,o,o]", session("a1", "big", 900, 0), session("b2", "mid", 500, 0),
                            session("c3", "small", 100, 0)),
                  NULL);
    assert_string_equal(rows.rows[0].name, "big");
    assert_string_equal(rows.rows[0].share, "25%..50%");
    assert_string_equal(rows.rows[0].gpus, "1");
    top_rows_select(&rows, 1);
    assert_string_equal(rows.selected, "b2");
    top_rows_take(&rows, json_pack("[o,o]", session("b2", "mid", 50, 0), session("c3", "small", 100, 0)),
                  NULL);
    assert_int_equal(top_rows_selected(&rows), 1);
    assert_int_equal(rows.rows[1].memory.count, 2); /* what was before stays */
    strcpy(rows.filter, "SMA");
    top_rows_sort(&rows);
    assert_int_equal(rows.shown_count, 1);
    assert_string_equal(rows.rows[0].name, "small");
    strcpy(rows.filter, "python");
    top_rows_sort(&rows);
    assert_int_equal(rows.shown_count, 2);
    top_rows_select(&rows, 99);
    assert_string_equal(rows.selected, "b2");
    top_rows_free(&rows);
}

static void a_load_that_nvml_shows_sorts_with_what_is_measured(void **state)
{
    struct top_rows rows = {.order = TOP_BY_COMPUTE};
    json_t *one = session("a1", "measured", 0, 0), *other = session("b2", "loaded", 0, 0);
    json_object_set_new(other, "lease", json_string("free"));
    top_rows_take(&rows, json_pack("[o,o]", one, other),
                  json_pack("[{s:[{s:s,s:f}]}]", "processes", "session_id", "b2", "busy_ratio", 0.9));
    assert_string_equal(rows.rows[0].name, "loaded"); /* 90 %, before the other's 40 % */
    top_rows_free(&rows);
}

static void the_lease_says_how_long_waits_for_turns_were(void **state)
{
    struct top_rows rows = {0};
    char text[256];
    json_t *one = session("a1", "big", 900, 1.5);
    top_rows_take(&rows, json_pack("[O]", one), NULL);
    top_row_lease(&rows.rows[0], text, sizeof(text));
    assert_string_equal(text, "lease none   threads waited 1.5 s   overruns 0");
    json_object_set_new(one, "gate_waits",
                        json_pack("{s:i,s:f,s:f}", "count", 40, "p50_seconds", 0.071, "p99_seconds", 1.4));
    top_rows_take(&rows, json_pack("[o]", one), NULL);
    top_row_lease(&rows.rows[0], text, sizeof(text));
    assert_string_equal(text, "lease none   threads waited 1.5 s, p50 71 ms, p99 1400 ms   overruns 0");
    top_rows_free(&rows);
}

static void a_load_that_is_not_measured_is_that_of_the_busiest_gpu(void **state)
{
    struct top_rows rows = {0};
    json_t *wide = session("a1", "wide", 900, 0), *small = session("b2", "small", 100, 0);
    json_object_set_new(wide, "lease", json_string("free"));
    json_object_set_new(small, "lease", json_string("free"));
    top_rows_take(&rows, json_pack("[o,o]", wide, small),
                  json_pack("[{s:[{s:s,s:f},{s:s,s:f}]},{s:[{s:s,s:f},{s:s,s:f},{s:s,s:f}]}]", "processes",
                            "session_id", "a1", "busy_ratio", 0.5, "session_id", "b2", "busy_ratio", 0.125,
                            "processes", "session_id", "a1", "busy_ratio", 0.75, "session_id", "a1",
                            "busy_ratio", 0.5, "session_id", "b2", "busy_ratio", 0.25));
    assert_float_equal(rows.rows[0].busy, 1, 0);
    assert_float_equal(rows.rows[1].busy, 0.25, 0);
    top_rows_free(&rows);
}

static void the_past_of_a_session_is_of_all_its_gpus(void **state)
{
    struct top_rows rows = {0};
    top_rows_take(&rows, json_pack("[o]", session("a1", "wide", 900, 0)), NULL);
    json_t *history = json_pack("{s:[{s:s,s:[n,i,i],s:[n,f,f]},{s:s,s:[n,i,i],s:[n,f,f]},{s:s,s:[i],s:[f]}]}",
                                "sessions", "session_id", "a1", "used_bytes", 500, 700, "gpu_ratio", 0.25,
                                0.5, "session_id", "a1", "used_bytes", 250, 0, "gpu_ratio", 0.75, 0.125,
                                "session_id", "b2", "used_bytes", 1000, "gpu_ratio", 1.0);
    top_rows_take_history(&rows, history);
    const struct top_row *row = &rows.rows[0];
    assert_int_equal(row->memory.count, 2); /* no daemon ran at the first point */
    assert_float_equal(top_past_get(&row->memory, 1), 0.75, 1e-6);
    assert_float_equal(top_past_get(&row->memory, 0), 0.7, 1e-6);
    assert_int_equal(row->compute.count, 2);
    assert_float_equal(top_past_get(&row->compute, 1), 0.75, 1e-6);
    assert_float_equal(top_past_get(&row->compute, 0), 0.5, 1e-6);
    json_decref(history);
    top_rows_free(&rows);
}

static void answers_of_another_shape_are_shown_as_far_as_they_go(void **state)
{
    struct top_rows rows = {0};
    top_rows_take(&rows, json_pack("[{},[],{s:i}]", "session_id", 5),
                  json_pack("[{},{s:s}]", "processes", "none"));
    assert_int_equal(rows.count, 3);
    assert_int_equal(rows.gpu_count, 2);
    top_rows_take_history(&rows, NULL);
    top_rows_free(&rows);
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bar_shows_eighths_and_the_least_there_is),
        cmocka_unit_test(a_sparkline_ends_with_the_newest),
        cmocka_unit_test(names_are_cut_at_cells_and_lead_no_terminal),
        cmocka_unit_test(rows_are_sorted_and_filtered_and_stay_selected),
        cmocka_unit_test(a_load_that_nvml_shows_sorts_with_what_is_measured),
        cmocka_unit_test(the_lease_says_how_long_waits_for_turns_were),
        cmocka_unit_test(a_load_that_is_not_measured_is_that_of_the_busiest_gpu),
        cmocka_unit_test(the_past_of_a_session_is_of_all_its_gpus),
        cmocka_unit_test(answers_of_another_shape_are_shown_as_far_as_they_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
