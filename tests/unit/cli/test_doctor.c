/* What gpuslice doctor says of a machine, from a folder that stands for its root and a daemon's answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"

#define UNIFIED "{\"index\": 0, \"traits\": [{\"trait\": \"unified\", \"text\": \"it shares\"}]}"

static char root[64];

static void put(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/dev", root);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/dev/%s", root, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
}

static struct doctor_finding look(const char *gpus)
{
    struct doctor doctor = {.root = root, .gpus = gpus ? json_loads(gpus, 0, NULL) : NULL};
    struct doctor_finding finding = {0};
    doctor_kind(&doctor, &finding);
    json_decref(doctor.gpus);
    return finding;
}

static void a_machines_kind_is_told(void **state)
{
    assert_int_equal(look("[{\"index\": 0, \"traits\": []}]").level, DOCTOR_OK);
    assert_string_equal(look(NULL).what, "not known without a daemon");
    struct doctor_finding finding = look("[" UNIFIED ", {\"index\": 1, \"traits\": []}]");
    assert_int_equal(finding.level, DOCTOR_WARNING);
    assert_string_equal(finding.what, "GPU 0 is unified: it shares");
    assert_string_equal(look("[" UNIFIED ", " UNIFIED "]").what, "GPU 0 is unified: it shares");
}

static void wsl2_is_told_with_and_without_a_daemon(void **state)
{
    put("dxg");
    assert_string_equal(look(NULL).what, "this is WSL2");
    assert_string_equal(look("[" UNIFIED "]").what, "this is WSL2; GPU 0 is unified: it shares");
    assert_int_equal(look("[]").level, DOCTOR_WARNING);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", root, folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/%s/%s", root, folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct doctor_finding look_at_rules(void)
{
    struct doctor doctor = {.root = root};
    struct doctor_finding finding = {0};
    snprintf(doctor.paths.config_dir, sizeof(doctor.paths.config_dir), "%s/config", root);
    doctor_rules(&doctor, &finding);
    return finding;
}

static void rules_that_reach_no_program_are_named(void **state)
{
    assert_int_equal(look_at_rules().level, DOCTOR_OK);
    write_file("config", "sessions.conf", "[all]\nmemory = 1GiB\nmatch = exe:/usr/bin/python3\n");
    assert_int_equal(look_at_rules().level, DOCTOR_WARNING);
    assert_non_null(strstr(look_at_rules().what, "[all] in sessions.conf names programs by 'match'"));
    write_file("etc", "ld.so.preload", "/usr/lib/gpuslice/libgpuslice.so\n");
    assert_int_equal(look_at_rules().level, DOCTOR_OK);
    write_file("config", "sessions.conf", "");
    assert_int_equal(look_at_rules().level, DOCTOR_WARNING);
    assert_non_null(strstr(look_at_rules().what, "no section of sessions.conf has 'match'"));
    write_file("config", "sessions.conf", "[all]\nmemry = 1GiB\n");
    assert_int_equal(look_at_rules().level, DOCTOR_PROBLEM);
}

static int begin(void **state)
{
    strcpy(root, "/tmp/gpuslice-doctor-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_machines_kind_is_told, begin, end),
        cmocka_unit_test_setup_teardown(rules_that_reach_no_program_are_named, begin, end),
        cmocka_unit_test_setup_teardown(wsl2_is_told_with_and_without_a_daemon, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
