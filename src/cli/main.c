/* gpuslice: the command line. Finds the verb, reads its words, and runs it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/near.h"
#include "cli/verbs/help.h"

/* The verb for a word that users of kubectl, docker, systemctl or journalctl type; NULL if there is none. */
static const char *other_habit(const char *word)
{
    static const struct {
        const char *word, *ours;
    } habits[] = {
        {"kill", "release --kill SESSION"},
        {"stop", "release --kill SESSION"},
        {"get", "list"},
        {"nodes", "gpus"},
        {"exec", "run --session SESSION"},
        {"attach", "run --session SESSION"},
        {"rename", "set --name NAME SESSION"},
        {"update", "set SESSION"},
        {"edit", "set SESSION"},
        {"scale", "set SESSION"},
        {"start", "run"},
        {"apply", "create"},
        {"info", "version"},
        {"monitor", "top"},
        {"prune", "release --all"},
        {"pause", "suspend SESSION"},
        {"unpause", "resume SESSION"},
        {"freeze", "suspend SESSION"},
    };
    for (size_t i = 0; i < sizeof(habits) / sizeof(habits[0]); i++)
        if (strcmp(habits[i].word, word) == 0)
            return habits[i].ours;
    return NULL;
}

/* The verb that `word` may have been meant for; NULL: none is near. */
static const char *nearest_verb(const char *word)
{
    const char *nearest = NULL;
    unsigned least = NEAR_NEVER;
    for (size_t i = 0; cli_verbs[i]; i++) {
        unsigned distance = near_distance(word, cli_verbs[i]->name);
        nearest = distance < least ? cli_verbs[i]->name : nearest;
        least = distance < least ? distance : least;
    }
    return nearest;
}

static enum cli_status no_such_verb(const char *word)
{
    const char *ours = word ? other_habit(word) : NULL, *nearest = word && !ours ? nearest_verb(word) : NULL;
    char known[256] = "";
    size_t used = 0;
    struct error error;
    for (size_t i = 0; cli_verbs[i] && used < sizeof(known); i++)
        used +=
            (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? " " : "", cli_verbs[i]->name);
    if (ours)
        error_set(&error, EINVAL, NULL, "'%.80s' is not a verb; 'gpuslice %s' does what you may mean", word,
                  ours);
    else if (nearest)
        error_set(&error, EINVAL, NULL, "'%.80s' is not a verb; did you mean %s?", word, nearest);
    else if (word)
        error_set(&error, EINVAL, NULL, "'%.80s' is not a verb; expected one of %s", word, known);
    else
        error_set(&error, EINVAL, NULL, "the verb is missing; expected one of %s", known);
    return cli_report_usage(NULL, &error);
}

static enum cli_status do_verb(int count, char **words)
{
    struct cli_arguments arguments;
    struct error error;
    const char *word = count > 1 ? words[1] : NULL;
    if (word && (strcmp(word, "--version") == 0 || strcmp(word, "-v") == 0))
        word = "version";
    if (word && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0))
        word = "help";

    const struct cli_verb *verb = word ? cli_verb_find(word) : NULL;
    if (!verb)
        return no_such_verb(word);
    if (cli_parse(verb, words + 2, &arguments, &error) < 0)
        return cli_report_usage(verb, &error);
    if (arguments.help) {
        help_print_verb(verb);
        return cli_finish_output();
    }
    return verb->act(&arguments);
}

int main(int count, char **words)
{
    return (int)do_verb(count, words);
}
