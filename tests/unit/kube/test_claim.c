#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session_fields.h"
#include "kube/dra/claim.h"
#include "kube/dra/quantity.h"

static void quantities_are_read_as_kubernetes_writes_them(void **state)
{
    static const struct {
        const char *text;
        uint64_t number;
    } good[] = {{"0", 0},
                {"25", 25},
                {"4Gi", UINT64_C(4) << 30},
                {"1.5Ki", 1536},
                {"100m", 1},
                {"1500m", 2},
                {"3k", 3000},
                {"2e3", 2000},
                {"2E3", 2000},
                {"2.5e+1", 25},
                {"1E", UINT64_C(1000000000000000000)},
                {"7Ei", UINT64_C(7) << 60},
                {"10240Mi", UINT64_C(10240) << 20}};
    static const char *const bad[] = {"",  "-1",  "4GiB",  "Gi",  "1 Gi", "0x10", "1..2",
                                      ".", "8Ei", "1e400", "nan", "inf",  "1e",   "5kk"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint64_t number = 77;
        assert_int_equal(quantity_parse(good[i].text, &number, NULL), 0);
        assert_int_equal(number, good[i].number);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t number = 77;
        assert_true(quantity_parse(bad[i], &number, NULL) < 0);
        assert_int_equal(number, 77);
    }
}

static const char gpus_text[] =
    "[{\"uuid\":\"GPU-AA\",\"total_bytes\":1000},{\"uuid\":\"GPU-BB\",\"total_bytes\":2000}]";

/* A claim with these results and configurations. */
static int read_claim(const char *results, const char *configs, json_t **body, json_t **devices,
                      struct error *error)
{
    char text[4096];
    snprintf(
        text, sizeof(text),
        "{\"metadata\":{\"uid\":\"u1\",\"namespace\":\"team\",\"name\":\"c\"},\"status\":{\"reservedFor\":"
        "[{\"resource\":\"pods\",\"name\":\"train-0\",\"uid\":\"p\"}],"
        "\"allocation\":{\"devices\":{\"results\":[%s],\"config\":[%s]}}}}",
        results, configs);
    json_t *claim = json_loads(text, 0, NULL), *gpus = json_loads(gpus_text, 0, NULL);
    assert_non_null(claim);
    int result = claim_read(claim, "u1", gpus, body, devices, error);
    json_decref(claim);
    json_decref(gpus);
    return result;
}

#define RESULT(device, consumed)                                                                             \
    "{\"driver\":\"gpu.gpuslice.io\",\"request\":\"r\",\"pool\":\"n\",\"device\":\"" device "\"" consumed "}"
#define CONSUMED(memory, cores) ",\"consumedCapacity\":{\"memory\":\"" memory "\",\"cores\":\"" cores "\"}"
#define CONFIG(parameters)                                                                                   \
    "{\"source\":\"FromClaim\",\"opaque\":{\"driver\":\"gpu.gpuslice.io\",\"parameters\":{" parameters "}}}"
#define CLASS(parameters)                                                                                    \
    "{\"source\":\"FromClass\",\"opaque\":{\"driver\":\"gpu.gpuslice.io\",\"parameters\":{" parameters "}}}"

static void check_body(const char *results, const char *configs, const char *expected)
{
    json_t *body = NULL, *devices = NULL, *wanted = json_loads(expected, 0, NULL);
    struct error error = {0};
    int result = read_claim(results, configs, &body, &devices, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(result, 0);
    assert_non_null(wanted);
    char *text = json_dumps(body, JSON_SORT_KEYS), *wanted_text = json_dumps(wanted, JSON_SORT_KEYS);
    assert_string_equal(text, wanted_text);
    free(text);
    free(wanted_text);
    json_decref(body);
    json_decref(devices);
    json_decref(wanted);
}

static void a_session_has_exactly_what_was_consumed(void **state)
{
    check_body(
        RESULT("gpu-aa", CONSUMED("100", "25")), "",
        "{\"name\":\"claim-u1\",\"gpus\":[{\"gpu\":\"GPU-AA\",\"memory_bytes\":100}],\"compute\":\"25%\","
        "\"namespace\":\"team\",\"pod\":\"train-0\"}");
    /* Twice of one GPU, and one of another; other drivers' results are others' matter. */
    check_body(
        RESULT("gpu-aa", CONSUMED("100", "25")) "," RESULT("gpu-bb", CONSUMED("7", "50")) "," RESULT(
            "gpu-aa", CONSUMED("20", "25")) ",{\"driver\":\"other\",\"device\":\"gpu-zz\"}",
        "",
        "{\"name\":\"claim-u1\",\"gpus\":[{\"gpu\":\"GPU-AA\",\"memory_bytes\":120},{\"gpu\":\"GPU-BB\","
        "\"memory_bytes\":7}],\"compute\":\"50%\",\"namespace\":\"team\",\"pod\":\"train-0\"}");
    /* A cluster that does not count capacity gives whole devices. */
    check_body(
        RESULT("gpu-bb", ""), "",
        "{\"name\":\"claim-u1\",\"gpus\":[{\"gpu\":\"GPU-BB\",\"memory_bytes\":2000}],\"compute\":\"100%\","
        "\"namespace\":\"team\",\"pod\":\"train-0\"}");
}

static void admin_access_asks_for_no_session(void **state)
{
    json_t *body = (json_t *)state, *devices = NULL;
    struct error error = {0};
    assert_int_equal(read_claim(RESULT("gpu-aa", ",\"adminAccess\":true"), "", &body, &devices, &error), 0);
    assert_null(body);
    assert_string_equal(json_string_value(json_object_get(json_array_get(devices, 0), "uuid")), "GPU-AA");
    json_decref(devices);
}

static void the_claims_configuration_wins_over_the_classes(void **state)
{
    check_body(
        RESULT("gpu-aa", CONSUMED("100", "25")),
        CLASS("\"minimumShare\":\"20%\",\"priority\":\"low\"") "," CONFIG(
            "\"kind\":\"SessionConfig\",\"apiVersion\":\"gpu.gpuslice.io/v1alpha1\",\"minimumShare\":\"10%\","
            "\"maximumShare\":\"60%\"") ",{\"opaque\":{\"driver\":\"other\",\"parameters\":{\"x\":1}}}",
        "{\"name\":\"claim-u1\",\"gpus\":[{\"gpu\":\"GPU-AA\",\"memory_bytes\":100}],\"compute\":\"10%..60%"
        "\","
        "\"namespace\":\"team\",\"pod\":\"train-0\",\"priority\":\"low\"}");
}

static void a_claim_may_be_promised_nothing(void **state)
{
    check_body(RESULT("gpu-aa", CONSUMED("100", "25")),
               CONFIG("\"minimumShare\":\"0%\",\"maximumShare\":\"100%\""),
               "{\"name\":\"claim-u1\",\"gpus\":[{\"gpu\":\"GPU-AA\",\"memory_bytes\":100}],\"compute\":\"0%."
               ".100%\","
               "\"namespace\":\"team\",\"pod\":\"train-0\"}");
}

static void memory_that_can_leave_the_card_may_be_more_than_was_counted(void **state)
{
    check_body(
        RESULT("gpu-aa", CONSUMED("100", "25")) "," RESULT("gpu-bb", CONSUMED("200", "25")),
        CLASS("\"oversubscribe\":\"swap\",\"memoryLimit\":\"1Ki\",\"hostMemory\":\"4Ki\",\"idleSuspend\":"
              "\"5m\""),
        "{\"name\":\"claim-u1\",\"gpus\":[{\"gpu\":\"GPU-AA\",\"memory_bytes\":1024},{\"gpu\":\"GPU-BB\","
        "\"memory_bytes\":1024}],\"compute\":\"25%\",\"namespace\":\"team\",\"pod\":\"train-0\","
        "\"oversubscribe\":\"swap\",\"host_memory_bytes\":4096,\"idle_suspend_seconds\":300}");
}

static void a_claim_whose_memory_stays_has_what_was_counted_whatever_its_class_says(void **state)
{
    check_body(RESULT("gpu-aa", CONSUMED("100", "25")),
               CLASS("\"oversubscribe\":\"swap\",\"memoryLimit\":\"1Ki\",\"hostMemory\":\"4Ki\","
                     "\"idleSuspend\":\"5m\"") "," CONFIG("\"oversubscribe\":\"none\""),
               "{\"name\":\"claim-u1\",\"gpus\":[{\"gpu\":\"GPU-AA\",\"memory_bytes\":100}],\"compute\":"
               "\"25%\",\"namespace\":\"team\",\"pod\":\"train-0\",\"oversubscribe\":\"none\"}");
}

static void check_refused(const char *results, const char *configs, const char *words)
{
    json_t *body = NULL, *devices = NULL;
    struct error error = {0};
    assert_true(read_claim(results, configs, &body, &devices, &error) < 0);
    assert_null(body);
    assert_null(devices);
    if (!strstr(error.message, words))
        fail_msg("'%s' lacks '%s'", error.message, words);
}

/* Any user of a namespace writes claims, so what others lose by one is what was counted for it, or what a class says. */
static void a_claim_gives_itself_no_more_than_was_counted(void **state)
{
    static const char counted[] = RESULT("gpu-aa", CONSUMED("100", "1"));
    check_refused(counted, CONFIG("\"minimumShare\":\"99%\",\"maximumShare\":\"100%\""),
                  "minimumShare is 99%, and its cores are 1%");
    check_refused(counted, CLASS("\"minimumShare\":\"40%\",\"maximumShare\":\"60%\""),
                  "minimumShare is 40%, and its cores are 1%");
    check_refused(counted, CONFIG("\"priority\":\"critical\""),
                  "priority is critical; expected normal or low");
    check_refused(counted, CONFIG("\"oversubscribe\":\"swap\",\"memoryLimit\":\"1Ki\""),
                  "memoryLimit of 1024 bytes is more than the 100");
    /* Nor by what it says of its source, or beside a class that says less. */
    check_refused(counted,
                  "{\"opaque\":{\"driver\":\"gpu.gpuslice.io\",\"parameters\":{\"priority\":\"high\"}}}",
                  "priority is high");
    check_refused(counted, CLASS("\"priority\":\"high\"") "," CONFIG("\"priority\":\"critical\""),
                  "priority is critical");
    check_refused(
        counted,
        CLASS("\"oversubscribe\":\"swap\",\"memoryLimit\":\"512\"") "," CONFIG("\"memoryLimit\":\"1Ki\""),
        "memoryLimit of 1024");
    check_body(
        RESULT("gpu-aa", CONSUMED("100", "40")),
        CLASS("\"minimumShare\":\"40%\",\"maximumShare\":\"60%\",\"priority\":\"critical\"") "," CONFIG(
            "\"minimumShare\":\"30%\",\"priority\":\"high\""),
        "{\"name\":\"claim-u1\",\"gpus\":[{\"gpu\":\"GPU-AA\",\"memory_bytes\":100}],\"compute\":\"30%..60%"
        "\","
        "\"namespace\":\"team\",\"pod\":\"train-0\",\"priority\":\"high\"}");
}

#define ASKED_BY(request, device, consumed)                                                                  \
    "{\"driver\":\"gpu.gpuslice.io\",\"request\":\"" request "\",\"device\":\"" device "\"" consumed "}"
#define CONFIG_OF(requests, parameters)                                                                      \
    "{\"source\":\"FromClaim\",\"requests\":[" requests                                                      \
    "],\"opaque\":{\"driver\":\"gpu.gpuslice.io\",\"parameters\":{" parameters "}}}"

/* All requests of a claim become one session. */
static void a_configuration_is_about_the_requests_that_it_names(void **state)
{
    static const char two[] = ASKED_BY("a", "gpu-aa", CONSUMED("100", "25")) "," ASKED_BY(
        "b/large", "gpu-bb", CONSUMED("100", "25"));
    check_refused(two, CONFIG_OF("\"a\"", "\"priority\":\"low\""),
                  "requests a and b/large have different configurations");
    check_refused(
        two, CONFIG_OF("\"a\"", "\"priority\":\"low\"") "," CONFIG_OF("\"b\"", "\"priority\":\"normal\""),
        "different configurations");
    static const char low[] =
        "{\"name\":\"claim-u1\",\"gpus\":[{\"gpu\":\"GPU-AA\",\"memory_bytes\":100},{\"gpu\":\"GPU-BB\","
        "\"memory_bytes\":100}],\"compute\":\"25%\",\"namespace\":\"team\",\"pod\":\"train-0\",\"priority\":"
        "\"low\"}";
    check_body(two, CONFIG_OF("\"a\"", "\"priority\":\"low\"") "," CONFIG_OF("\"b\"", "\"priority\":\"low\""),
               low);
    check_body(two, CONFIG_OF("\"a\",\"b/large\"", "\"priority\":\"low\""), low);
    check_body(two, CONFIG_OF("\"c\"", "\"priority\":\"high\"") "," CONFIG_OF("", "\"priority\":\"low\""),
               low);
}

static void what_cannot_be_is_refused_with_a_reason(void **state)
{
    check_refused(RESULT("gpu-cc", CONSUMED("1", "1")), "", "gpu-cc");
    check_refused(RESULT("gpu-aa", CONSUMED("lots", "1")), "", "lots");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "101")), "", "101 cores");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "60")) "," RESULT("gpu-aa", CONSUMED("1", "50")), "",
                  "110 cores");
    check_refused(RESULT("gpu-aa", ",\"adminAccess\":true") "," RESULT("gpu-bb", CONSUMED("1", "1")), "",
                  "admin");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "10")) "," RESULT("gpu-bb", CONSUMED("1", "20")), "",
                  "10 and 20");
    check_refused("{\"driver\":\"other\"}", "", "no device");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")), CONFIG("\"minimumShare\":\"lots\""), "minimumShare");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")), CONFIG("\"minimumShare\":\"10%..20%\""),
                  "minimumShare");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")), CONFIG("\"minimumShare\":7"), "minimumShare");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "60")), CONFIG("\"maximumShare\":\"20%\""),
                  "minimum of 60% (its minimumShare, or else its cores) is above its maximum of 20%");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")), CONFIG("\"minShare\":\"1%\""), "'minShare'");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")), CONFIG("\"kind\":\"Other\""), "kind 'Other'");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")), CONFIG("\"apiVersion\":\"gpu.gpuslice.io/v9\""),
                  "apiVersion 'gpu.gpuslice.io/v9'; expected gpu.gpuslice.io/v1alpha1");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")),
                  CONFIG("\"oversubscribe\":\"swap\",\"hostMemory\":\"0\""), "hostMemory is 0");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")),
                  CONFIG("\"oversubscribe\":\"swap\",\"memoryLimit\":\"0\""), "memoryLimit is 0");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")), CONFIG("\"oversubscribe\":true"), "oversubscribe");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")), CONFIG("\"memoryLimit\":\"1Gi\""),
                  "oversubscribe: swap");
    check_refused(RESULT("gpu-aa", CONSUMED("1", "1")),
                  CONFIG("\"memoryLimit\":\"1Gi\",\"oversubscribe\":\"none\""), "oversubscribe: swap");
    check_refused(RESULT("gpu-aa", CONSUMED("2Gi", "1")),
                  CONFIG("\"memoryLimit\":\"1Gi\",\"oversubscribe\":\"swap\""), "less than");
}

static void another_claim_of_that_name_is_not_taken_for_it(void **state)
{
    json_t *body = NULL, *devices = NULL, *gpus = json_loads(gpus_text, 0, NULL);
    static const char *const others[] = {"{}", "[]", "{\"metadata\":{\"uid\":\"u2\"}}",
                                         "{\"metadata\":{\"uid\":\"u1\"}}",
                                         "{\"metadata\":{\"uid\":\"u1\"},\"status\":{\"allocation\":7}}"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        json_t *claim = json_loads(others[i], 0, NULL);
        assert_true(claim_read(claim, "u1", gpus, &body, &devices, NULL) < 0);
        json_decref(claim);
    }
    json_decref(gpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantities_are_read_as_kubernetes_writes_them),
        cmocka_unit_test(a_session_has_exactly_what_was_consumed),
        cmocka_unit_test(admin_access_asks_for_no_session),
        cmocka_unit_test(the_claims_configuration_wins_over_the_classes),
        cmocka_unit_test(a_claim_may_be_promised_nothing),
        cmocka_unit_test(memory_that_can_leave_the_card_may_be_more_than_was_counted),
        cmocka_unit_test(a_claim_whose_memory_stays_has_what_was_counted_whatever_its_class_says),
        cmocka_unit_test(a_claim_gives_itself_no_more_than_was_counted),
        cmocka_unit_test(a_configuration_is_about_the_requests_that_it_names),
        cmocka_unit_test(what_cannot_be_is_refused_with_a_reason),
        cmocka_unit_test(another_claim_of_that_name_is_not_taken_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
