/* gpuslice help, and --help of every verb, from the tables. */
#include "cli/verbs/help.h"

#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/verbs.h"
#include "client/columns.h"

#define WIDTH 80
#define OPTION_COLUMN 22 /* where the texts of options begin */
#define COLUMN_TEXTS 16  /* and those of a table's columns */

/* Print `text` from column `at` on; further lines begin at column `indent`. */
static void print_wrapped(const char *text, size_t at, size_t indent)
{
    size_t start = at;
    while (*text) {
        size_t length = strcspn(text, " ");
        if (at > start && at + 1 + length > WIDTH) {
            printf("\n%*s", (int)indent, "");
            at = start = indent;
        } else if (at > start) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)length, text);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

/* What an option does. One that changes a session has no default: without it, the property stays. */
static void print_help(const struct cli_verb *verb, const struct cli_option *option)
{
    static const char without[] = "; without it, ";
    const char *standard = strstr(option->help, without);
    char text[1024];
    snprintf(text, sizeof(text), "%.*s; without it, unchanged",
             (int)(standard ? standard - option->help : (ptrdiff_t)strlen(option->help)), option->help);
    print_wrapped(verb == &verb_set && option->kind == CLI_PROPERTY ? text : option->help, OPTION_COLUMN,
                  OPTION_COLUMN);
}

static void print_option(const struct cli_verb *verb, const struct cli_option *option)
{
    char left[64];
    char letter[8] = "";
    if (option->letter)
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    int length = snprintf(left, sizeof(left), "  %s--%s%s%s", letter, option->name,
                          cli_option_takes_word(option) ? " " : "", option->value ? option->value : "");
    if (length < OPTION_COLUMN)
        printf("%-*s", OPTION_COLUMN, left);
    else
        printf("%s\n%*s", left, OPTION_COLUMN, "");
    print_help(verb, option);
}

static void print_columns(const char *const *titles)
{
    puts("\nColumns:");
    for (; *titles; titles++) {
        const struct column *column = column_of_title(*titles);
        printf("  %-*s", COLUMN_TEXTS - 2, column->title);
        print_wrapped(column->help, COLUMN_TEXTS, COLUMN_TEXTS);
    }
}

void help_print_verb(const struct cli_verb *verb)
{
    printf("gpuslice %s - %s\n\nUsage: gpuslice %s [OPTION]...%s%s\n", verb->name, verb->summary, verb->name,
           verb->operands ? " " : "", verb->operands ? verb->operands : "");
    for (size_t i = 0; verb->aliases[i]; i++)
        printf("%s%s", i ? ", " : "Also:  gpuslice ", verb->aliases[i]);
    if (verb->aliases[0])
        putchar('\n');
    if (verb->text) {
        putchar('\n');
        print_wrapped(verb->text, 0, 0);
    }
    if (verb->examples)
        printf("\n%s\n", verb->examples);
    if (verb->columns)
        print_columns(verb->columns);
    puts("\nOptions:");
    for (const struct cli_option *option = cli_next_option(verb, NULL); option;
         option = cli_next_option(verb, option))
        print_option(verb, option);
}

void help_print_overview(void)
{
    puts("gpuslice - share GPUs between programs, each inside its own quota\n\n"
         "Usage: gpuslice VERB [OPTION]... [OPERAND]...\n\nVerbs:");
    for (size_t i = 0; cli_verbs[i]; i++) {
        int at = printf("  %-14s", cli_verbs[i]->name);
        char line[256];
        size_t used = (size_t)snprintf(line, sizeof(line), "%s", cli_verbs[i]->summary);
        for (size_t alias = 0; cli_verbs[i]->aliases[alias] && used < sizeof(line); alias++)
            used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s",
                                     alias ? ", " : " (also: ", cli_verbs[i]->aliases[alias]);
        if (cli_verbs[i]->aliases[0] && used < sizeof(line))
            snprintf(line + used, sizeof(line) - used, ")");
        print_wrapped(line, (size_t)at, (size_t)at);
    }
    puts("\n'gpuslice VERB --help' says more. To begin with:\n\n"
         "  gpuslice run --memory 4GiB -- python train.py\n"
         "  gpuslice list");
}

static const struct cli_option options[] = {CLI_OPTION_HELP, CLI_OPTIONS_END};

static enum cli_status run_help(const struct cli_arguments *arguments)
{
    if (arguments->operand_count)
        help_print_verb(cli_verb_find(arguments->operands[0]));
    else
        help_print_overview();
    return cli_finish_output();
}

const struct cli_verb verb_help = {
    .name = "help",
    .operands = "[VERB]",
    .operand_kind = CLI_VERB,
    .operands_max = 1,
    .summary = "say what gpuslice or one of its verbs does",
    .options = options,
    .act = run_help,
};
