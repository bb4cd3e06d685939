#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verbs.h"

#define WORDS(...)                                                                                           \
    (char *[])                                                                                               \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

static int set_up(void **state)
{
    unsetenv("GPUSLICE_SIMULATED");
    return 0;
}

static void options_come_before_the_command_and_none_after(void **state)
{
    struct cli_arguments arguments;
    assert_int_equal(cli_parse(&verb_run,
                               WORDS("--memory", "4GiB", "--name=a", "python", "--name", "b", "--", "-x"),
                               &arguments, NULL),
                     0);
    assert_int_equal(arguments.wish.memory.every_bytes, 4ull << 30);
    assert_string_equal(arguments.wish.name, "a");
    assert_int_equal(arguments.operand_count, 5);
    assert_string_equal(arguments.operands[0], "python");
    assert_string_equal(arguments.operands[1], "--name");
    assert_string_equal(arguments.operands[3], "--");
    assert_string_equal(arguments.operands[4], "-x");
    assert_null(arguments.operands[5]);
}

static void two_dashes_end_the_options(void **state)
{
    struct cli_arguments arguments;
    assert_int_equal(
        cli_parse(&verb_run, WORDS("--simulated", "--", "--strange", "--help"), &arguments, NULL), 0);
    assert_true(arguments.simulated);
    assert_false(arguments.help);
    assert_int_equal(arguments.operand_count, 2);
    assert_string_equal(arguments.operands[0], "--strange");
}

static void options_may_stand_behind_sessions(void **state)
{
    struct cli_arguments arguments;
    assert_int_equal(cli_parse(&verb_set, WORDS("train", "--memory", "2GiB", "--json"), &arguments, NULL), 0);
    assert_int_equal(arguments.operand_count, 1);
    assert_string_equal(arguments.operands[0], "train");
    assert_int_equal(arguments.wish.memory.every_bytes, 2ull << 30);
    assert_true(arguments.json);

    assert_int_equal(cli_parse(&verb_release, WORDS("a", "b", "--simulated", "c"), &arguments, NULL), 0);
    assert_int_equal(arguments.operand_count, 3);
    assert_string_equal(arguments.operands[2], "c");
}

static void gpus_add_up(void **state)
{
    struct cli_arguments arguments;
    assert_int_equal(cli_parse(&verb_create,
                               WORDS("--gpu", "0", "--gpu=GPU-8f2d", "--memory=0=4GiB,gpu-8F2D=1GiB"),
                               &arguments, NULL),
                     0);
    assert_int_equal(arguments.wish.gpus.count, 2);
    assert_string_equal(arguments.wish.gpus.names[1], "GPU-8f2d");
    assert_int_equal(arguments.wish.memory.gpus.count, 2);
}

static void the_environment_says_simulated_unless_it_is_empty_or_0(void **state)
{
    static const struct {
        const char *value;
        bool simulated;
    } rows[] = {{"1", true}, {"yes", true}, {"0", false}, {"", false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cli_arguments arguments;
        setenv("GPUSLICE_SIMULATED", rows[i].value, 1);
        assert_int_equal(cli_parse(&verb_list, WORDS(NULL), &arguments, NULL), 0);
        assert_int_equal(arguments.simulated, rows[i].simulated);
    }
}

static void help_asks_for_nothing_else(void **state)
{
    struct cli_arguments arguments;
    assert_int_equal(cli_parse(&verb_run, WORDS("--help"), &arguments, NULL), 0);
    assert_true(arguments.help);
    assert_int_equal(cli_parse(&verb_show, WORDS("-h", "--nonsense"), &arguments, NULL), 0);
    assert_true(arguments.help);
}

static void wrong_words_are_refused(void **state)
{
    static struct {
        const struct cli_verb *verb;
        char *words[6];
        const char *message;
    } rows[] = {
        {&verb_run,
         {NULL},
         "'gpuslice run' needs a command; expected gpuslice run [--] COMMAND [ARGUMENT]..."},
        {&verb_run,
         {"--"},
         "'gpuslice run' needs a command; expected gpuslice run [--] COMMAND [ARGUMENT]..."},
        {&verb_run,
         {"--overcommit", "true"},
         "'gpuslice run' has no option '--overcommit'; expected one of --name --gpu --memory --compute "
         "--priority --ttl --ttl-action --oversubscribe --single-oversubscribe --when-full --host-memory "
         "--idle-suspend --wait-for-card --label --wait --session "
         "--container "
         "--without-driver --simulated --help"},
        {&verb_run,
         {"--oversubscribe=magic", "true"},
         "--oversubscribe: 'magic' is not an engine; expected none, swap or managed"},
        {&verb_create,
         {"--host-memory", "none"},
         "--host-memory: 'none' is not a size; write a number with a unit, like 4GiB or 512M"},
        {&verb_create,
         {"--host-memory", "0"},
         "--host-memory: size '0' is out of range; expected above 0 and below 8EiB"},
        {&verb_create,
         {"--idle-suspend", "1500ms"},
         "--idle-suspend: '1500ms' is not a whole number of seconds; expected a time like 90s or 2h"},
        {&verb_run,
         {"--compute", "0.25", "true"},
         "--compute: '0.25' is not a share; write a percentage, like 25% or 12.25%, or a range, like "
         "20%..60%"},
        {&verb_run,
         {"--compute=60%..20%", "true"},
         "--compute: share '60%..20%' is upside down; expected MIN%..MAX%, like 20%..60%"},
        {&verb_run,
         {"--priority", "urgent", "true"},
         "--priority: 'urgent' is not a priority; expected low, normal, high or critical"},
        {&verb_run,
         {"--ttl", "1500ms", "true"},
         "--ttl: '1500ms' is not a whole number of seconds; expected a time like 90s or 2h"},
        {&verb_run,
         {"--wait=soon", "true"},
         "--wait: 'soon' is not a duration; write a whole number with a unit, like 30s, 5m, 2h or 7d"},
        {&verb_run,
         {"--session", "x", "--compute", "25%", "true"},
         "--session names a session that exists, and --compute is for a new one; give one of the two; "
         "'gpuslice set' changes a session that exists"},
        {&verb_run, {"--wait", "5m", "true"}, "--wait takes its value with '=': --wait=5m"},
        {&verb_create, {"--wait", "5m"}, "--wait takes its value with '=': --wait=5m"},
        {&verb_run,
         {"--oversubscribe", "managed", "true"},
         "--oversubscribe takes its value with '=': --oversubscribe=managed"},
        {&verb_list, {"-simulated"}, "'gpuslice list' has no option '-simulated'; did you mean --simulated?"},
        {&verb_list, {"--jso"}, "'gpuslice list' has no option '--jso'; did you mean --json?"},
        {&verb_run, {"--mem=4GiB", "true"}, "'gpuslice run' has no option '--mem'; did you mean --memory?"},
        {&verb_run, {"--memroy", "4GiB"}, "'gpuslice run' has no option '--memroy'; did you mean --memory?"},
        {&verb_run, {"--memory"}, "--memory has no value; expected --memory SIZE"},
        {&verb_run, {"--name", "--memory", "1GiB", "true"}, "--name has no value; expected --name NAME"},
        {&verb_run,
         {"--memory", "0", "true"},
         "--memory: the limit '0' is 0; expected at least 1 byte, like 4GiB"},
        {&verb_run,
         {"--memory=", "true"},
         "--memory: '' is not a size; write a number with a unit, like 4GiB or 512M"},
        {&verb_run,
         {"--name", "a b", "true"},
         "--name: 'a b' is not a name for a session; expected 1 to 63 of A-Z a-z 0-9 . _ -"},
        {&verb_run, {"--simulated=1", "true"}, "--simulated has the value '1'; expected none"},
        {&verb_run,
         {"--session", "x", "--memory", "1GiB", "true"},
         "--session names a session that exists, and --memory is for a new one; give one of the two; "
         "'gpuslice set' changes a session that exists"},
        {&verb_create,
         {"--gpu", "0", "--memory", "1=4GiB"},
         "--memory gives GPU '1' a limit, but no --gpu names that GPU; write it the same way in both"},
        {&verb_create, {"--gpu", "0", "--gpu", "0"}, "--gpu: GPU '0' is named twice; name each GPU once"},
        {&verb_create, {"x"}, "give the name with --name: gpuslice create --name x"},
        {&verb_create, {"x", "y"}, "'x' is an unexpected word; expected gpuslice create"},
        {&verb_show, {NULL}, "'gpuslice show' needs a session; expected gpuslice show SESSION"},
        {&verb_show, {"a", "b"}, "'b' is an unexpected word; expected gpuslice show SESSION"},
        {&verb_show, {""}, "'' is not a session's ID or name; expected 1 to 63 of A-Z a-z 0-9 . _ -"},
        {&verb_release,
         {"a", "../b"},
         "'../b' is not a session's ID or name; expected 1 to 63 of A-Z a-z 0-9 . _ -"},
        {&verb_set,
         {"a"},
         "what to change is missing; expected --memory, --compute, --priority, --ttl, --ttl-action, "
         "--host-memory, "
         "--idle-suspend, --wait-for-card, --label or --name"},
        {&verb_completion, {"csh"}, "there is no completion for the shell 'csh'; expected bash, zsh or fish"},
        {&verb_help, {"fly"}, "'fly' is not a verb; 'gpuslice help' lists the verbs"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cli_arguments arguments;
        struct error error = {0};
        int result = cli_parse(rows[i].verb, rows[i].words, &arguments, &error);
        assert_true(result < 0 && result == -error.status);
        assert_string_equal(error.message, rows[i].message);
    }
}

/* What is said of a new session would be dropped for one that exists. */
static void no_option_of_a_new_session_goes_with_an_existing_one(void **state)
{
    static const char *const values[] = {
        [CLI_FLAG] = "",        [CLI_SESSION_NAME] = "=x", [CLI_GPU] = "=0",
        [CLI_MEMORY] = "=1GiB", [CLI_PROPERTY] = NULL,     [CLI_MAYBE_DURATION] = ""};
    static const char *const property_values[] = {
        [PROPERTY_KIND_SHARE] = "=25%",  [PROPERTY_KIND_WORD] = NULL,    [PROPERTY_KIND_FLAG] = "",
        [PROPERTY_KIND_SECONDS] = "=5m", [PROPERTY_KIND_SIZE] = "=1GiB", [PROPERTY_KIND_NAME] = "=x",
        [PROPERTY_KIND_LABELS] = "=a=b"};
    const size_t begin = offsetof(struct cli_arguments, wish), end = begin + sizeof(struct session_wish);
    for (const struct cli_option *option = cli_next_option(&verb_run, NULL); option;
         option = cli_next_option(&verb_run, option)) {
        char word[64], expected[128];
        struct cli_arguments arguments;
        struct error error = {0};
        if (option->offset < begin || option->offset >= end)
            continue;
        snprintf(word, sizeof(word), "--%s%s%s", option->name,
                 option->property && option->property->words ? "=" : "",
                 !option->property         ? values[option->kind]
                 : option->property->words ? option->property->words[1]
                                           : property_values[option->property->kind]);
        snprintf(expected, sizeof(expected),
                 "--session names a session that exists, and --%s is for a new one", option->name);
        assert_int_equal(cli_parse(&verb_run, WORDS("--session=s", word, "true"), &arguments, &error),
                         -EINVAL);
        assert_memory_equal(error.message, expected, strlen(expected));
    }
}

static void names_have_at_most_63_characters(void **state)
{
    struct cli_arguments arguments;
    char name[65];
    memset(name, 'n', sizeof(name));
    name[63] = '\0';
    assert_int_equal(cli_parse(&verb_create, WORDS("--name", name), &arguments, NULL), 0);
    name[63] = 'n';
    name[64] = '\0';
    assert_int_equal(cli_parse(&verb_create, WORDS("--name", name), &arguments, NULL), -EINVAL);
}

static void verbs_have_their_other_names(void **state)
{
    assert_ptr_equal(cli_verb_find("create"), &verb_create);
    assert_ptr_equal(cli_verb_find("ps"), &verb_list);
    assert_ptr_equal(cli_verb_find("list"), &verb_list);
    assert_null(cli_verb_find("fly"));
}

/* What keeps the rows usable by the parser, --help and completion alike. */
static void every_row_of_every_verb_is_whole(void **state)
{
    for (size_t i = 0; cli_verbs[i]; i++) {
        const struct cli_verb *verb = cli_verbs[i];
        bool help = false;
        assert_non_null(verb->act);
        assert_true(verb->summary[0] >= 'a' && verb->summary[0] <= 'z');
        assert_int_equal(verb->operands != NULL, verb->operands_max > 0);
        assert_ptr_equal(cli_verb_find(verb->name), verb);
        for (const struct cli_option *option = cli_next_option(verb, NULL); option;
             option = cli_next_option(verb, option)) {
            assert_true(option->offset < sizeof(struct cli_arguments));
            assert_int_equal(option->value == NULL,
                             option->kind == CLI_FLAG ||
                                 (option->property && option->property->kind == PROPERTY_KIND_FLAG));
            assert_true(strlen(option->help) > 0);
            help |= strcmp(option->name, "help") == 0;
        }
        assert_true(help);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_come_before_the_command_and_none_after),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(options_may_stand_behind_sessions),
        cmocka_unit_test(gpus_add_up),
        cmocka_unit_test_setup_teardown(the_environment_says_simulated_unless_it_is_empty_or_0, NULL, set_up),
        cmocka_unit_test(help_asks_for_nothing_else),
        cmocka_unit_test(wrong_words_are_refused),
        cmocka_unit_test(no_option_of_a_new_session_goes_with_an_existing_one),
        cmocka_unit_test(names_have_at_most_63_characters),
        cmocka_unit_test(verbs_have_their_other_names),
        cmocka_unit_test(every_row_of_every_verb_is_whole),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
