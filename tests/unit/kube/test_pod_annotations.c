#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kube/slices/pod_annotations.h"

/* What the administrator gives the session beside its memory and its minimum. */
static double max_ratio = 1;
static const char *priority = "normal";
static uint64_t host_memory_bytes;

static void check_wish(const char *annotations_text, const char *expected, const char *words)
{
    char problem[POD_PROBLEMS_TEXT];
    json_t *annotations = json_loads(annotations_text, 0, NULL);
    json_t *session =
        json_pack("{s:f,s:f,s:s,s:I,s:[{s:s,s:i},{s:s,s:i}]}", "compute_min_ratio", 0.1, "compute_max_ratio",
                  max_ratio, "priority", priority, "host_memory_limit_bytes", (json_int_t)host_memory_bytes,
                  "gpus", "uuid", "A", "limit_bytes", 1000, "uuid", "B", "limit_bytes", 60);
    json_t *said = json_object(), *wish = pod_annotations_read(annotations, session, said, problem);
    char *text = json_dumps(wish, JSON_SORT_KEYS | JSON_COMPACT);
    assert_string_equal(text, expected ? expected : "{}");
    free(text);
    const char *key;
    json_t *value;
    json_object_foreach(wish, key, value)
        assert_non_null(strstr(json_string_value(json_object_get(said, key)), ": "));
    json_decref(said);
    for (const char *at = problem; *at; at++)
        assert_true(*at >= ' ' && *at <= '~');
    if (!strstr(problem, words))
        fail_msg("'%s' lacks '%s'", problem, words);
    assert_int_equal(*words == '\0', *problem == '\0');
    json_decref(wish);
    json_decref(session);
    json_decref(annotations);
}

static void a_pod_gives_itself_no_more_than_the_administrator_gives_slices(void **state)
{
    max_ratio = 0.2;
    priority = "low";
    host_memory_bytes = UINT64_C(1) << 30;
    check_wish("{\"gpuslice.io/compute\":\"99%\"}", NULL,
               "99% is more than the 10%..20% of the pod's slices");
    check_wish("{\"gpuslice.io/compute\":\"5%..100%\"}", NULL, "5%..100% is more than the 10%..20%");
    check_wish("{\"tensor-fusion.ai/compute-percent-limit\":\"50\"}", NULL, "10%..50% is more than");
    check_wish("{\"gpuslice.io/priority\":\"normal\"}", "{\"priority\":\"low\"}", "");
    check_wish("{\"gpuslice.io/host-memory\":\"1TiB\"}", NULL, "1TiB is more than the 1GiB of sessions here");
    check_wish("{\"gpuslice.io/host-memory\":\"9223372036854775808\"}", NULL, "no machine has");
    check_wish("{\"gpuslice.io/host-memory\":\"64MiB\"}", "{\"host_memory_bytes\":67108864}", "");
    max_ratio = 1;
    priority = "normal";
    host_memory_bytes = 0;
}

/* They go to a log and to terminals. No control and no byte of more than seven bits is left. */
static void what_annotations_say_is_told_without_controls(void **state)
{
    check_wish("{\"gpuslice.io/priority\":\"a\\n\\u001b[31m\\u00e9\"}", NULL, "[31m");
    check_wish("{\"gpuslice.io/memory\":\"1\\ngpuslice-kubelet: all is well\"}", NULL, "'1?gpuslice");
}

/* Any user of a namespace writes annotations. */
static void a_pod_gives_itself_no_more_than_its_slices_have(void **state)
{
    check_wish("{\"gpuslice.io/compute\":\"90%..100%\"}", NULL, "ask for more slices");
    check_wish("{\"gpuslice.io/compute\":\"5%..99%\"}", "{\"compute\":\"5%..99%\"}", "");
    check_wish("{\"gpuslice.io/priority\":\"critical\"}", NULL, "cannot have the priority critical");
    check_wish("{\"tensor-fusion.ai/qos\":\"high\"}", NULL, "cannot have the priority high");
}

static void annotations_of_ours_and_of_others_ask_for_the_same(void **state)
{
    check_wish("{}", NULL, "");
    check_wish("{\"gpuslice.io/memory\":\"100B\",\"gpuslice.io/compute\":\"10%..20%\",\"gpuslice.io/"
               "priority\":\"low\"}",
               "{\"compute\":\"10%..20%\",\"gpus\":[{\"gpu\":\"A\",\"memory_bytes\":100},{\"gpu\":\"B\","
               "\"memory_bytes\":60}],\"priority\":\"low\"}",
               "");
    check_wish(
        "{\"tensor-fusion.ai/vram-limit\":\"100B\",\"tensor-fusion.ai/compute-percent-limit\":\"30\","
        "\"tensor-fusion.ai/qos\":\"medium\"}",
        "{\"compute\":\"10%..30%\",\"gpus\":[{\"gpu\":\"A\",\"memory_bytes\":100},{\"gpu\":\"B\",\"memory_"
        "bytes\":60}],\"priority\":\"normal\"}",
        "");
    check_wish("{\"tensor-fusion.ai/vram-limit\":\"100B\",\"gpuslice.io/memory\":\"50B\"}",
               "{\"gpus\":[{\"gpu\":\"A\",\"memory_bytes\":50},{\"gpu\":\"B\",\"memory_bytes\":50}]}", "");
}

static void memory_that_can_leave_the_card_has_bounds(void **state)
{
    check_wish("{\"gpuslice.io/host-memory\":\"4GiB\",\"gpuslice.io/idle-suspend\":\"5m\"}",
               "{\"host_memory_bytes\":4294967296,\"idle_suspend_seconds\":300}", "");
}

static void a_slice_is_narrowed_and_never_widened(void **state)
{
    check_wish("{\"gpuslice.io/memory\":\"1000B\"}",
               "{\"gpus\":[{\"gpu\":\"A\",\"memory_bytes\":1000},{\"gpu\":\"B\",\"memory_bytes\":60}]}", "");
    check_wish("{\"gpuslice.io/memory\":\"4GiB\"}", NULL, "4GiB is more than the 1000B");
}

static void what_cannot_be_read_is_left_out_and_said(void **state)
{
    check_wish("{\"gpuslice.io/memory\":\"lots\"}", NULL, "memory");
    check_wish("{\"gpuslice.io/compute\":\"200%\",\"gpuslice.io/memory\":\"1B\"}",
               "{\"gpus\":[{\"gpu\":\"A\",\"memory_bytes\":1},{\"gpu\":\"B\",\"memory_bytes\":1}]}",
               "compute");
    check_wish("{\"gpuslice.io/priority\":\"urgent\"}", NULL, "urgent");
    check_wish("{\"gpuslice.io/oversubscribe\":\"true\"}", NULL, "--slice-oversubscribe");
    check_wish("{\"gpuslice.io/when-full\":\"wait\"}", NULL, "never waits for room");
    check_wish("{\"gpuslice.io/host-memory\":\"much\"}", NULL, "host-memory");
    check_wish("{\"gpuslice.io/idle-suspend\":\"soon\"}", NULL, "idle-suspend");
    check_wish("{\"gpuslice.io/memory\":7}", NULL, "");
    check_wish("{\"gpuslice.io/memory\":\"1024\"}", NULL, "1024MiB");
    check_wish("{\"gpuslice.io/memroy\":\"4GiB\",\"example.com/memroy\":\"4GiB\"}", NULL,
               "gpuslice.io/memroy is unknown; expected gpuslice.io/ and one of memory, compute");
    check_wish("{\"gpuslice.io/memory\":\"lots\",\"gpuslice.io/priority\":\"urgent\"}", NULL,
               "; gpuslice.io/priority");
    check_wish("[]", NULL, "");
}

static void what_a_slice_cannot_have_is_said(void **state)
{
    check_wish("{\"tensor-fusion.ai/gpu-ids\":\"GPU-1\"}", NULL, "gpu-ids has no effect");
    check_wish("{\"tensor-fusion.ai/container-gpus\":\"{}\",\"gpuslice.io/priority\":\"low\"}",
               "{\"priority\":\"low\"}", "a claim by DRA with a selector");
    check_wish("{\"tensor-fusion.ai/tflops-limit\":\"30\"}", NULL, "compute-percent-limit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pod_gives_itself_no_more_than_its_slices_have),
        cmocka_unit_test(a_pod_gives_itself_no_more_than_the_administrator_gives_slices),
        cmocka_unit_test(what_annotations_say_is_told_without_controls),
        cmocka_unit_test(annotations_of_ours_and_of_others_ask_for_the_same),
        cmocka_unit_test(memory_that_can_leave_the_card_has_bounds),
        cmocka_unit_test(a_slice_is_narrowed_and_never_widened),
        cmocka_unit_test(what_cannot_be_read_is_left_out_and_said),
        cmocka_unit_test(what_a_slice_cannot_have_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
