#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../wrong.h"
#include "kube/grpc/grpc_connection.h"
#include "kube/grpc/watchers.h"

/* A server whose clients follow what is told, and the client's end of one request. */
static struct {
    sd_event *loop;
    char folder[32], path[64];
    struct grpc_server *server;
    struct watchers watchers;
    size_t bytes; /* of what is told */
    unsigned told;
    bool has_ended;
    enum grpc_status status;
} world;

static void tell(void *context, struct grpc_call *call)
{
    static const uint8_t message[GRPC_MESSAGE_MAX + 1];
    world.told++;
    grpc_call_send(call, message, world.bytes);
}

static void follow(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    watchers_add(&world.watchers, call, tell, NULL);
}

static const struct grpc_method methods[] = {{"/test/Follow", follow}, {NULL, NULL}};

static void on_message(void *context, const uint8_t *message, size_t bytes)
{
}

static void on_end(void *context, enum grpc_status status, const char *text)
{
    world.has_ended = true;
    world.status = status;
}

static int begin(void **state)
{
    snprintf(world.folder, sizeof(world.folder), "/tmp/grpc-XXXXXX");
    assert_non_null(mkdtemp(world.folder));
    snprintf(world.path, sizeof(world.path), "%s/socket", world.folder);
    LIST_INIT(&world.watchers);
    world.told = 0;
    world.has_ended = false;
    assert_true(sd_event_new(&world.loop) >= 0);
    assert_int_equal(grpc_server_open(world.loop, world.path, methods, NULL, &world.server, NULL), 0);
    return 0;
}

static int end(void **state)
{
    grpc_server_close(world.server);
    sd_event_unref(world.loop);
    return rmdir(world.folder);
}

#define TURN_USEC UINT64_C(5000000)

static void begin_to_follow(void)
{
    static const struct grpc_answer answer = {on_message, on_end};
    assert_non_null(grpc_ask(world.loop, world.path, "/test/Follow", "", 0, 0, &answer, NULL));
    while (!world.told)
        assert_true(sd_event_run(world.loop, TURN_USEC) > 0);
}

static void check_that_it_ended(void)
{
    unsigned told = world.told;
    while (!world.has_ended)
        assert_true(sd_event_run(world.loop, TURN_USEC) > 0);
    assert_int_equal(world.status, GRPC_RESOURCE_EXHAUSTED);
    assert_true(LIST_EMPTY(&world.watchers));
    watchers_tell(&world.watchers, tell, NULL);
    assert_int_equal(world.told, told);
}

static void a_client_told_too_much_at_once_is_cut_off(void **state)
{
    world.bytes = GRPC_MESSAGE_MAX + 1;
    begin_to_follow();
    check_that_it_ended();
}

static void a_client_that_does_not_read_is_cut_off(void **state)
{
    world.bytes = GRPC_MESSAGE_MAX;
    begin_to_follow();
    /* The loop does not run, so nothing is sent. */
    watchers_tell(&world.watchers, tell, NULL);
    watchers_tell(&world.watchers, tell, NULL);
    watchers_tell(&world.watchers, tell, NULL);
    check_that_it_ended();
}

static void a_client_that_leaves_is_forgotten(void **state)
{
    static const struct grpc_answer answer = {on_message, on_end};
    world.bytes = 1;
    struct grpc_request *request = grpc_ask(world.loop, world.path, "/test/Follow", "", 0, 0, &answer, NULL);
    while (LIST_EMPTY(&world.watchers))
        assert_true(sd_event_run(world.loop, TURN_USEC) > 0);
    grpc_give_up(request);
    while (!LIST_EMPTY(&world.watchers))
        assert_true(sd_event_run(world.loop, TURN_USEC) > 0);
    assert_false(world.has_ended);
}

static void a_call_that_does_not_go_together_is_caught(void **state)
{
    struct grpc_server server = {.connection_count = 1};
    struct grpc_connection connection = {.fd = 0, .server = &server};
    struct grpc_call *call = grpc_call_new(&connection, 1);
    assert_true(grpc_call_is_valid(call));
    assert_true(grpc_call_append(call, "message", 7));
    assert_false(grpc_connection_is_valid(&connection)); /* it has no session of nghttp2 */
    ASSERT_CAUGHT(grpc_connection_flush(&connection));
    size_t bytes = call->out_bytes;
    call->out_at = bytes + 1;
    assert_false(grpc_call_is_valid(call));
    ASSERT_CAUGHT(grpc_call_free(call));
    call->out_at = 0;
    call->in_bytes = 1;
    assert_false(grpc_call_is_valid(call));
    call->in_bytes = 0;
    grpc_call_free(call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_client_told_too_much_at_once_is_cut_off, begin, end),
        cmocka_unit_test_setup_teardown(a_client_that_does_not_read_is_cut_off, begin, end),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_is_forgotten, begin, end),
        cmocka_unit_test(a_call_that_does_not_go_together_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
