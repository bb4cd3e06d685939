/* verbs.h - the verbs, one file each. */
#pragma once

#include "cli/cli.h"

extern const struct cli_verb verb_run, verb_create, verb_list, verb_show, verb_set, verb_release, verb_gpus,
    verb_scheduler, verb_top, verb_usage, verb_history, verb_dashboard, verb_events, verb_doctor, verb_config,
    verb_backup, verb_cdi, verb_suspend, verb_resume, verb_completion, verb_version, verb_help, verb_allocate,
    verb_status, verb_run_existing;
