#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/session_pod.h"

static void a_pod_has_two_or_three_parts(void **state)
{
    assert_true(session_pod_is_meant("default/train"));
    assert_true(session_pod_is_meant("default/train-0.x/main"));
    assert_false(session_pod_is_meant("train"));
    assert_false(session_pod_is_meant("/train"));
    assert_false(session_pod_is_meant("default/"));
    assert_false(session_pod_is_meant("a/b/c/d"));
    assert_false(session_pod_is_meant("a/../b"));
    assert_false(session_pod_is_meant("a/b c"));
    assert_false(session_pod_is_meant(""));
}

static void a_session_is_of_its_pod_alone(void **state)
{
    json_t *session = json_pack("{s:s,s:s,s:s}", "namespace", "default", "pod", "train", "container", "main");
    assert_true(session_pod_is_of(session, "default/train"));
    assert_true(session_pod_is_of(session, "default/train/main"));
    assert_false(session_pod_is_of(session, "default/train/side"));
    assert_false(session_pod_is_of(session, "default/trai"));
    assert_false(session_pod_is_of(session, "other/train"));
    json_decref(session);
    session = json_pack("{s:n,s:n}", "namespace", "pod");
    assert_false(session_pod_is_of(session, "default/train"));
    json_decref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pod_has_two_or_three_parts),
        cmocka_unit_test(a_session_is_of_its_pod_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
