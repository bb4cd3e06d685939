/* What of a process and its machine says that a device may have registered its memory: folders that stand for /proc/self and
 * /sys/module. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "intercept/memory/registrations.h"

#define LINE "7f0000000000-7f0000001000 r-xp 00000000 08:01 1 "

static char process[64], modules[64];

static void make_folder(const char *of, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", of, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* The file is mapped behind so many others. */
static void write_maps(const char *file, unsigned others)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/maps", process);
    FILE *maps = fopen(path, "w");
    assert_non_null(maps);
    for (unsigned i = 0; i < others; i++)
        fprintf(maps, LINE "/usr/lib/libother.so.%u\n", i);
    fprintf(maps, LINE "%s\n", file);
    assert_int_equal(fclose(maps), 0);
}

static int make_folders(void **state)
{
    (void)state;
    snprintf(process, sizeof(process), "/tmp/registrations-XXXXXX");
    snprintf(modules, sizeof(modules), "/tmp/registrations-XXXXXX");
    if (!mkdtemp(process) || !mkdtemp(modules))
        return -1;
    make_folder(process, "fd");
    return 0;
}

static int remove_folders(void **state)
{
    char command[160];
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s %s", process, modules);
    return system(command);
}

/* Most programs with NCCL map it, on machines without such a card too. */
static void libibverbs_counts_where_a_module_registers_memory_for_it(void **state)
{
    (void)state;
    write_maps("/usr/lib/libibverbs.so.1.14.48.0", 0);
    assert_false(registrations_are_possible(process, modules));
    make_folder(modules, "nvidia_peermem");
    for (unsigned others = 0; others < 300; others++) { /* wherever the reads of the list part it */
        write_maps("/usr/lib/libibverbs.so.1.14.48.0", others);
        assert_true(registrations_are_possible(process, modules));
    }
    write_maps("/usr/lib/libother.so", 300);
    assert_false(registrations_are_possible(process, modules));
}

static void the_module_of_before_counts_too(void **state)
{
    (void)state;
    write_maps("/opt/lib/libibverbs.so.1", 0);
    make_folder(modules, "nv_peer_mem");
    assert_true(registrations_are_possible(process, modules));
}

static void gdrcopys_device_counts_while_it_is_open(void **state)
{
    char path[128];
    (void)state;
    write_maps("/usr/lib/libgdrapi.so.2", 0);
    assert_false(registrations_are_possible(process, modules));
    snprintf(path, sizeof(path), "%s/fd/7", process);
    assert_int_equal(symlink("/dev/gdrdrv", path), 0);
    assert_true(registrations_are_possible(process, modules));
    unlink(path);
    assert_int_equal(symlink("/dev/gdrdrvs", path), 0);
    assert_false(registrations_are_possible(process, modules));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folders, remove_folders)
    const struct CMUnitTest tests[] = {
        TEST(libibverbs_counts_where_a_module_registers_memory_for_it),
        TEST(the_module_of_before_counts_too),
        TEST(gdrcopys_device_counts_while_it_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
