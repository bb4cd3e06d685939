/* What is kept of how much was used: rows of samples, sums of them, and the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../wrong.h"
#include "daemon/history/history_file.h"
#include "daemon/history/history_lines.h"
#include "daemon/history/history_query.h"
#include "daemon/history/samples.h"

#define NOON INT64_C(1769860800) /* a whole minute */

/* --- Rows ------------------------------------------------------------------------------------------ */

static void a_row_reads_as_it_was_written(void **state)
{
    const struct sample samples[] = {
        {.series = 1, .used_bytes = 5, .peak_bytes = 9, .gpu_ns = 1, .processes = 3},
        {.series = UINT32_MAX,
         .used_bytes = UINT64_MAX - 1,
         .peak_bytes = UINT64_MAX,
         .gpu_ns = UINT64_MAX,
         .nvml_ns = 127,
         .waited_ns = 128,
         .refused = UINT64_C(1) << 63,
         .processes = UINT32_MAX},
    };
    struct sample_bytes row = {0};
    struct sample read;
    size_t at = 0;
    for (int i = 0; i < 2; i++)
        assert_true(samples_write(&row, &samples[i]));
    for (int i = 0; i < 2; i++) {
        assert_true(samples_read(row.bytes, row.length, &at, &read));
        assert_memory_equal(&read, &samples[i], sizeof(read));
    }
    assert_false(samples_read(row.bytes, row.length, &at, &read));
    free(row.bytes);
}

static void a_row_that_was_cut_or_overwritten_ends_there(void **state)
{
    struct sample_bytes row = {0};
    struct sample read;
    samples_write(&row, &(struct sample){.series = 700, .used_bytes = 1000, .peak_bytes = 1000});
    for (size_t length = 0; length < row.length; length++) {
        size_t at = 0;
        assert_false(samples_read(row.bytes, length, &at, &read));
    }
    uint8_t endless[64];
    memset(endless, 0xff, sizeof(endless));
    size_t at = 0;
    assert_false(samples_read(endless, sizeof(endless), &at, &read));
    free(row.bytes);
}

static void a_sum_has_the_mean_of_bytes_the_most_and_all_the_time(void **state)
{
    struct sample_sum sum = {0};
    sample_sum_add(&sum, &(struct sample){.used_bytes = 100, .peak_bytes = 100, .gpu_ns = 7, .processes = 1},
                   9);
    sample_sum_add(&sum, &(struct sample){.used_bytes = 200, .peak_bytes = 300, .gpu_ns = 8, .processes = 2},
                   1);
    struct sample whole = sample_sum_take(&sum, 4);
    assert_int_equal(whole.series, 4);
    assert_int_equal(whole.used_bytes, 110);
    assert_int_equal(whole.peak_bytes, 300);
    assert_int_equal(whole.gpu_ns, 15);
    assert_int_equal(whole.processes, 2);
    assert_int_equal(sum.length, 0);
}

/* --- The file -------------------------------------------------------------------------------------- */

struct world {
    char path[64];
    struct history_file *file;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    uint32_t next;
    snprintf(world->path, sizeof(world->path), "/tmp/test-history-%d.db", (int)getpid());
    assert_int_equal(history_file_open(world->path, &world->file, &next, NULL), 0);
    assert_int_equal(next, 1);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const parts[] = {"", "-wal", "-shm", ".damaged", ".damaged-wal", ".damaged-shm"};
    struct world *world = *state;
    history_file_close(world->file);
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char path[96];
        snprintf(path, sizeof(path), "%s%s", world->path, parts[i]);
        unlink(path);
    }
    free(world);
    return 0;
}

static void put_line(struct world *world, uint32_t id, const char *session, uid_t owner, unsigned gpu,
                     int64_t at)
{
    struct history_series series = {.id = id, .owner = owner, .at = at};
    strcpy(series.session_id, session);
    strcpy(series.name, session);
    snprintf(series.gpu_uuid, sizeof(series.gpu_uuid), "GPU-%u", gpu);
    assert_int_equal(history_file_append(world->file, &series, NULL, NULL), 0);
}

static void put_series(struct world *world, uint32_t id, const char *session, uid_t owner, int64_t at)
{
    put_line(world, id, session, owner, 0, at);
}

static void put_tick(struct world *world, enum samples_level level, int64_t at, const struct sample *sample)
{
    struct history_tick tick = {
        .level = level, .at = at, .milliseconds = 1000 * samples_levels[level].step_seconds};
    samples_write(&tick.row, sample);
    assert_int_equal(history_file_append(world->file, NULL, &tick, NULL), 0);
    free(tick.row.bytes);
}

/* A session that holds `bytes` in each of the last `seconds`, on all levels. */
static void put_seconds(struct world *world, uint32_t series, int64_t end, unsigned seconds, uint64_t bytes)
{
    for (int level = 0; level < SAMPLES_LEVELS; level++) {
        uint32_t step = samples_levels[level].step_seconds;
        for (int64_t at = end - (int64_t)seconds + step; at <= end; at += step)
            put_tick(world, (enum samples_level)level, at,
                     &(struct sample){.series = series,
                                      .used_bytes = bytes,
                                      .peak_bytes = bytes,
                                      .gpu_ns = step * UINT64_C(500000000),
                                      .processes = 1});
    }
}

static json_t *ask(struct world *world, const struct history_ask *ask,
                   int (*query)(struct history_file *file, const struct history_ask *ask, json_t **answer,
                                struct error *error))
{
    json_t *answer = NULL;
    struct error error = {0};
    assert_int_equal(query(world->file, ask, &answer, &error), 0);
    return answer;
}

static double usage_of(struct world *world, int64_t from, int64_t to, uid_t uid, const char *field)
{
    json_t *answer =
        ask(world, &(struct history_ask){.from = from, .to = to, .uid = uid, .points = 300, .sessions = 20},
            history_query_usage);
    const json_t *row = json_array_get(json_object_get(answer, "rows"), 0);
    double value = row ? json_number_value(json_object_get(row, field)) : -1;
    json_decref(answer);
    return value;
}

static void each_moment_counts_once_whatever_levels_know_it(void **state)
{
    struct world *world = *state;
    put_series(world, 1, "aaaaaaaaaaaa", 1000, NOON);
    put_seconds(world, 1, NOON, 3600, 1024);
    assert_float_equal(usage_of(world, NOON - 3600, NOON, 0, "byte_hours"), 1024, 0.001);
    assert_float_equal(usage_of(world, NOON - 3600, NOON, 0, "gpu_seconds"), 1800, 0.001);
    assert_float_equal(usage_of(world, NOON - 60, NOON, 0, "gpu_seconds"), 30, 0.001);
    /* Before the first there is nothing, and what there is stays fine. */
    assert_int_equal(history_file_step(world->file, NOON - 3660, NOON), 1);
    /* Two hours later seconds are gone; what is asked begins in the middle of a minute. */
    struct history_bounds bounds = {UINT64_MAX, 31};
    assert_int_equal(history_file_prune(world->file, NOON + 2 * 3600, &bounds, NULL), 0);
    assert_float_equal(usage_of(world, NOON - 3600, NOON, 0, "gpu_seconds"), 1800, 0.001);
    assert_float_equal(usage_of(world, NOON - 300, NOON, 0, "gpu_seconds"), 150, 0.001);
    /* And two days later minutes alone are left. */
    assert_int_equal(history_file_prune(world->file, NOON + 2 * 86400, &bounds, NULL), 0);
    assert_float_equal(usage_of(world, NOON - 3600, NOON, 0, "gpu_seconds"), 1800, 0.001);
    assert_int_equal(history_file_step(world->file, NOON - 3600, NOON), 60);
    /* In the end nothing. */
    assert_int_equal(history_file_prune(world->file, NOON + 40 * 86400, &bounds, NULL), 0);
    assert_float_equal(usage_of(world, NOON - 3600, NOON, 0, "gpu_seconds"), -1, 0);
}

static void minutes_are_kept_for_as_many_days_as_are_asked_for(void **state)
{
    struct world *world = *state;
    struct history_bounds bounds = {UINT64_MAX, 365};
    put_series(world, 1, "aaaaaaaaaaaa", 1000, NOON);
    put_seconds(world, 1, NOON, 3600, 1024);
    assert_int_equal(history_file_prune(world->file, NOON + 364 * 86400, &bounds, NULL), 0);
    assert_float_equal(usage_of(world, NOON - 3600, NOON, 0, "gpu_seconds"), 1800, 0.001);
    assert_int_equal(history_file_step(world->file, NOON - 3600, NOON), 60);
    assert_int_equal(history_file_prune(world->file, NOON + 366 * 86400, &bounds, NULL), 0);
    assert_float_equal(usage_of(world, NOON - 3600, NOON, 0, "gpu_seconds"), -1, 0);
}

static void a_series_that_is_still_sampled_stays_however_long_it_was_idle(void **state)
{
    struct world *world = *state;
    struct history_bounds bounds = {UINT64_MAX, 31};
    int64_t later = NOON + 40 * 86400;
    put_series(world, 1, "aaaaaaaaaaaa", 1000, NOON);
    put_series(world, 2, "bbbbbbbbbbbb", 1000, NOON);
    put_series(world, 1, "aaaaaaaaaaaa", 1000, later - HISTORY_PUT_SECONDS);
    assert_int_equal(history_file_prune(world->file, later, &bounds, NULL), 0);
    put_seconds(world, 1, later, 60, 1024);
    put_seconds(world, 2, later - 60, 60, 4096);
    assert_float_equal(usage_of(world, later - 120, later, 0, "peak_bytes"), 1024, 0);
}

static void a_user_sees_no_other_users_sessions(void **state)
{
    struct world *world = *state;
    put_series(world, 1, "aaaaaaaaaaaa", 1000, NOON);
    put_series(world, 2, "", 0, NOON);
    put_seconds(world, 1, NOON, 60, 1024);
    put_seconds(world, 2, NOON + 60, 60, 4096);
    assert_float_equal(usage_of(world, NOON - 60, NOON + 60, 1000, "peak_bytes"), 1024, 0);
    assert_float_equal(usage_of(world, NOON - 60, NOON + 60, 1001, "peak_bytes"), -1, 0);
    struct history_ask one = {.from = NOON - 60, .to = NOON + 60, .uid = 1001, .points = 60, .sessions = 20};
    json_t *answer = ask(world, &one, history_query_plot);
    assert_int_equal(json_array_size(json_object_get(answer, "sessions")), 0);
    assert_int_equal(json_array_size(json_object_get(answer, "gpus")), 1);
    json_decref(answer);
    strcpy(one.session_id, "aaaaaaaaaaaa");
    answer = ask(world, &one, history_query_plot);
    assert_int_equal(json_array_size(json_object_get(answer, "sessions")), 0);
    json_decref(answer);
}

static void a_plot_has_null_where_no_daemon_ran(void **state)
{
    struct world *world = *state;
    put_series(world, 1, "aaaaaaaaaaaa", 1000, NOON);
    put_seconds(world, 1, NOON - 120, 60, 10);
    put_seconds(world, 1, NOON, 60, 30);
    struct history_ask one = {.from = NOON - 180, .to = NOON, .points = 3, .sessions = 20};
    json_t *answer = ask(world, &one, history_query_plot);
    const json_t *line = json_array_get(json_object_get(answer, "sessions"), 0);
    const json_t *used = json_object_get(line, "used_bytes"), *ratio = json_object_get(line, "gpu_ratio");
    assert_int_equal(json_array_size(used), 3);
    assert_int_equal(json_integer_value(json_array_get(used, 0)), 10);
    assert_true(json_is_null(json_array_get(used, 1)));
    assert_int_equal(json_integer_value(json_array_get(used, 2)), 30);
    assert_float_equal(json_real_value(json_array_get(ratio, 2)), 0.5, 0.0001);
    json_decref(answer);
}

static const char *line_text(const json_t *answer, size_t line, const char *field)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(answer, "sessions"), line), field));
}

static void a_session_is_in_a_plot_with_all_its_gpus_or_not_at_all(void **state)
{
    struct world *world = *state;
    put_line(world, 1, "aaaaaaaaaaaa", 1000, 0, NOON);
    put_line(world, 2, "bbbbbbbbbbbb", 1000, 1, NOON);
    put_line(world, 3, "cccccccccccc", 1000, 0, NOON);
    put_line(world, 4, "bbbbbbbbbbbb", 1000, 0, NOON);
    struct history_tick tick = {.level = SAMPLES_SECONDS, .at = NOON, .milliseconds = 1000};
    static const uint64_t bytes[] = {30, 25, 35, 20};
    for (uint32_t i = 0; i < 4; i++)
        samples_write(&tick.row,
                      &(struct sample){.series = i + 1, .used_bytes = bytes[i], .peak_bytes = bytes[i]});
    assert_int_equal(history_file_append(world->file, NULL, &tick, NULL), 0);
    free(tick.row.bytes);
    struct history_ask two = {.from = NOON - 1, .to = NOON, .points = 1, .sessions = 2};
    json_t *answer = ask(world, &two, history_query_plot);
    assert_int_equal(json_array_size(json_object_get(answer, "sessions")), 3);
    assert_string_equal(line_text(answer, 0, "session_id"), "bbbbbbbbbbbb"); /* 45 on both its GPUs */
    assert_string_equal(line_text(answer, 1, "session_id"), "bbbbbbbbbbbb");
    assert_string_equal(line_text(answer, 0, "gpu_uuid"), "GPU-0");
    assert_string_equal(line_text(answer, 1, "gpu_uuid"), "GPU-1");
    assert_string_equal(line_text(answer, 2, "session_id"), "cccccccccccc");
    json_decref(answer);
}

static void a_plot_of_many_lines_has_fewer_points(void **state)
{
    struct world *world = *state;
    enum { LINES = 2 * HISTORY_SESSIONS_MAX };
    struct history_tick tick = {.level = SAMPLES_SECONDS, .at = NOON, .milliseconds = 1000};
    for (uint32_t i = 1; i <= LINES; i++) {
        put_line(world, i, "aaaaaaaaaaaa", 1000, i, NOON);
        samples_write(&tick.row, &(struct sample){.series = i, .used_bytes = 1, .peak_bytes = 1});
    }
    assert_int_equal(history_file_append(world->file, NULL, &tick, NULL), 0);
    free(tick.row.bytes);
    struct history_ask one = {
        .from = NOON - HISTORY_POINTS_MAX, .to = NOON, .points = HISTORY_POINTS_MAX, .sessions = 1};
    json_t *answer = ask(world, &one, history_query_plot);
    assert_int_equal(json_array_size(json_object_get(answer, "sessions")), LINES);
    assert_int_equal(json_integer_value(json_object_get(answer, "points")), HISTORY_POINTS_MAX / 2);
    json_decref(answer);
}

static void peaks_of_sessions_of_one_user_add_up_within_a_moment(void **state)
{
    struct world *world = *state;
    put_series(world, 1, "aaaaaaaaaaaa", 1000, NOON);
    put_series(world, 2, "bbbbbbbbbbbb", 1000, NOON);
    put_tick(world, SAMPLES_SECONDS, NOON - 1, &(struct sample){.series = 1, .peak_bytes = 50});
    struct history_tick both = {.level = SAMPLES_SECONDS, .at = NOON, .milliseconds = 1000};
    samples_write(&both.row, &(struct sample){.series = 1, .peak_bytes = 30});
    samples_write(&both.row, &(struct sample){.series = 2, .peak_bytes = 40});
    assert_int_equal(history_file_append(world->file, NULL, &both, NULL), 0);
    free(both.row.bytes);
    struct history_ask by_user = {.from = NOON - 60, .to = NOON, .by = HISTORY_BY_USER};
    json_t *answer = ask(world, &by_user, history_query_usage);
    const json_t *row = json_array_get(json_object_get(answer, "rows"), 0);
    assert_int_equal(json_integer_value(json_object_get(row, "peak_bytes")), 70);
    json_decref(answer);
}

static void the_oldest_goes_where_it_would_be_too_much(void **state)
{
    struct world *world = *state;
    struct history_bounds bounds = {200000, 31};
    struct sample_bytes row = {0};
    put_series(world, 1, "aaaaaaaaaaaa", 1000, NOON);
    for (int i = 0; i < 300; i++)
        samples_write(&row,
                      &(struct sample){.series = 1, .used_bytes = UINT64_MAX, .peak_bytes = UINT64_MAX});
    for (int i = 0; i < 200; i++) {
        struct history_tick tick = {
            .level = SAMPLES_SECONDS, .at = NOON + i, .milliseconds = 1000, .row = row};
        assert_int_equal(history_file_append(world->file, NULL, &tick, NULL), 0);
    }
    assert_true(history_file_bytes(world->file) > bounds.bytes);
    assert_int_equal(history_file_prune(world->file, NOON + 200, &bounds, NULL), 0);
    assert_in_range(history_file_bytes(world->file), 1, bounds.bytes);
    assert_float_equal(usage_of(world, NOON - 60, NOON + 10, 0, "byte_hours"), -1, 0);
    assert_true(usage_of(world, NOON + 190, NOON + 199, 0, "byte_hours") > 0);
    free(row.bytes);
}

/* One user has many sessions, and another one. */
static void no_user_s_history_goes_for_another_s(void **state)
{
    struct world *world = *state;
    struct history_bounds bounds = {200000, 31};
    struct sample_bytes row = {0};
    put_series(world, 1, "aaaaaaaaaaaa", 1000, NOON);
    put_series(world, 2, "bbbbbbbbbbbb", 1001, NOON);
    put_series(world, 3, "", 0, NOON);
    struct sample sample = {.used_bytes = UINT64_MAX, .peak_bytes = UINT64_MAX};
    for (unsigned i = 0; i < 302; i++) {
        sample.series = i < 300 ? 2 : i == 300 ? 1 : 3;
        samples_write(&row, &sample);
    }
    for (int i = 0; i < 200; i++) {
        struct history_tick tick = {
            .level = SAMPLES_SECONDS, .at = NOON + i, .milliseconds = 1000, .row = row};
        assert_int_equal(history_file_append(world->file, NULL, &tick, NULL), 0);
    }
    double before = usage_of(world, NOON - 60, NOON + 10, 1000, "byte_hours");
    assert_int_equal(history_file_prune(world->file, NOON + 200, &bounds, NULL), 0);
    assert_in_range(history_file_bytes(world->file), 1, bounds.bytes);
    assert_float_equal(usage_of(world, NOON - 60, NOON + 10, 1000, "byte_hours"), before, (before / 1e6));
    assert_float_equal(usage_of(world, NOON - 60, NOON + 10, 1001, "byte_hours"), -1, 0);
    assert_true(usage_of(world, NOON + 190, NOON + 199, 1001, "byte_hours") > 0);
    free(row.bytes);
}

static void sessions_that_did_nothing_push_no_other_out(void **state)
{
    struct world *world = *state;
    struct history_bounds bounds = {200000, 31};
    struct history_series many[4000] = {0};
    put_series(world, 1, "aaaaaaaaaaaa", 1000, NOON);
    put_seconds(world, 1, NOON, 60, 1024);
    for (unsigned i = 0; i < 4000; i++) {
        many[i] =
            (struct history_series){.next = i ? &many[i - 1] : NULL, .id = 2 + i, .owner = 1001, .at = NOON};
        snprintf(many[i].session_id, sizeof(many[i].session_id), "%012x", i);
        strcpy(many[i].name, "nothing");
    }
    assert_int_equal(history_file_append(world->file, &many[3999], NULL, NULL), 0);
    assert_true(history_file_bytes(world->file) > bounds.bytes);
    double before = usage_of(world, NOON - 60, NOON, 1000, "byte_hours");
    assert_int_equal(history_file_prune(world->file, NOON + 60, &bounds, NULL), 0);
    assert_in_range(history_file_bytes(world->file), 1, bounds.bytes);
    assert_float_equal(usage_of(world, NOON - 60, NOON, 1000, "byte_hours"), before, (before / 1e6));
}

static void a_file_that_is_damaged_is_put_aside(void **state)
{
    struct world *world = *state;
    char aside[96];
    uint32_t next;
    put_series(world, 41, "aaaaaaaaaaaa", 1000, NOON);
    history_file_close(world->file);
    assert_int_equal(history_file_open(world->path, &world->file, &next, NULL), 0);
    assert_int_equal(next, 42);
    history_file_close(world->file);
    FILE *scribble = fopen(world->path, "r+");
    fputs("this is no database at all, as anybody can see who looks at it", scribble);
    fclose(scribble);
    assert_int_equal(history_file_open(world->path, &world->file, &next, NULL), 0);
    assert_int_equal(next, 1);
    snprintf(aside, sizeof(aside), "%s.damaged", world->path);
    assert_int_equal(access(aside, F_OK), 0);
}

static void samples_and_lines_that_do_not_go_together_are_caught(void **state)
{
    struct sample_bytes row = {0};
    const struct sample wrong = {.used_bytes = 2, .peak_bytes = 1};
    struct sample_sum sum = {0};
    ASSERT_CAUGHT(samples_write(&row, &wrong));
    ASSERT_CAUGHT(sample_sum_add(&sum, &wrong, 1));
    struct line all[] = {{.session = 0}, {.session = 3, .id = 1}, {.session = 3, .gpu = 1, .id = 2}};
    struct lines lines = {.all = all, .count = 3, .room = 3};
    assert_true(lines_are_valid(&lines));
    all[2].gpu = 0;
    assert_false(lines_are_valid(&lines));
    all[2].gpu = 1;
    all[1].session = 4;
    assert_false(lines_are_valid(&lines));
    all[0].is_there = all[1].is_there = all[2].is_there = true;
    ASSERT_CAUGHT(lines_drop_ended(&lines));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_reads_as_it_was_written),
        cmocka_unit_test(samples_and_lines_that_do_not_go_together_are_caught),
        cmocka_unit_test(a_row_that_was_cut_or_overwritten_ends_there),
        cmocka_unit_test(a_sum_has_the_mean_of_bytes_the_most_and_all_the_time),
        cmocka_unit_test_setup_teardown(each_moment_counts_once_whatever_levels_know_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(minutes_are_kept_for_as_many_days_as_are_asked_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_series_that_is_still_sampled_stays_however_long_it_was_idle, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_user_sees_no_other_users_sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_plot_has_null_where_no_daemon_ran, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_session_is_in_a_plot_with_all_its_gpus_or_not_at_all, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_plot_of_many_lines_has_fewer_points, set_up, tear_down),
        cmocka_unit_test_setup_teardown(peaks_of_sessions_of_one_user_add_up_within_a_moment, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_oldest_goes_where_it_would_be_too_much, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_user_s_history_goes_for_another_s, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sessions_that_did_nothing_push_no_other_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_is_damaged_is_put_aside, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
