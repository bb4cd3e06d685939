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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(this_machine_is_known_by_its_own_names_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
