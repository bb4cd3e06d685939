/* sessions.conf, in sections and as Gemini's resource-config.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "scratch.h"

static struct config_sessions declared;
static struct error error;

static int load(const char *text)
{
    put(CONFIG_SESSIONS_FILE, text);
    memset(&error, 0, sizeof(error));
    return config_sessions_load(&declared, folder, &error);
}

static void sections_declare_sessions(void **state)
{
    assert_int_equal(load("[train]\nowner = 1234\ngpus = 0, GPU-8f ,1:2\nmemory = 4GiB\ncompute = 20%..60%\n"
                          "priority = high\n\n[plain]\n"),
                     0);
    assert_int_equal(declared.count, 2);
    const struct config_session *train = &declared.sessions[0], *plain = &declared.sessions[1];
    assert_string_equal(train->name, "train");
    assert_int_equal(train->line, 1);
    assert_int_equal(train->owner, 1234);
    assert_string_equal(train->gpus, "0,GPU-8f,1:2");
    assert_int_equal(train->memory.bytes, UINT64_C(4) << 30);
    assert_int_equal(train->properties.compute.max, 6000);
    assert_int_equal(train->properties.priority, PRIORITY_HIGH);
    assert_false(train->memory_is_cap);
    assert_int_equal(plain->line, 8);
    assert_int_equal(plain->owner, geteuid());
    assert_null(plain->gpus);
    assert_int_equal(plain->memory.bytes, 0);
    assert_int_equal(plain->properties.compute.max, 0);
    assert_int_equal(plain->properties.given, 0);
    config_sessions_free(&declared);
}

static void owners_are_named_or_numbered(void **state)
{
    assert_int_equal(load("[a]\nowner = root\n[b]\nowner = 0\n"), 0);
    assert_int_equal(declared.sessions[0].owner, 0);
    assert_int_equal(declared.sessions[1].owner, 0);
    config_sessions_free(&declared);
}

static bool runs_another;

static bool runs_executable(const struct config_program *program)
{
    return !runs_another;
}

static bool is_for(const struct config_session *session, uid_t uid, gid_t group, const char *executable)
{
    static struct config_program program;
    program = (struct config_program){.uid = uid, .groups = {1, group}, .group_count = 2};
    strcpy(program.executable, executable);
    program.runs_executable = runs_executable;
    return config_match_is(&session->match, &program);
}

static void rules_say_which_programs_a_session_is_for(void **state)
{
    assert_int_equal(load("[none]\n[user]\nmatch = user:7\n[either]\nmatch = user:7, user:root, group:9\n"
                          "[path]\nmatch=exe:/opt/*/bin/pyth?n,exe:/usr/bin/[xy]\n"
                          "[all]\nmatch = exe:/bin/a , user:7, group:9, exe:/bin/b\n"),
                     0);
    const struct config_session *none = &declared.sessions[0], *user = none + 1, *either = none + 2,
                                *path = none + 3, *all = none + 4;
    assert_false(is_for(none, 0, 0, ""));
    assert_true(is_for(user, 7, 0, ""));
    assert_false(is_for(user, 8, 7, ""));
    assert_true(is_for(either, 7, 9, "/x"));
    assert_true(is_for(either, 0, 9, "/x"));
    assert_false(is_for(either, 7, 8, "/x"));
    assert_false(is_for(either, 8, 9, "/x"));
    assert_true(is_for(path, 8, 8, "/opt/conda/bin/python"));
    assert_false(is_for(path, 8, 8, "/opt/conda/envs/bin/python"));
    assert_true(is_for(path, 8, 8, "/usr/bin/y"));
    assert_false(is_for(path, 8, 8, ""));
    assert_true(is_for(all, 7, 9, "/bin/b"));
    assert_false(is_for(all, 7, 9, "/bin/c"));
    assert_false(is_for(all, 7, 8, "/bin/a"));
    runs_another = true;
    assert_false(is_for(path, 8, 8, "/usr/bin/y"));
    assert_true(is_for(user, 7, 0, "/usr/bin/y"));
    runs_another = false;
    config_sessions_free(&declared);
}

static void geminis_lines_declare_sessions(void **state)
{
    assert_int_equal(load("2\nclient1 0.5 1.0 4294967296\nspace/pod 0 0.25 1024\n\n"), 0);
    assert_int_equal(declared.count, 2);
    assert_string_equal(declared.sessions[0].name, "client1");
    assert_int_equal(declared.sessions[0].properties.compute.min, 5000);
    assert_int_equal(declared.sessions[0].properties.compute.max, 10000);
    assert_int_equal(declared.sessions[0].memory.bytes, UINT64_C(4294967296));
    assert_true(declared.sessions[0].memory_is_cap);
    assert_string_equal(declared.sessions[1].name, "space.pod");
    assert_int_equal(declared.sessions[1].properties.compute.min, 0);
    assert_int_equal(declared.sessions[1].properties.compute.max, 2500);
    assert_int_equal(declared.sessions[1].line, 3);
    config_sessions_free(&declared);
}

static void every_mistake_names_its_file_and_line(void **state)
{
    static const struct {
        const char *text, *said;
    } wrong[] = {
        {"[a b]\n", ":1: 'a b' is not a session's name"},
        {"[..]\n[a]\nmemory = lots\n", ":3: memory: 'lots' is not a size"},
        {"[a]\nmemory = 1B\nmemory = 2B\n", ":3: 'memory' appears twice, first on line 2"},
        {"[a]\nmemory = 1B\n[b]\n[a]\n", ":4: 'a' appears twice, first on line 1"},
        {"[a]\nttl = 1h\n", ":2: the key 'ttl' does not exist here; expected one of owner, gpus"},
        {"[a]\nowner = nobody-of-this-name\n", ":2: owner: there is no user 'nobody-of-this-name'"},
        {"[a]\ngpus = 0,,1\n", ":2: gpus: '0,,1' is not a list"},
        {"[a]\ngpus = 0 1\n", ":2: gpus: '0 1' is not a list"},
        {"memory = 1\n", ":1: 'memory' is not in a section"},
        {"1\nclient1 0.5 0.4 1024\n", ":2: expected REQUEST up to LIMIT"},
        {"1\nclient1 0 0 1024\n", ":2: expected REQUEST up to LIMIT, and LIMIT and GPU_MEM above 0"},
        {"[a]\nmatch = user:7, user:no-such-user\n", ":2: match: there is no user 'no-such-user'"},
        {"[a]\nmatch = user:7,, user:8\n", ":2: match: "},
        {"[a]\nmatch = user:7\nmatch = user:8\n", ":3: 'match' appears twice"},
        {"[a]\nmatch = exe:python\n", ":2: match: 'exe:python' is not a rule"},
        {"1\nclient1 0.5 1.5 1024\n", ":2: the line is not ID REQUEST LIMIT GPU_MEM"},
        {"1\nclient1 0.5 1. 1024\n", ":2: the line is not ID"},
        {"1\nclient1 0.5 1 1GiB\n", ":2: the line is not ID"},
        {"1\nclient1 0.5 1\n", ":2: the line is not ID"},
        {"1\nclient1 0.5 1 2 3\n", ":2: the line is not ID"},
        {"1\na 0.5 1 2\nb 0.5 1 2\n", ": the first number says 1 sessions, but 2 follow"},
        {"3\na 0.5 1 2\n", ": the first number says 3 sessions, but 1 follow"},
        {"2\na 0.5 1 2\na 0.5 1 2\n", ":3: 'a' appears twice, first on line 2"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_true(load(wrong[i].text) < 0);
        assert_int_equal(declared.count, 0);
        const char *behind = error.message + strlen(folder) + strlen("/" CONFIG_SESSIONS_FILE);
        if (*wrong[i].said == ':' && wrong[i].said[1] == ' ') /* about all of it: with the last line */
            behind = strchr(behind + 1, ':');
        if (strncmp(behind, wrong[i].said, strlen(wrong[i].said)) != 0)
            fail_msg("'%s' said '%s'", wrong[i].text, error.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sections_declare_sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(owners_are_named_or_numbered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rules_say_which_programs_a_session_is_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(geminis_lines_declare_sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_mistake_names_its_file_and_line, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
