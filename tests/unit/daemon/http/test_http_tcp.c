/* What a Host header may be for requests over TCP. Sockets and tokens are tested with whole daemons. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/http/http_tcp.h"

static void this_machine_is_known_by_its_own_names_alone(void **state)
{
    static const char *const local[] = {"localhost",    "LocalHost:8080", "127.0.0.1",
                                        "127.8.9.10:1", "[::1]",          "[::1]:65535"};
    static const char *const foreign[] = {
        "",
        "example.org",
        "localhost.example.org",
        "127.0.0.1.example.org",
        "128.0.0.1",
        "127.1",
        "0x7f000001",
        "::1",
        "[::2]",
        "[::1",
        "localhost:",
        "localhost:http",
        "localhost:80:80",
        "localhost:123456",
        "localhost@example.org",
        " localhost",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        assert_true(http_tcp_is_local_host(local[i]));
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_false(http_tcp_is_local_host(foreign[i]));
    assert_false(http_tcp_is_local_host(NULL));
}

static void the_metrics_address_is_asked_for_by_no_other_sites_name(void **state)
{
    static const char *const own[] = {"127.0.0.1:9400",  "10.0.0.7",   "[fe80::1]:9400",
                                      "node7",           "node7:9400", "gpu.example.org:9400",
                                      "GPU.example.org", "localhost"};
    static const char *const foreign[] = {
        "",       ":9400", "evil.example",          "evil.example:9400",
        "[evil]", "[::1",  "10.0.0.7.evil.example", "gpu.example.org.evil.example",
        "node7.", "a b"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        assert_true(http_tcp_is_own_host(own[i], "gpu.example.org:9400"));
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_false(http_tcp_is_own_host(foreign[i], "gpu.example.org:9400"));
    assert_false(http_tcp_is_own_host("gpu.example.org", "127.0.0.1:9400"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machine_is_known_by_its_own_names_alone),
        cmocka_unit_test(the_metrics_address_is_asked_for_by_no_other_sites_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
