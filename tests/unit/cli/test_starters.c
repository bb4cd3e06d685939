#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "cli/starters.h"

#define WORDS(...)                                                                                           \
    (char *[])                                                                                               \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

static void assert_starter(char *const *command, const char *name)
{
    const struct starter *starter = starter_used(command);
    if (name)
        assert_string_equal(starter ? starter->name : "none", name);
    else
        assert_null(starter);
}

static void every_command_of_some_programs_starts_others(void **state)
{
    assert_starter(WORDS("tmux"), "tmux");
    assert_starter(WORDS("/usr/bin/tmux", "-L", "work", "new", "train"), "tmux");
    assert_starter(WORDS("ssh", "host", "train"), "ssh");
    assert_starter(WORDS("systemd-run", "--user", "train"), "systemd-run");
    assert_starter(WORDS("tmux", "ls"), NULL);
    assert_starter(WORDS("ssh", "-V"), NULL);
    assert_starter(WORDS("sbatch", "--help"), NULL);
}

static void of_others_only_some_verbs_do(void **state)
{
    assert_starter(WORDS("kubectl", "-n", "lab", "exec", "pod", "--", "train"), "kubectl");
    assert_starter(WORDS("kubectl", "get", "pods"), NULL);
    assert_starter(WORDS("podman", "images"), NULL);
    assert_starter(WORDS("podman", "start", "x"), "podman");
    assert_starter(WORDS("flatpak", "run", "app"), "flatpak");
    assert_starter(WORDS("crictl", "ps"), NULL);
}

static void a_container_behind_other_programs_is_what_counts(void **state)
{
    assert_starter(WORDS("sudo", "-E", "docker", "run", "image"), "docker");
    assert_starter(WORDS("env", "A=b", "podman", "run", "image"), "podman");
    assert_starter(WORDS("nohup", "sudo", "train"), "sudo");
    assert_starter(WORDS("sudo", "train"), "sudo");
    assert_starter(WORDS("env", "podman", "images"), NULL);
    assert_starter(WORDS("python", "ssh", "host"), NULL);
    assert_starter(WORDS("./batch"), NULL);
}

static void part_of_a_verb_is_no_verb(void **state)
{
    assert_starter(WORDS("podman", "ru"), NULL);
    assert_starter(WORDS("podman", "run create"), NULL);
    assert_starter(WORDS("podman", ""), NULL);
}

static void what_is_refused_comes_with_what_to_do(void **state)
{
    struct error error;
    assert_int_equal(starter_check(WORDS("srun", "train"), &error), -EINVAL);
    assert_non_null(strstr(error.message, "srun gpuslice run"));
    assert_int_equal(starter_check(WORDS("podman", "run", "image"), &error), -EINVAL);
    assert_non_null(strstr(error.message, "add --container"));
    assert_int_equal(starter_check(WORDS("python", "train.py"), &error), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_of_some_programs_starts_others),
        cmocka_unit_test(of_others_only_some_verbs_do),
        cmocka_unit_test(a_container_behind_other_programs_is_what_counts),
        cmocka_unit_test(part_of_a_verb_is_no_verb),
        cmocka_unit_test(what_is_refused_comes_with_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
