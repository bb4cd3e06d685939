/* The host's memory by NUMA nodes, as a folder that stands for /sys shows them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/host_nodes.h"
#include "fake_nodes.h"

#define KIB UINT64_C(1024)

static char sysfs[FAKE_NODES_PATH];

static int begin(void **state)
{
    return fake_nodes_begin(sysfs);
}

static int end(void **state)
{
    return fake_nodes_end(sysfs);
}

static void a_machine_without_nodes_has_home_memory_only(void **state)
{
    struct host_nodes nodes;
    uint64_t total, available;
    host_nodes_read(sysfs, &nodes);
    assert_false(nodes.has_others);
    assert_false(host_nodes_has(&nodes, 0));
    assert_true(host_memory_read(sysfs, &total, &available));
    assert_true(total > 0 && available > 0 && available <= total);
}

/* As Grace without CDMM shows a GPU: memory without CPUs. */
static void a_node_without_cpus_is_not_a_home(void **state)
{
    struct host_nodes nodes;
    uint64_t total, available;
    fake_nodes_list(sysfs, "has_memory", "0-2,70\n");
    fake_nodes_list(sysfs, "has_cpu", "0,3,70\n");
    fake_node(sysfs, 0, 4000, 1000, 300);
    fake_node(sysfs, 1, 900000000, 900000000, 0);
    fake_node(sysfs, 2, 900000000, 900000000, 0);
    fake_node(sysfs, 70, 2000, 20, 5);
    host_nodes_read(sysfs, &nodes);
    assert_true(nodes.has_others);
    const int homes[] = {0, 70}, others[] = {-1, 1, 2, 3, 69, 71, 1024};
    for (unsigned i = 0; i < 2; i++)
        assert_true(host_nodes_has(&nodes, homes[i]));
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(host_nodes_has(&nodes, others[i]));
    assert_int_equal(host_node_room(sysfs, 0), 1300 * KIB);
    assert_int_equal(host_node_room(sysfs, 5), 0);
    assert_true(host_memory_read(sysfs, &total, &available));
    assert_int_equal(total, 6000 * KIB);
    assert_int_equal(available, 1325 * KIB);
}

static void nodes_with_cpus_change_nothing(void **state)
{
    struct host_nodes nodes;
    uint64_t total, available, before, available_before;
    assert_true(host_memory_read(sysfs, &before, &available_before));
    fake_nodes_list(sysfs, "has_memory", "0-1\n");
    fake_nodes_list(sysfs, "has_cpu", "0-1\n");
    fake_node(sysfs, 0, 4000, 1000, 300);
    host_nodes_read(sysfs, &nodes);
    assert_false(nodes.has_others);
    assert_true(host_memory_read(sysfs, &total, &available));
    assert_int_equal(total, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_machine_without_nodes_has_home_memory_only, begin, end),
        cmocka_unit_test_setup_teardown(a_node_without_cpus_is_not_a_home, begin, end),
        cmocka_unit_test_setup_teardown(nodes_with_cpus_change_nothing, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
