#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pci.h"

#define CARD "0000:3b:00.0"

static char sysfs[64];

static void make_folder(const char *below)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", sysfs, below);
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
        *at = '/';
    }
    assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
}

static void write_node(const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/devices/pci0000:3a/0000:3a:01.0/" CARD "/numa_node", sysfs);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_sysfs(void **state)
{
    char path[PATH_MAX];
    strcpy(sysfs, "/tmp/test-pci-XXXXXX");
    if (!mkdtemp(sysfs))
        return -1;
    make_folder("devices/pci0000:3a/0000:3a:01.0/" CARD);
    make_folder("bus/pci/devices");
    snprintf(path, sizeof(path), "%s/bus/pci/devices/" CARD, sysfs);
    return symlink("../../../devices/pci0000:3a/0000:3a:01.0/" CARD, path);
}

static int remove_sysfs(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", sysfs);
    return system(command);
}

static void a_card_is_found_on_its_root_and_node(void **state)
{
    char root[PCI_ROOT_TEXT];
    write_node("1\n");
    assert_int_equal(pci_numa_node(sysfs, CARD), 1);
    assert_true(pci_root(sysfs, CARD, root));
    assert_string_equal(root, "pci0000:3a");
}

static void what_sysfs_does_not_say_is_not_known(void **state)
{
    char root[PCI_ROOT_TEXT];
    write_node("-1\n"); /* a machine with one node */
    assert_int_equal(pci_numa_node(sysfs, CARD), -1);
    write_node("");
    assert_int_equal(pci_numa_node(sysfs, CARD), -1);
    assert_int_equal(pci_numa_node(sysfs, "0000:99:00.0"), -1);
    assert_false(pci_root(sysfs, "0000:99:00.0", root));
    assert_int_equal(pci_numa_node(sysfs, ""), -1);
    assert_false(pci_root(sysfs, "", root));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_is_found_on_its_root_and_node),
        cmocka_unit_test(what_sysfs_does_not_say_is_not_known),
    };
    return cmocka_run_group_tests(tests, make_sysfs, remove_sysfs);
}
