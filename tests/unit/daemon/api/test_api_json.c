/* What is accepted in the bodies of requests. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/api/api.h"
#include "daemon/gpu/gpu.h"
#include "daemon/http/http.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"

static struct daemon two_cards;

static int set_up(void **state)
{
    static const char *const uuids[] = {"GPU-11111111-0000-0000-0000-000000000001",
                                        "GPU-12345678-0000-0000-0000-000000000002"};
    two_cards.gpu_count = 2;
    for (unsigned i = 0; i < 2; i++) {
        two_cards.gpus[i].index = i;
        two_cards.gpus[i].mig_index = -1;
        snprintf(two_cards.gpus[i].label, sizeof(two_cards.gpus[i].label), "%u", i);
        strcpy(two_cards.gpus[i].uuid_text, uuids[i]);
        assert_true(gpu_uuid_parse(uuids[i], two_cards.gpus[i].uuid));
    }
    return 0;
}

/* Parse as POST does; the document is dropped, so strings in `request` are not to be read after. */
static int parse(const char *body, struct session_request *request, struct error *error)
{
    json_t *document;
    *request = (struct session_request){0};
    int result = api_parse_session(&two_cards, body, strlen(body), true, &document, request, error);
    if (result == 0)
        json_decref(document);
    return result;
}

static void all_fields_are_read(void **state)
{
    struct session_request request;
    struct error error;
    assert_int_equal(parse("{\"name\":\"a\",\"memory_bytes\":7,\"run\":true,\"wait\":true,\"ttl_seconds\":90,"
                           "\"gpus\":[{\"gpu\":\"1\"},{\"gpu\":\"gpu-1111\","
                           "\"memory_bytes\":9}],\"compute\":\"20%..60%\",\"priority\":\"high\"}",
                           &request, &error),
                     0);
    assert_true(request.run);
    assert_true(request.wait);
    assert_int_equal(request.properties.ttl_seconds, 90);
    assert_true(request.has_bytes);
    assert_int_equal(request.bytes, 7);
    assert_int_equal(request.limit_count, 2);
    assert_int_equal(request.limits[0].gpu, 1);
    assert_false(request.limits[0].has_bytes);
    assert_int_equal(request.limits[1].gpu, 0);
    assert_int_equal(request.limits[1].bytes, 9);
    assert_true(property_is_given(&request.properties, PROPERTY_COMPUTE));
    assert_int_equal(request.properties.compute.min, 2000);
    assert_int_equal(request.properties.compute.max, 6000);
    assert_true(property_is_given(&request.properties, PROPERTY_PRIORITY));
    assert_int_equal(request.properties.priority, PRIORITY_HIGH);
}

static void an_empty_body_asks_for_nothing_special(void **state)
{
    struct session_request request;
    struct error error;
    assert_int_equal(parse("", &request, &error), 0);
    assert_int_equal(parse("{}", &request, &error), 0);
    assert_int_equal(request.limit_count, 0);
    assert_false(request.has_bytes);
    assert_null(request.name);
    assert_false(property_is_given(&request.properties, PROPERTY_COMPUTE));
    assert_false(property_is_given(&request.properties, PROPERTY_PRIORITY));
}

static void what_is_wrong_is_refused_and_named(void **state)
{
    static const struct {
        const char *body, *code, *named;
    } wrong[] = {
        {"{", "ERR_BAD_REQUEST", "JSON"},
        {"[]", "ERR_BAD_REQUEST", "object"},
        {"null", "ERR_BAD_REQUEST", "JSON"},
        {"{} {}", "ERR_BAD_REQUEST", "JSON"},
        {"{\"name\":\"a\",\"name\":\"b\"}", "ERR_BAD_REQUEST", "JSON"},
        {"{\"nam\":\"a\"}", "ERR_BAD_REQUEST", "nam"},
        {"{\"name\":1}", "ERR_BAD_REQUEST", "name"},
        {"{\"name\":null}", "ERR_BAD_REQUEST", "name"},
        {"{\"memory_bytes\":0}", "ERR_BAD_REQUEST", "memory_bytes"},
        {"{\"memory_bytes\":-1}", "ERR_BAD_REQUEST", "memory_bytes"},
        {"{\"memory_bytes\":1.5}", "ERR_BAD_REQUEST", "memory_bytes"},
        {"{\"memory_bytes\":\"1GiB\"}", "ERR_BAD_REQUEST", "memory_bytes"},
        {"{\"memory_bytes\":9223372036854775808}", "ERR_BAD_REQUEST", "JSON"},
        {"{\"compute\":25}", "ERR_BAD_REQUEST", "compute"},
        {"{\"compute\":\"0%\"}", "ERR_BAD_REQUEST", "0%"},
        {"{\"compute\":\"60%..20%\"}", "ERR_BAD_REQUEST", "upside down"},
        {"{\"priority\":\"urgent\"}", "ERR_BAD_REQUEST", "priority"},
        {"{\"priority\":null}", "ERR_BAD_REQUEST", "priority"},
        {"{\"wait\":1}", "ERR_BAD_REQUEST", "wait"},
        {"{\"ttl_seconds\":0}", "ERR_BAD_REQUEST", "ttl_seconds"},
        {"{\"ttl_seconds\":1.5}", "ERR_BAD_REQUEST", "ttl_seconds"},
        {"{\"ttl_seconds\":2147483648}", "ERR_BAD_REQUEST", "ttl_seconds"},
        {"{\"run\":1}", "ERR_BAD_REQUEST", "run"},
        {"{\"gpus\":{}}", "ERR_BAD_REQUEST", "gpus"},
        {"{\"gpus\":[]}", "ERR_BAD_REQUEST", "gpus"},
        {"{\"gpus\":[1]}", "ERR_BAD_REQUEST", "gpus"},
        {"{\"gpus\":[{}]}", "ERR_BAD_REQUEST", "gpus"},
        {"{\"gpus\":[{\"gpu\":0}]}", "ERR_BAD_REQUEST", "gpu"},
        {"{\"gpus\":[{\"gpu\":\"0\",\"x\":1}]}", "ERR_BAD_REQUEST", "x"},
        {"{\"gpus\":[{\"gpu\":\"0\"},{\"gpu\":\"GPU-1111\"}]}", "ERR_BAD_REQUEST", "twice"},
        {"{\"gpus\":[{\"gpu\":\"2\"}]}", "ERR_GPU_NOT_FOUND", "2"},
        {"{\"gpus\":[{\"gpu\":\"\"}]}", "ERR_GPU_NOT_FOUND", "GPU"},
        {"{\"gpus\":[{\"gpu\":\"GPU-9\"}]}", "ERR_GPU_NOT_FOUND", "GPU-9"},
        {"{\"gpus\":[{\"gpu\":\"GPU-1\"}]}", "ERR_AMBIGUOUS", "GPU-1"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct session_request request;
        struct error error = {0};
        if (parse(wrong[i].body, &request, &error) >= 0)
            fail_msg("accepted: %s", wrong[i].body);
        assert_string_equal(error.code, wrong[i].code);
        if (!strstr(error.message, wrong[i].named))
            fail_msg("%s: '%s' does not name '%s'", wrong[i].body, error.message, wrong[i].named);
    }
}

static void a_change_knows_no_run(void **state)
{
    struct session_request request = {0};
    struct error error;
    json_t *document;
    static const char body[] = "{\"run\":true}";
    assert_int_equal(api_parse_session(&two_cards, body, strlen(body), NULL, &document, &request, &error),
                     -EINVAL);
    assert_null(strstr(error.message, ", run"));
}

static void more_cards_than_there_are_cannot_be_named(void **state)
{
    char body[8192] = "{\"gpus\":[";
    for (int i = 0; i < 200; i++)
        strcat(body, "{\"gpu\":\"0\"},");
    strcat(body, "{\"gpu\":\"1\"}]}");
    struct session_request request;
    struct error error;
    assert_int_equal(parse(body, &request, &error), -EINVAL);
}

/* Values are counted wherever they stand, and what strings contain is none. */
static void a_body_has_so_many_values(void **state)
{
    static const struct {
        const char *begin, *each, *end;
        unsigned most; /* how many of `each` it may have */
    } kinds[] = {
        {"{\"name\":[0", ",0", "]}", API_BODY_VALUES_MAX - 3},
        {"{\"name\":[0", ",[0]", "]}", (API_BODY_VALUES_MAX - 3) / 2},
        {"{\"name\":[0", ",{\"a\":0}", "]}", (API_BODY_VALUES_MAX - 3) / 2},
        {"{\"name\":\"", ",[\\\",{\\\\", "\"}", 4000},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (unsigned more = 0; more <= (kinds[i].most < 4000); more++) {
            char body[HTTP_BODY_BYTES_MAX];
            char *end = stpcpy(body, kinds[i].begin);
            for (unsigned k = 0; k < kinds[i].most + more; k++)
                end = stpcpy(end, kinds[i].each);
            end = stpcpy(end, kinds[i].end);
            json_t *document;
            struct error error;
            int result = api_parse_body(body, (size_t)(end - body), &document, &error);
            assert_int_equal(result, more ? -EINVAL : 0);
            if (more)
                assert_non_null(strstr(error.message, "at most 1000"));
            json_decref(document);
        }
}

static void gslices_body_needs_a_limit(void **state)
{
    static const char good[] = "{\"limit_bytes\":1048576,\"ttl_seconds\":60}",
                      none[] = "{\"ttl_seconds\":60}", zero[] = "{\"limit_bytes\":0}",
                      other[] = "{\"limit_bytes\":1,\"name\":\"a\"}";
    struct session_request request = {0};
    struct error error;
    assert_int_equal(api_parse_gslice(good, strlen(good), &request, &error), 0);
    assert_int_equal(request.bytes, 1048576);
    assert_int_equal(request.properties.ttl_seconds, 60);
    assert_int_equal(api_parse_gslice(zero, strlen(zero), &request, &error), -EINVAL);
    assert_int_equal(api_parse_gslice(other, strlen(other), &request, &error), -EINVAL);
    request = (struct session_request){0};
    assert_int_equal(api_parse_gslice(none, strlen(none), &request, &error), -EINVAL);
    assert_non_null(strstr(error.message, "limit_bytes"));
}

static void codes_have_their_statuses(void **state)
{
    assert_int_equal(http_status_of("ERR_BAD_REQUEST"), 400);
    assert_int_equal(http_status_of("ERR_UNAUTHORIZED"), 401);
    assert_int_equal(http_status_of("ERR_FORBIDDEN"), 403);
    assert_int_equal(http_status_of("ERR_SESSION_NOT_FOUND"), 404);
    assert_int_equal(http_status_of("ERR_METHOD_NOT_ALLOWED"), 405);
    assert_int_equal(http_status_of("ERR_ADMISSION"), 409);
    assert_int_equal(http_status_of("ERR_TOO_LARGE"), 413);
    assert_int_equal(http_status_of("ERR_INTERNAL"), 500);
    assert_int_equal(http_status_of(NULL), 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_fields_are_read),
        cmocka_unit_test(an_empty_body_asks_for_nothing_special),
        cmocka_unit_test(what_is_wrong_is_refused_and_named),
        cmocka_unit_test(a_change_knows_no_run),
        cmocka_unit_test(more_cards_than_there_are_cannot_be_named),
        cmocka_unit_test(a_body_has_so_many_values),
        cmocka_unit_test(gslices_body_needs_a_limit),
        cmocka_unit_test(codes_have_their_statuses),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
