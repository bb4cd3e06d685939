/* options.h - the option rows that several verbs have. */
#pragma once

#include "cli/cli.h"

#define CLI_OPTION_JSON                                                                                      \
    {                                                                                                        \
        "json", NULL, CLI_FLAG, offsetof(struct cli_arguments, json), "print JSON, for programs"             \
    }
#define CLI_OPTION_SIMULATED                                                                                 \
    {                                                                                                        \
        "simulated", NULL, CLI_FLAG, offsetof(struct cli_arguments, simulated),                              \
            "use simulated GPUs (also: GPUSLICE_SIMULATED=1)"                                                \
    }
#define CLI_OPTION_HELP                                                                                      \
    {                                                                                                        \
        "help", NULL, CLI_FLAG, offsetof(struct cli_arguments, help), "print this text"                      \
    }
#define CLI_OPTIONS_END                                                                                      \
    {                                                                                                        \
        NULL, NULL, CLI_NOTHING, 0, NULL                                                                     \
    }

#define CLI_OPTION_NEW_NAME                                                                                  \
    {                                                                                                        \
        "name", "NAME", CLI_SESSION_NAME, offsetof(struct cli_arguments, wish.name),                         \
            "name of the session (1 to 63 of A-Z a-z 0-9 . _ -)"                                             \
    }
#define CLI_OPTION_GPU                                                                                       \
    {                                                                                                        \
        "gpu", "GPU", CLI_GPU, offsetof(struct cli_arguments, wish.gpus),                                    \
            "GPU by index or beginning of its UUID, once for each; without, those of CUDA_VISIBLE_DEVICES, " \
            "or the "                                                                                        \
            "one with most unreserved memory"                                                                \
    }
#define CLI_OPTION_MEMORY                                                                                    \
    {                                                                                                        \
        "memory", "SIZE", CLI_MEMORY, offsetof(struct cli_arguments, wish.memory),                           \
            "limit on each GPU, like 4GiB or 512M, or GPU by GPU, like 0=4GiB,1=2GiB; without, all the GPU " \
            "has"                                                                                            \
    }
#define CLI_OPTION_COMPUTE                                                                                   \
    {                                                                                                        \
        "compute", "SHARE", CLI_SHARE, offsetof(struct cli_arguments, wish.compute),                         \
            "share of each GPU's time: 20%..60% is kept at 20% while others want it and never passes 60%; "  \
            "25% is 25%..25%; without, 0%..100%"                                                             \
    }
#define CLI_OPTION_PRIORITY                                                                                  \
    {                                                                                                        \
        "priority", "LEVEL", CLI_PRIORITY, offsetof(struct cli_arguments, wish.priority),                    \
            "who comes first, beyond what minima promise, where several want a GPU: low, normal, high or "   \
            "critical; "                                                                                     \
            "without, normal"                                                                                \
    }
#define CLI_OPTION_TTL                                                                                       \
    {                                                                                                        \
        "ttl", "DURATION", CLI_DURATION, offsetof(struct cli_arguments, wish.ttl_usec),                      \
            "the session expires after this time, like 90s or 2h; its programs then get no more GPU memory"  \
    }
#define CLI_OPTION_WAIT                                                                                      \
    {                                                                                                        \
        "wait", "[=DURATION]", CLI_MAYBE_DURATION, offsetof(struct cli_arguments, wish.wait_usec),           \
            "where there is no room, wait in line for it, for ever or as long as is said"                    \
    }
#define CLI_OPTION_MEMORY_CHANGED                                                                            \
    {                                                                                                        \
        "memory", "SIZE", CLI_MEMORY, offsetof(struct cli_arguments, wish.memory),                           \
            "new limit on each of its GPUs, like 2GiB, or on some of them, like 0=4GiB,1=2GiB"               \
    }
