/* gpuslice.conf, the environment and the options, one over the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "scratch.h"

#define GIB (UINT64_C(1) << 30)

static struct config config;
static struct error error;

static int load(const char *text)
{
    put(CONFIG_FILE, text);
    memset(&error, 0, sizeof(error));
    return config_load(&config, folder, NULL, &error);
}

static const struct config_entry *entry_of(const char *section, const char *name)
{
    for (size_t i = 0; i < config.entry_count; i++)
        if (strcmp(config.entries[i].section, section) == 0 && strcmp(config.entries[i].key->name, name) == 0)
            return &config.entries[i];
    return NULL;
}

static void without_a_file_everything_is_by_default(void **state)
{
    assert_int_equal(config_load(&config, folder, NULL, &error), 0);
    assert_false(config.is_there);
    assert_int_equal(config.daemon.recovery_usec, 60000000);
    assert_int_equal(config.daemon.idle_exit_usec, 30000000);
    assert_int_equal(config.defaults.memory.bytes, 0);
    assert_int_equal(config.defaults.properties.compute.max, SHARE_WHOLE);
    assert_int_equal(config.defaults.properties.priority, PRIORITY_NORMAL);
    for (size_t i = 0; i < config.entry_count; i++)
        assert_int_equal(config.entries[i].origin, CONFIG_BY_DEFAULT);
    config_free(&config);
}

static void the_file_sets_values_and_ceilings(void **state)
{
    assert_int_equal(
        load("[daemon]\nrecovery-interval = 5s\nmetrics-debug = yes\n[defaults]\nmemory = 4GiB\n"
             "compute = 10%..50%\nttl = 2h\npriority = low\n[user:bob]\nmemory = 8GiB\nsessions = 0\n"
             "[group:lab]\ncompute = 50%\npriority = high\n"),
        0);
    assert_int_equal(config.daemon.recovery_usec, 5000000);
    assert_true(config.daemon.metrics_debug);
    assert_int_equal(config.defaults.memory.bytes, 4 * GIB);
    assert_int_equal(config.defaults.properties.compute.min, 1000);
    assert_int_equal(config.defaults.properties.ttl_seconds, 7200);
    assert_int_equal(config.defaults.properties.priority, PRIORITY_LOW);
    assert_int_equal(config.ceiling_count, 2);
    const struct config_ceiling *bob = &config.ceilings[0], *lab = &config.ceilings[1];
    assert_false(bob->is_group);
    assert_string_equal(bob->name, "bob");
    assert_int_equal(bob->memory_bytes, 8 * GIB);
    assert_int_equal(bob->sessions, 0);
    assert_int_equal(bob->properties.given, 0);
    assert_true(lab->is_group);
    assert_int_equal(lab->properties.compute.max, 5000);
    assert_int_equal(lab->properties.priority, PRIORITY_HIGH);
    assert_int_equal(entry_of("user:bob", "memory")->line, 10);
    assert_int_equal(entry_of("daemon", "recovery-interval")->origin, CONFIG_BY_FILE);
    assert_int_equal(entry_of("daemon", "recovery-interval")->line, 2);
    config_free(&config);
}

static void the_environment_wins_over_the_file_and_an_option_over_both(void **state)
{
    const struct config_option options[] = {{"--idle-exit", "7s"}, {NULL, NULL}};
    setenv("GPUSLICE_RECOVERY_INTERVAL", "9s", 1);
    setenv("GPUSLICE_DEFAULT_TTL", "", 1);
    put(CONFIG_FILE, "[daemon]\nrecovery-interval = 5s\nidle-exit = 1h\n[defaults]\nttl = 90s\n");
    assert_int_equal(config_load(&config, folder, options, &error), 0);
    assert_int_equal(config.daemon.recovery_usec, 9000000);
    assert_int_equal(config.daemon.idle_exit_usec, 7000000);
    assert_int_equal(config.defaults.properties.ttl_seconds, 90); /* an empty variable says nothing */
    assert_int_equal(entry_of("daemon", "recovery-interval")->origin, CONFIG_BY_ENVIRONMENT);
    assert_int_equal(entry_of("daemon", "idle-exit")->origin, CONFIG_BY_OPTION);
    assert_int_equal(entry_of("defaults", "ttl")->origin, CONFIG_BY_FILE);
    config_free(&config);
    unsetenv("GPUSLICE_DEFAULT_TTL");
}

static void a_wrong_variable_is_named(void **state)
{
    setenv("GPUSLICE_METRICS_DEBUG", "perhaps", 1);
    assert_int_equal(config_load(&config, folder, NULL, &error), -EINVAL);
    assert_string_equal(error.message, "GPUSLICE_METRICS_DEBUG: 'perhaps' is neither yes nor no");
}

static void a_token_that_is_required_must_be_given(void **state)
{
    assert_int_equal(load("[daemon]\nipc-token-required = yes\n"), -EINVAL);
    assert_non_null(strstr(error.message, "GPUSLICE_IPC_TOKEN is not"));
    setenv("GPUSLICE_IPC_TOKEN", "swordfish", 1);
    assert_int_equal(load("[daemon]\nipc-token-required = yes\n"), 0);
    assert_string_equal(config.daemon.ipc_token, "swordfish");
    json_t *values = config_json(&config);
    char *text = json_dumps(values, 0);
    assert_null(strstr(text, "swordfish"));
    free(text);
    json_decref(values);
    config_free(&config);
}

static void every_mistake_names_its_file_and_line(void **state)
{
    static const struct {
        const char *text, *said;
    } wrong[] = {
        {"[daemon]\nrecovery-interval = soon\n", ":2: recovery-interval: 'soon' is not a duration"},
        {"[daemon]\nidle-exit = 1s\nidle-exit = 2s\n", ":3: 'idle-exit' appears twice, first on line 2"},
        {"[daemon]\n\nnothing = 1\n",
         ":3: the key 'nothing' does not exist here; expected one of recovery-interval"},
        {"[defaults]\nmemory = 0\n", ":2: memory: size '0' is out of range"},
        {"[defaults]\nmemory = 16EiB\n", ":2: memory: '16EiB' is not a size"},
        {"[defaults]\nmemory = 99999999999999999999\n", ":2: memory: size"},
        {"[defaults]\ncompute = 60%..20%\n", ":2: compute: share '60%..20%' is upside down"},
        {"[defaults]\nttl = 500ms\n", ":2: ttl: '500ms' is not a whole number of seconds"},
        {"[defaults]\nmemory = 4096\n", ":2: memory: '4096' has no unit; did you mean 4096MiB or 4096B?"},
        {"[defaults]\nmemory = 10%..50%\n", ":2: memory: '10%..50%' is not a part of a GPU's memory"},
        {"[user:a]\nmemory = 50%\n", ":2: memory: '50%' is not a size"},
        {"[defaults]\nttl = 8\n", ":2: ttl: '8' has no unit; did you mean 8s or 8m?"},
        {"[daemon]\nhost-memory = 1B\n", ":2: host-memory: 1B of host memory is too little"},
        {"[defaults]\nhost-memory = 63MiB\n", ":2: host-memory: 63MiB of host memory is too little"},
        {"[user:ann]\nhost-memory = 63MiB\n", ":2: host-memory: 63MiB of host memory is too little"},
        {"[defaults]\npriority = urgent\n", ":2: priority: 'urgent' is not a priority"},
        {"[daemon]\n[daemon]\n", ":2: section [daemon] appears twice"},
        {"[user:a]\n[user:a]\n", ":2: section [user:a] appears twice, first on line 1"},
        {"[user:]\n", ":1: [user:] does not name a user"},
        {"[user:a]\ncompute = 10%..20%\n", ":2: compute: '10%..20%' is a range"},
        {"[user:a]\nsessions = -1\n", ":2: sessions: '-1' is not a number"},
        {"[users]\n", ":1: the section [users]"},
        {"memory = 1\n", ":1: 'memory' is not in a section"},
        {"[daemon]\nipc-token = secret\n", ":2: 'ipc-token' does not belong in a file"},
        {"[daemon]\nlog-file = here.log\n", ":2: log-file: 'here.log' is not an absolute path"},
        {"[daemon]\nmetrics-address = 9400\n", ":2: metrics-address: '9400' is not an address"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_true(load(wrong[i].text) < 0);
        assert_memory_equal(error.message, folder, strlen(folder));
        const char *behind = error.message + strlen(folder) + strlen("/" CONFIG_FILE);
        if (strncmp(behind, wrong[i].said, strlen(wrong[i].said)) != 0)
            fail_msg("'%s' said '%s'", wrong[i].text, error.message);
    }
}

static void a_file_that_others_can_write_is_refused(void **state)
{
    const char *path = put(CONFIG_FILE, "[daemon]\n");
    chmod(path, 0666);
    assert_int_equal(config_load(&config, folder, NULL, &error), -EPERM);
    assert_non_null(strstr(error.message, "chmod o-w"));
}

static void something_that_is_not_a_file_is_refused(void **state)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/" CONFIG_FILE, folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(config_load(&config, folder, NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "is not a plain file"));
    unlink(path);
    FILE *file = fopen(path, "w");
    fwrite("[daemon]\n\0x", 1, 11, file);
    fclose(file);
    assert_int_equal(config_load(&config, folder, NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "zero byte"));
    truncate(path, CONFIG_FILE_BYTES_MAX + 1);
    assert_int_equal(config_load(&config, folder, NULL, &error), -EFBIG);
}

static void what_takes_a_start_is_carried_over(void **state)
{
    struct config next;
    assert_int_equal(load("[daemon]\nrecovery-interval = 5s\n[defaults]\nmemory = 1GiB\n"), 0);
    struct config now = config;
    assert_int_equal(load("[daemon]\nrecovery-interval = 9s\nlog-file = /a\n[defaults]\nmemory = 2GiB\n"), 0);
    next = config;
    assert_int_equal(config_carry_over(&next, &now, &error), 0);
    assert_int_equal(next.daemon.recovery_usec, 5000000);
    assert_string_equal(next.daemon.log_file, "");
    assert_int_equal(next.defaults.memory.bytes, 2 * GIB);
    config = next;
    const struct config_entry *waiting = entry_of("daemon", "recovery-interval");
    assert_true(waiting->waits);
    assert_string_equal(waiting->value, "5s");
    assert_string_equal(waiting->next_value, "9s");
    assert_int_equal(waiting->line, 2);
    assert_string_equal(entry_of("daemon", "log-file")->next_value, "/a");
    assert_false(entry_of("defaults", "memory")->waits);
    config_free(&now);
    config_free(&next);
}

/* Seen by an AddressSanitizer: the configuration of now has more entries than the next one. */
static void a_ceiling_that_is_taken_out_is_not_carried_over(void **state)
{
    assert_int_equal(load("[daemon]\nrecovery-interval = 5s\n[user:bob]\nmemory = 1GiB\n"), 0);
    struct config now = config;
    assert_int_equal(load(""), 0);
    assert_true(config.entry_count < now.entry_count);
    assert_int_equal(config_carry_over(&config, &now, &error), 0);
    assert_int_equal(config.daemon.recovery_usec, 5000000);
    assert_int_equal(config.ceiling_count, 0);
    config_free(&now);
    config_free(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_file_everything_is_by_default, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_file_sets_values_and_ceilings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_environment_wins_over_the_file_and_an_option_over_both, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_wrong_variable_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_token_that_is_required_must_be_given, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_mistake_names_its_file_and_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_others_can_write_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(something_that_is_not_a_file_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_takes_a_start_is_carried_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_ceiling_that_is_taken_out_is_not_carried_over, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
