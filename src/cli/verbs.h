/* verbs.h - the verbs, a file each, and the option rows that several of them have. */
#pragma once

#include "cli/cli.h"

extern const struct cli_verb verb_run, verb_create, verb_list, verb_show, verb_set, verb_release, verb_gpus,
    verb_scheduler, verb_events, verb_doctor, verb_config, verb_completion, verb_version, verb_help;

#define CLI_OPTION_NEW_NAME                                                                                  \
    {                                                                                                        \
        "name", "NAME", CLI_SESSION_NAME, offsetof(struct cli_arguments, name),                              \
            "name of the session (1 to 63 of A-Z a-z 0-9 . _ -)"                                             \
    }
#define CLI_OPTION_GPU                                                                                       \
    {                                                                                                        \
        "gpu", "GPU", CLI_GPU, offsetof(struct cli_arguments, gpus),                                         \
            "GPU by index or beginning of its UUID, once for each; without, those of CUDA_VISIBLE_DEVICES, " \
            "or the "                                                                                        \
            "one with most unreserved memory"                                                                \
    }
#define CLI_OPTION_MEMORY                                                                                    \
    {                                                                                                        \
        "memory", "SIZE", CLI_MEMORY, offsetof(struct cli_arguments, memory),                                \
            "limit on each GPU, like 4GiB or 512M, or GPU by GPU, like 0=4GiB,1=2GiB; without, all the GPU " \
            "has"                                                                                            \
    }
#define CLI_OPTION_COMPUTE                                                                                   \
    {                                                                                                        \
        "compute", "SHARE", CLI_SHARE, offsetof(struct cli_arguments, compute),                              \
            "share of each GPU's time: 20%..60% is kept at 20% while others want it and never passes 60%; "  \
            "25% is 25%..25%; without, 0%..100%"                                                             \
    }
#define CLI_OPTION_PRIORITY                                                                                  \
    {                                                                                                        \
        "priority", "LEVEL", CLI_PRIORITY, offsetof(struct cli_arguments, priority),                         \
            "who comes first, beyond what minima promise, where several want a GPU: low, normal, high or "   \
            "critical; "                                                                                     \
            "without, normal"                                                                                \
    }
#define CLI_OPTION_TTL                                                                                       \
    {                                                                                                        \
        "ttl", "DURATION", CLI_DURATION, offsetof(struct cli_arguments, ttl_usec),                           \
            "the session expires after this time, like 90s or 2h; its programs then get no more GPU memory"  \
    }
#define CLI_OPTION_WAIT                                                                                      \
    {                                                                                                        \
        "wait", "[=DURATION]", CLI_MAYBE_DURATION, offsetof(struct cli_arguments, wait_usec),                \
            "where there is no room, wait in line for it, for ever or as long as is said"                    \
    }
#define CLI_OPTION_MEMORY_CHANGED                                                                            \
    {                                                                                                        \
        "memory", "SIZE", CLI_MEMORY, offsetof(struct cli_arguments, memory),                                \
            "new limit on each of its GPUs, like 2GiB, or on some of them, like 0=4GiB,1=2GiB"               \
    }
