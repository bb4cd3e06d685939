#include "cli/verbs.h"

#include <string.h>

const struct cli_verb *const cli_verbs[] = {
    &verb_run,     &verb_create, &verb_list,     &verb_show,      &verb_set,
    &verb_suspend, &verb_resume, &verb_release,  &verb_gpus,      &verb_scheduler,
    &verb_top,     &verb_usage,  &verb_history,  &verb_dashboard, &verb_events,
    &verb_doctor,  &verb_config, &verb_backup,   &verb_cdi,       &verb_completion,
    &verb_version, &verb_help,   &verb_allocate, &verb_status,    &verb_run_existing,
    NULL,
};

const struct cli_verb *cli_verb_find(const char *name)
{
    for (size_t i = 0; cli_verbs[i]; i++) {
        if (strcmp(cli_verbs[i]->name, name) == 0)
            return cli_verbs[i];
        for (size_t alias = 0; cli_verbs[i]->aliases[alias]; alias++)
            if (strcmp(cli_verbs[i]->aliases[alias], name) == 0)
                return cli_verbs[i];
    }
    return NULL;
}
