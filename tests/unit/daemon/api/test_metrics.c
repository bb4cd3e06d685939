/* The page for Prometheus. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/api/metrics.h"
#include "daemon/loop/daemon.h"
#include "daemon/residency/moves_state.h"
#include "daemon/session/session.h"

static struct daemon one_card;

static int set_up(void **state)
{
    static struct moves moves;
    one_card = (struct daemon){.gpu_count = 1, .attaches = 12, .deaths = 3, .moves = &moves};
    one_card.gpus[0] = (struct gpu){.total_bytes = 8192,
                                    .used_bytes = 100,
                                    .healthy = true,
                                    .uuid_text = "GPU-00000000-0000-0000-0000-000000000000"};
    one_card.counters[0] = (struct gpu_counters){.granted = 5, .refused = 2, .recovered_bytes = 77};
    return 0;
}

static void add_sessions(struct session *sessions, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        sessions[i] = (struct session){.daemon = &one_card,
                                       .next = i + 1 < count ? &sessions[i + 1] : NULL,
                                       .number = i + 1,
                                       .owner = 1000,
                                       .gpu_count = 1};
        snprintf(sessions[i].id, sizeof(sessions[i].id), "%012x", i);
        snprintf(sessions[i].name, sizeof(sessions[i].name), "s%u", i);
        sessions[i].gpus[0] = (struct session_gpu){.limit_bytes = 64, .reserved = true};
    }
    one_card.sessions = sessions;
}

/* The whole page, for root. */
static char *text_of(enum metrics_format format)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    struct metrics_text page = metrics_begin(&one_card, 0, format);
    while (metrics_write(&page, out))
        ;
    fclose(out);
    return text;
}

static unsigned count_of(const char *text, const char *part)
{
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    return count;
}

static void values_stand_beside_their_labels(void **state)
{
    struct session sessions[2];
    add_sessions(sessions, 2);
    char *text = text_of(METRICS_PROMETHEUS);
    assert_non_null(strstr(text, "\ngpuslice_sessions_active 2\n"));
    assert_non_null(strstr(text, "\ngpuslice_attaches_total 12\n"));
    assert_non_null(strstr(text,
                           "\ngpuslice_recovered_bytes_total{gpu=\"0\",UUID=\"GPU-00000000-0000-0000-0000-"
                           "000000000000\"} 77\n"));
    assert_non_null(strstr(text, "\ngpuslice_denied_alloc_total{gpu=\"0\",UUID=\"GPU-00000000-0000-0000-0000-"
                                 "000000000000\"} 2\n"));
    assert_non_null(strstr(text, "\ngpuslice_reserved_bytes{gpu=\"0\",UUID=\"GPU-00000000-0000-0000-0000-"
                                 "000000000000\"} 128\n"));
    assert_non_null(strstr(text, "gpuslice_session_limit_bytes{session=\"s1\",owner=\"1000\",gpu=\"0\","));
    assert_null(strstr(text, "session_id"));
    free(text);
}

static void ids_are_labels_only_for_debugging(void **state)
{
    struct session session;
    add_sessions(&session, 1);
    one_card.config.daemon.metrics_debug = true;
    char *text = text_of(METRICS_PROMETHEUS);
    one_card.config.daemon.metrics_debug = false;
    assert_non_null(strstr(text, "session_id=\"000000000000\""));
    free(text);
}

static void a_thousand_sessions_do_not_drown_a_monitor(void **state)
{
    struct session *sessions = calloc(1000, sizeof(*sessions));
    add_sessions(sessions, 1000);
    char *text = text_of(METRICS_PROMETHEUS);
    assert_int_equal(count_of(text, "gpuslice_session_limit_bytes{"), METRICS_SESSIONS_MAX);
    assert_non_null(strstr(text, "\ngpuslice_sessions_active 1000\n"));
    free(text);
    free(sessions);
}

static void every_metric_has_one_help_and_one_type(void **state)
{
    one_card.sessions = NULL;
    char *text = text_of(METRICS_PROMETHEUS), *save = NULL, last[64] = "";
    unsigned helps = 0, types = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[64], kind[16];
        if (sscanf(line, "# HELP %63s", name) == 1) {
            helps++;
            strcpy(last, name);
            assert_int_equal(line[strlen(line) - 1], '.');
        } else if (sscanf(line, "# TYPE %63s %15s", name, kind) == 2) {
            types++;
            assert_string_equal(name, last);
            bool is_total = strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0;
            assert_int_equal(is_total, strcmp(kind, "counter") == 0);
        } else {
            assert_int_equal(strncmp(line, last, strlen(last)), 0);
        }
    }
    assert_int_equal(helps, types);
    assert_true(helps >= 15);
    free(text);
}

static void other_formats_have_the_same_samples(void **state)
{
    struct session session;
    add_sessions(&session, 1);
    one_card.gpus[0].busy_percent = 42;
    char *influx = text_of(METRICS_INFLUX), *json = text_of(METRICS_JSON);
    char *prometheus = text_of(METRICS_PROMETHEUS);
    assert_non_null(strstr(influx, "\ngpuslice_attaches_total value=12 1"));
    assert_non_null(strstr(influx,
                           "\ngpuslice_gpu_busy_ratio,gpu=0,UUID=GPU-00000000-0000-0000-0000-000000000000 "
                           "value=0.420000000 1"));
    assert_non_null(
        strstr(json, "{\"metric\":\"gpuslice_session_limit_bytes\",\"labels\":{\"session\":\"s0\",\"owner\":"
                     "\"1000\",\"gpu\":\"0\",\"UUID\":\"GPU-00000000-0000-0000-0000-000000000000\"},"
                     "\"value\":64,\"time\":"));
    assert_null(strstr(influx, "# "));
    assert_int_equal(count_of(influx, "\n"), count_of(json, "\n"));
    assert_int_equal(count_of(prometheus, "\n"), count_of(json, "\n") + 2 * count_of(prometheus, "# HELP"));
    free(influx);
    free(json);
    free(prometheus);
}

static void what_nvml_does_not_say_has_no_sample(void **state)
{
    one_card.sessions = NULL;
    one_card.gpus[0].busy_percent = -1;
    char *text = text_of(METRICS_PROMETHEUS);
    assert_non_null(strstr(text, "# TYPE gpuslice_gpu_busy_ratio gauge\n"));
    assert_null(strstr(text, "gpuslice_gpu_busy_ratio{"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(values_stand_beside_their_labels, set_up),
        cmocka_unit_test_setup(ids_are_labels_only_for_debugging, set_up),
        cmocka_unit_test_setup(a_thousand_sessions_do_not_drown_a_monitor, set_up),
        cmocka_unit_test_setup(every_metric_has_one_help_and_one_type, set_up),
        cmocka_unit_test_setup(other_formats_have_the_same_samples, set_up),
        cmocka_unit_test_setup(what_nvml_does_not_say_has_no_sample, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
