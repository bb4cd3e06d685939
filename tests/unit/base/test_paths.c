#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"

static char folder[64]; /* a fresh one for each test */

static int set_up(void **state)
{
    static const char *const variables[] = {"GPUSLICE_RUNTIME_DIR", "GPUSLICE_STATE_DIR",
                                            "XDG_RUNTIME_DIR",      "XDG_STATE_HOME",
                                            "XDG_CONFIG_HOME",      "GPUSLICE_CONFIG_DIR"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    strcpy(folder, "/tmp/test_paths.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static const char *inside(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void the_environment_names_both_folders(void **state)
{
    struct paths paths;
    setenv("GPUSLICE_RUNTIME_DIR", "/a/run", 1);
    setenv("GPUSLICE_STATE_DIR", "/a/state", 1);
    assert_int_equal(paths_find(&paths, PATHS_CLIENT, false, NULL), 0);
    assert_string_equal(paths.runtime_dir, "/a/run");
    assert_string_equal(paths.control_socket, "/a/run/control.sock");
    assert_string_equal(paths.attach_socket, "/a/run/attach.sock");
    assert_string_equal(paths.lock_file, "/a/run/lock");
    assert_string_equal(paths.ledgers_dir, "/a/run/ledgers");
    assert_string_equal(paths.state_file, "/a/state/state.db");
    assert_string_equal(paths.log_file, "/a/state/gpusliced.log");
    assert_false(paths.simulated);
    assert_false(paths.system);
}

static void simulated_runs_have_folders_of_their_own(void **state)
{
    struct paths paths;
    setenv("GPUSLICE_RUNTIME_DIR", "/a/run", 1);
    setenv("GPUSLICE_STATE_DIR", "/a/state", 1);
    assert_int_equal(paths_find(&paths, PATHS_USER_DAEMON, true, NULL), 0);
    assert_string_equal(paths.control_socket, "/a/run/simulated/control.sock");
    assert_string_equal(paths.state_file, "/a/state/simulated/state.db");
    assert_true(paths.simulated);
}

static void a_system_daemon_has_the_systems_folders(void **state)
{
    struct paths paths;
    assert_int_equal(paths_find(&paths, PATHS_SYSTEM_DAEMON, false, NULL), 0);
    assert_string_equal(paths.runtime_dir, "/run/gpuslice");
    assert_string_equal(paths.state_dir, "/var/lib/gpuslice");
    assert_true(paths.system);
}

static void a_users_daemon_uses_the_xdg_folders(void **state)
{
    struct paths paths;
    char expected[128];
    setenv("XDG_RUNTIME_DIR", folder, 1);
    setenv("XDG_STATE_HOME", "/x/state", 1);
    assert_int_equal(paths_find(&paths, PATHS_USER_DAEMON, false, NULL), 0);
    snprintf(expected, sizeof(expected), "%s/gpuslice", folder);
    assert_string_equal(paths.runtime_dir, expected);
    assert_string_equal(paths.state_dir, "/x/state/gpuslice");

    unsetenv("XDG_STATE_HOME");
    setenv("HOME", "/home/someone", 1);
    assert_int_equal(paths_find(&paths, PATHS_USER_DAEMON, false, NULL), 0);
    assert_string_equal(paths.state_dir, "/home/someone/.local/state/gpuslice");
}

static void an_xdg_folder_that_is_gone_is_not_used(void **state)
{
    struct paths paths;
    char expected[128];
    setenv("XDG_RUNTIME_DIR", inside("gone"), 1);
    assert_int_equal(paths_find(&paths, PATHS_USER_DAEMON, false, NULL), 0);
    snprintf(expected, sizeof(expected), "/tmp/gpuslice-%u", (unsigned)geteuid());
    assert_string_equal(paths.runtime_dir, expected);
}

static void relative_folders_are_refused(void **state)
{
    struct paths paths = {.runtime_dir = "untouched"};
    struct error error = {0};
    setenv("GPUSLICE_RUNTIME_DIR", "here", 1);
    assert_int_equal(paths_find(&paths, PATHS_CLIENT, false, &error), -EINVAL);
    assert_string_equal(
        error.message,
        "GPUSLICE_RUNTIME_DIR is 'here'; expected an absolute path; set it to such a path or unset it");
    assert_string_equal(paths.runtime_dir, "untouched");
}

static void a_socket_path_may_have_107_bytes(void **state)
{
    struct paths paths;
    struct error error = {0};
    char runtime[128];
    size_t fits = 107 - strlen("/control.sock");
    memset(runtime, 'x', sizeof(runtime));
    runtime[0] = '/';
    runtime[fits] = '\0';
    setenv("GPUSLICE_RUNTIME_DIR", runtime, 1);
    assert_int_equal(paths_find(&paths, PATHS_CLIENT, false, NULL), 0);
    assert_int_equal(strlen(paths.control_socket), 107);

    runtime[fits] = 'x';
    runtime[fits + 1] = '\0';
    setenv("GPUSLICE_RUNTIME_DIR", runtime, 1);
    assert_int_equal(paths_find(&paths, PATHS_CLIENT, false, &error), -ENAMETOOLONG);
    assert_non_null(
        strstr(error.message, "expected at most 107 bytes; set GPUSLICE_RUNTIME_DIR to a shorter path"));
}

/* Fill `paths` for folders below the test's own. */
static void find_below(struct paths *paths, bool simulated)
{
    setenv("GPUSLICE_RUNTIME_DIR", inside("deep/run"), 1);
    setenv("GPUSLICE_STATE_DIR", inside("deep/state"), 1);
    assert_int_equal(paths_find(paths, PATHS_USER_DAEMON, simulated, NULL), 0);
}

static unsigned mode_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_mode & 07777;
}

static void folders_are_created_private_and_again_is_fine(void **state)
{
    struct paths paths;
    find_below(&paths, true);
    assert_int_equal(paths_create(&paths, NULL), 0);
    assert_int_equal(mode_of(paths.runtime_dir), 0700);
    assert_int_equal(mode_of(paths.ledgers_dir), 0700);
    assert_int_equal(mode_of(paths.state_dir), 0700);
    assert_int_equal(paths_create(&paths, NULL), 0);
}

static void a_folder_that_others_can_write_is_refused(void **state)
{
    struct paths paths;
    struct error error = {0};
    find_below(&paths, false);
    assert_int_equal(paths_create(&paths, NULL), 0);
    assert_int_equal(chmod(paths.runtime_dir, 0777), 0);
    assert_int_equal(paths_create(&paths, &error), -EPERM);
    assert_non_null(strstr(error.message, "can be written by others (mode 0777)"));
}

static void a_folder_of_someone_else_is_refused(void **state)
{
    struct paths paths;
    struct error error = {0};
    if (geteuid() != 0)
        skip(); /* only root can give a folder away */
    find_below(&paths, false);
    assert_int_equal(paths_create(&paths, NULL), 0);
    assert_int_equal(chown(paths.state_dir, 12345, (gid_t)-1), 0);
    assert_int_equal(paths_create(&paths, &error), -EPERM);
    assert_non_null(strstr(error.message, "belongs to user 12345; expected user 0"));
}

static void a_file_in_place_of_a_folder_is_refused(void **state)
{
    struct paths paths;
    find_below(&paths, false);
    FILE *file = fopen(inside("deep"), "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(paths_create(&paths, NULL), -ENOTDIR);
}

static void a_link_in_the_tmp_fallback_is_refused(void **state)
{
    struct paths paths;
    struct error error = {0};
    find_below(&paths, false);
    /* Below the fallback's own folder: the test must not put a link in place of a living user's. */
    snprintf(paths.runtime_dir, sizeof(paths.runtime_dir), "/tmp/gpuslice-%u/test-%d", (unsigned)geteuid(),
             (int)getpid());
    char parent[PATH_MAX];
    snprintf(parent, sizeof(parent), "/tmp/gpuslice-%u", (unsigned)geteuid());
    bool made = mkdir(parent, 0700) == 0;
    assert_int_equal(symlink(folder, paths.runtime_dir), 0);
    int result = paths_create(&paths, &error);
    unlink(paths.runtime_dir);
    if (made)
        rmdir(parent);
    assert_int_equal(result, -ENOTDIR);
    assert_non_null(strstr(error.message, "is not a folder"));
}

static void missing_files_of_the_product_are_named(void **state)
{
    char path[PATH_MAX] = "untouched";
    struct error error = {0};
    assert_int_equal(paths_program("no-such-program", path, &error), -ENOENT);
    assert_non_null(strstr(error.message, "/no-such-program is missing"));
    assert_int_equal(paths_library("no-such.so", path, &error), -ENOENT);
    assert_non_null(strstr(error.message, "/lib/gpuslice/no-such.so is missing"));
    assert_string_equal(path, "untouched");
}

static void programs_are_found_beside_this_one(void **state)
{
    char path[PATH_MAX], self[PATH_MAX] = "";
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    assert_int_equal(paths_program(strrchr(self, '/') + 1, path, NULL), 0);
    assert_string_equal(path, self);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(the_environment_names_both_folders),        ROW(simulated_runs_have_folders_of_their_own),
        ROW(a_system_daemon_has_the_systems_folders),   ROW(a_users_daemon_uses_the_xdg_folders),
        ROW(an_xdg_folder_that_is_gone_is_not_used),    ROW(relative_folders_are_refused),
        ROW(a_socket_path_may_have_107_bytes),          ROW(folders_are_created_private_and_again_is_fine),
        ROW(a_folder_that_others_can_write_is_refused), ROW(a_folder_of_someone_else_is_refused),
        ROW(a_file_in_place_of_a_folder_is_refused),    ROW(a_link_in_the_tmp_fallback_is_refused),
        ROW(missing_files_of_the_product_are_named),    ROW(programs_are_found_beside_this_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
