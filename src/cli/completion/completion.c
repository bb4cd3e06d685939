/* gpuslice completion: the scripts for bash, zsh and fish. The templates beside this file hold what does not depend
 * on the verbs; verbs and options come from the tables. */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/verbs.h"

extern const char completion_bash[], completion_zsh[], completion_fish[]; /* made from *.in */

/* The name of each kind in the scripts. */
static const char *kind_name(enum cli_kind kind)
{
    switch (kind) {
    case CLI_SESSION:
        return "session";
    case CLI_GPU:
        return "gpu";
    case CLI_COMMAND:
        return "command";
    case CLI_USAGE_BY:
        return "by";
    case CLI_FORM:
        return "form";
    case CLI_SORT:
        return "sort";
    case CLI_ANTI_THRASH:
        return "switch";
    case CLI_QUANTUM:
        return "quantum";
    case CLI_SHELL:
        return "shell";
    case CLI_VERB:
        return "verb";
    case CLI_CONFIG:
        return "check";
    case CLI_FOLDER:
        return "folder";
    default:
        return "text";
    }
}

/* Print `text` inside a single-quoted word, up to its first ';', as the rest is for --help. The characters in
 * `inner` mean something within the word and get a backslash. */
static void print_quoted(const char *text, const char *quote, const char *inner)
{
    for (; *text && *text != ';'; text++) {
        if (*text == '\'')
            fputs(quote, stdout);
        else if (strchr(inner, *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void print_verb_names(const struct cli_verb *verb, const char *between)
{
    fputs(verb->name, stdout);
    for (size_t i = 0; verb->aliases[i]; i++)
        printf("%s%s", between, verb->aliases[i]);
}

static void print_all_verb_names(void)
{
    for (size_t i = 0; cli_verbs[i]; i++) {
        if (i)
            putchar(' ');
        print_verb_names(cli_verbs[i], " ");
    }
}

static bool has_words(const struct cli_option *option)
{
    return option->property && option->property->words && cli_option_takes_word(option);
}

static void print_words(const struct property *property)
{
    const char *const *first = property->words[0] ? property->words : property->words + 1;
    for (const char *const *word = first; *word; word++)
        printf("%s%s", word == first ? "" : " ", *word);
}

/* The words of each property that has some. */
static void print_bash_words(void)
{
    for (size_t i = 0; i < PROPERTY_COUNT; i++) {
        if (!session_properties[i].words)
            continue;
        printf("    %s) echo ", session_properties[i].name);
        print_words(&session_properties[i]);
        puts(" ;;");
    }
}

static void print_for_each_verb(void (*print)(const struct cli_verb *verb))
{
    for (size_t i = 0; cli_verbs[i]; i++)
        print(cli_verbs[i]);
}

/* --- bash ------------------------------------------------------------------------------------------ */

static void print_bash_verb(const struct cli_verb *verb)
{
    fputs("    ", stdout);
    print_verb_names(verb, "|");
    fputs(")\n        options='", stdout);
    for (const struct cli_option *option = cli_next_option(verb, NULL); option;
         option = cli_next_option(verb, option))
        printf("%s--%s", option == cli_next_option(verb, NULL) ? "" : " ", option->name);
    printf("' operand=%s\n        case $1 in\n", verb->operands ? kind_name(verb->operand_kind) : "none");
    for (const struct cli_option *option = cli_next_option(verb, NULL); option;
         option = cli_next_option(verb, option)) {
        char letter[8] = "";
        if (option->letter)
            snprintf(letter, sizeof(letter), "|-%c", option->letter);
        if (cli_option_takes_word(option))
            printf("        --%s%s) value=%s ;;\n", option->name, letter,
                   has_words(option) ? option->name : kind_name(option->kind));
    }
    puts("        esac\n        ;;");
}

static void print_bash_tables(void)
{
    print_for_each_verb(print_bash_verb);
}

/* --- zsh ------------------------------------------------------------------------------------------- */

static const char *zsh_action(enum cli_kind kind)
{
    switch (kind) {
    case CLI_SESSION:
        return "_gpuslice_sessions";
    case CLI_GPU:
        return "_gpuslice_gpus";
    case CLI_USAGE_BY:
        return "(session user gpu)";
    case CLI_FORM:
        return "(table wide json name)";
    case CLI_SORT:
        return "(session owner status used time processes created)";
    case CLI_ANTI_THRASH:
        return "(on off auto)";
    case CLI_QUANTUM:
        return "(auto)";
    case CLI_SHELL:
        return "(bash zsh fish)";
    case CLI_VERB:
        return "_gpuslice_verbs";
    case CLI_FOLDER:
        return "_files -/";
    default:
        return " ";
    }
}

/* What comes behind an option's name: its help and its value. */
static void print_zsh_option(const struct cli_option *option)
{
    putchar('[');
    print_quoted(option->help, "'\\''", "[]:");
    putchar(']');
    if (option->value && has_words(option)) {
        printf(":%s:(", option->value);
        print_words(option->property);
        putchar(')');
    } else if (option->value) {
        printf("%s%s:%s", cli_option_takes_word(option) ? ":" : "::", option->value,
               zsh_action(option->kind));
    }
    putchar('\'');
}

static void print_zsh_verb(const struct cli_verb *verb)
{
    fputs("    ", stdout);
    print_verb_names(verb, "|");
    fputs(")\n        _arguments -S", stdout);
    for (const struct cli_option *option = cli_next_option(verb, NULL); option;
         option = cli_next_option(verb, option)) {
        printf(" \\\n            '%s--%s%s", option->kind == CLI_GPU ? "*" : "", option->name,
               cli_option_takes_word(option) ? "="
               : option->value               ? "=-"
                                             : "");
        print_zsh_option(option);
        if (!option->letter)
            continue;
        printf(" \\\n            '-%c", option->letter);
        print_zsh_option(option);
    }
    if (verb->operand_kind == CLI_COMMAND)
        fputs(" \\\n            '*::command:_normal'", stdout);
    else if (verb->operand_kind == CLI_CONFIG)
        fputs(" \\\n            '1:check:(check)' \\\n            '2:file:_files'", stdout);
    else if (verb->operands)
        printf(" \\\n            '%s:%s:%s'", verb->operands_max > 1 ? "*" : "1",
               kind_name(verb->operand_kind), zsh_action(verb->operand_kind));
    puts("\n        ;;");
}

static void print_zsh_summary(const struct cli_verb *verb)
{
    printf("        '%s:", verb->name);
    print_quoted(verb->summary, "'\\''", ":");
    puts("'");
}

static void print_zsh_summaries(void)
{
    print_for_each_verb(print_zsh_summary);
}

static void print_zsh_arguments(void)
{
    print_for_each_verb(print_zsh_verb);
}

/* --- fish ------------------------------------------------------------------------------------------ */

/* What fish runs to find values of a kind; NULL for none. */
static const char *fish_values(enum cli_kind kind)
{
    switch (kind) {
    case CLI_SESSION:
        return "(__gpuslice_sessions)";
    case CLI_GPU:
        return "(__gpuslice_gpus)";
    case CLI_USAGE_BY:
        return "session user gpu";
    case CLI_FORM:
        return "table wide json name";
    case CLI_SORT:
        return "session owner status used time processes created";
    case CLI_ANTI_THRASH:
        return "on off auto";
    case CLI_QUANTUM:
        return "auto";
    case CLI_SHELL:
        return "bash zsh fish";
    case CLI_CONFIG:
        return "check";
    case CLI_VERB:
        return "(__gpuslice_verbs)";
    case CLI_FOLDER:
        return "(__fish_complete_directories)";
    default:
        return NULL;
    }
}

static void print_fish_condition(const struct cli_verb *verb)
{
    fputs("complete -c gpuslice -n '__fish_seen_subcommand_from ", stdout);
    print_verb_names(verb, " ");
    putchar('\'');
}

/* The other program's command line begins after two words, not counting options and their values. fish drops option
 * names until the first word that is not an option, so the "-" comes first. */
static void print_fish_command(const struct cli_verb *verb)
{
    fputs(" -a '(__fish_complete_subcommand --fcs-skip=2 -", stdout);
    for (const struct cli_option *option = cli_next_option(verb, NULL); option;
         option = cli_next_option(verb, option))
        if (cli_option_takes_word(option) && option->letter)
            printf(" --%s -%c", option->name, option->letter);
        else if (cli_option_takes_word(option))
            printf(" --%s", option->name);
    puts(")'");
}

static void print_fish_verb(const struct cli_verb *verb)
{
    printf("complete -c gpuslice -n __fish_use_subcommand -a %s -d '", verb->name);
    print_quoted(verb->summary, "\\'", "\\");
    puts("'");
    for (const struct cli_option *option = cli_next_option(verb, NULL); option;
         option = cli_next_option(verb, option)) {
        print_fish_condition(verb);
        if (option->letter)
            printf(" -s %c", option->letter);
        printf(" -l %s%s", option->name, cli_option_takes_word(option) ? " -x" : "");
        if (has_words(option)) {
            fputs(" -a '", stdout);
            print_words(option->property);
            putchar('\'');
        } else if (fish_values(option->kind)) {
            printf(" -a '%s'", fish_values(option->kind));
        }
        fputs(" -d '", stdout);
        print_quoted(option->help, "\\'", "\\");
        puts("'");
    }
    if (verb->operand_kind == CLI_COMMAND) {
        print_fish_condition(verb);
        print_fish_command(verb);
    } else if (fish_values(verb->operand_kind)) {
        print_fish_condition(verb);
        printf(" -a '%s'\n", fish_values(verb->operand_kind));
    }
}

static void print_fish_completions(void)
{
    print_for_each_verb(print_fish_verb);
}

/* --- The templates --------------------------------------------------------------------------------- */

/* What replaces `@NAME@` in a template. With `is_lines` both the marker and what is printed are whole lines. */
static const struct filling {
    const char *name;
    void (*print)(void);
    bool is_lines;
} fillings[] = {
    {"verb names", print_all_verb_names, false},   {"property words", print_bash_words, true},
    {"verb tables", print_bash_tables, true},      {"verb summaries", print_zsh_summaries, true},
    {"verb arguments", print_zsh_arguments, true}, {"verb completions", print_fish_completions, true},
};

/* The filling whose marker begins at `at`, or NULL. */
static const struct filling *find_filling(const char *at)
{
    for (size_t i = 0; i < sizeof(fillings) / sizeof(fillings[0]); i++) {
        size_t length = strlen(fillings[i].name);
        if (strncmp(at + 1, fillings[i].name, length) == 0 && at[length + 1] == '@')
            return &fillings[i];
    }
    return NULL;
}

static void print_template(const char *template)
{
    for (const char *at = template; *at; at++) {
        const struct filling *filling = *at == '@' ? find_filling(at) : NULL;
        if (!filling) {
            putchar(*at);
            continue;
        }
        filling->print();
        at += strlen(filling->name) + 1;
        if (filling->is_lines)
            at++; /* the end of the marker's line */
    }
}

static const struct cli_option options[] = {CLI_OPTION_HELP, CLI_OPTIONS_END};

static enum cli_status run_completion(const struct cli_arguments *arguments)
{
    const char *shell = arguments->operands[0];
    print_template(strcmp(shell, "bash") == 0  ? completion_bash
                   : strcmp(shell, "zsh") == 0 ? completion_zsh
                                               : completion_fish);
    return cli_finish_output();
}

const struct cli_verb verb_completion = {
    .name = "completion",
    .operands = "SHELL",
    .operand_kind = CLI_SHELL,
    .operands_min = 1,
    .operands_max = 1,
    .summary = "print completion for bash, zsh or fish",
    .examples = "  source <(gpuslice completion bash)",
    .options = options,
    .act = run_completion,
};
