#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "kube/slices/lost_containers.h"

/* What the daemon has, what the API server says, and what time it is. */
static json_t *daemon_sessions;
static int api_status;
static const char *api_pod;
static unsigned api_asked;
static time_t now_s;

int __wrap_api_request(const struct kubelet *kubelet, const char *method, const char *path,
                       const json_t *body, json_t **answer, struct error *error);
int __wrap_api_request(const struct kubelet *kubelet, const char *method, const char *path,
                       const json_t *body, json_t **answer, struct error *error)
{
    assert_string_equal(method, "GET");
    assert_string_equal(path, "/api/v1/namespaces/team/pods/train");
    api_asked++;
    *answer = api_pod ? json_loads(api_pod, 0, NULL) : NULL;
    return api_status;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    *now = (struct timespec){.tv_sec = now_s};
    return 0;
}

time_t __wrap_time(time_t *result);
time_t __wrap_time(time_t *result)
{
    return now_s;
}

static int reset(void **state)
{
    json_decref(daemon_sessions);
    daemon_sessions = json_array();
    api_status = 404;
    api_pod = NULL;
    api_asked = 0;
    now_s = 1735689600;
    return 0;
}

static void add_session(const char *name, const char *created_at, const char *processes, const char *pod)
{
    json_t *session = json_pack("{s:s,s:s,s:o}", "name", name, "created_at", created_at, "processes",
                                json_loads(processes, 0, NULL));
    if (pod) {
        json_object_set_new(session, "namespace", json_string("team"));
        json_object_set_new(session, "pod", json_string(pod));
        json_object_set_new(session, "container", json_string("main"));
    }
    json_array_append_new(daemon_sessions, session);
}

#define LONG_AGO "2020-01-01T00:00:00Z"

/* Of a kubelet that lists `wanted`; `api` is whether there is an API server to ask. */
static void check_gone(const char *wanted, bool api, const char *expected)
{
    struct kubelet kubelet = {.options = {.node = "here", .api.url = api ? "https://there" : NULL}};
    json_t *listed = json_loads(wanted, 0, NULL),
           *gone = lost_containers_find(&kubelet, daemon_sessions, listed);
    assert_non_null(listed);
    cleanup_free char *text = json_dumps(gone, JSON_SORT_KEYS | JSON_COMPACT);
    assert_string_equal(text, expected);
    json_decref(gone);
    json_decref(listed);
}

static void what_is_not_listed_has_gone(void **state)
{
    add_session("slices-1", LONG_AGO, "[]", NULL);
    add_session("slices-2", LONG_AGO, "[]", NULL);
    add_session("train", LONG_AGO, "[]", NULL);
    check_gone("{\"slices-2\":{}}", false, "{\"slices-1\":true}");
    check_gone("{\"slices-2\":{}}", true, "{\"slices-1\":true}");
}

static void what_is_young_or_runs_programs_has_not(void **state)
{
    add_session("slices-1", "2025-01-01T00:00:00Z", "[]", NULL);
    add_session("slices-2", LONG_AGO, "[{\"pid\":1}]", "train");
    now_s = 1735689600 + 14; /* 2025-01-01T00:00:14Z */
    check_gone("{}", true, "{}");
    now_s++;
    check_gone("{}", true, "{\"slices-1\":true}");
    assert_int_equal(api_asked, 0);
}

static void check_pod(int status, const char *pod, const char *expected)
{
    api_status = status;
    api_pod = pod;
    check_gone("{}", true, expected);
}

static void a_pod_that_the_api_server_has_here_has_not(void **state)
{
    static const char gone[] = "{\"slices-1\":true}";
    add_session("slices-1", LONG_AGO, "[]", "train");
    check_pod(200, "{\"spec\":{\"nodeName\":\"here\"},\"status\":{\"phase\":\"Running\"}}", "{}");
    check_pod(200, "{\"spec\":{\"nodeName\":\"here\"},\"status\":{\"phase\":\"Pending\"}}", "{}");
    check_pod(200, "{}", "{}");
    check_pod(200, "{\"spec\":{\"nodeName\":\"here\"},\"status\":{\"phase\":\"Succeeded\"}}", gone);
    check_pod(200, "{\"spec\":{\"nodeName\":\"here\"},\"status\":{\"phase\":\"Failed\"}}", gone);
    check_pod(200, "{\"spec\":{\"nodeName\":\"there\"},\"status\":{\"phase\":\"Running\"}}", gone);
    check_pod(404, "{\"kind\":\"Status\"}", gone);
    check_gone("{}", false, gone);
}

static void an_api_server_that_does_not_answer_is_asked_once_and_ends_nobody(void **state)
{
    add_session("slices-1", LONG_AGO, "[]", "train");
    add_session("slices-2", LONG_AGO, "[]", "train");
    for (unsigned i = 0; i < 3; i++) {
        check_pod((int[]){-ETIMEDOUT, 401, 503}[i], NULL, "{}");
        assert_int_equal(api_asked, i + 1);
    }
}

static void what_has_a_follower_under_its_pods_name_has_gone(void **state)
{
    add_session("slices-1", LONG_AGO, "[]", "train");
    check_gone("{\"slices-2\":{\"namespace\":\"team\",\"pod\":\"train\",\"container\":\"main\"}}", true,
               "{\"slices-1\":true}");
    assert_int_equal(api_asked, 0);
}

static void a_kubelet_that_has_just_started_is_not_believed(void **state)
{
    char path[] = "/tmp/gone-XXXXXX", other[] = "/tmp/gone-XXXXXX";
    close(mkstemp(path));
    assert_false(lost_containers_may_be_told("/nowhere"));
    assert_false(lost_containers_may_be_told(path));
    now_s += 14;
    assert_false(lost_containers_may_be_told(path));
    now_s += 2;
    assert_true(lost_containers_may_be_told(path));
    close(mkstemp(other)); /* another kubelet's socket takes its place */
    rename(other, path);
    assert_false(lost_containers_may_be_told(path));
    now_s += 16;
    assert_true(lost_containers_may_be_told(path));
    unlink(path);
    assert_false(lost_containers_may_be_told(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_not_listed_has_gone, reset),
        cmocka_unit_test_setup(what_is_young_or_runs_programs_has_not, reset),
        cmocka_unit_test_setup(a_pod_that_the_api_server_has_here_has_not, reset),
        cmocka_unit_test_setup(an_api_server_that_does_not_answer_is_asked_once_and_ends_nobody, reset),
        cmocka_unit_test_setup(what_has_a_follower_under_its_pods_name_has_gone, reset),
        cmocka_unit_test_setup(a_kubelet_that_has_just_started_is_not_believed, reset),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(daemon_sessions);
    return failed;
}
