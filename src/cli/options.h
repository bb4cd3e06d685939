/* options.h - the rows of options that several verbs have. */
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
            "a GPU by its index or the beginning of its UUID; for several, separate them by commas or "      \
            "give the option again; without it, those of CUDA_VISIBLE_DEVICES, or else one that it may "     \
            "have by all rules (placement in gpuslice.conf)"                                                 \
    }
#define CLI_OPTION_MEMORY                                                                                    \
    {                                                                                                        \
        "memory", "SIZE", CLI_MEMORY, offsetof(struct cli_arguments, wish.memory),                           \
            "the most memory on each GPU, like 4GiB, 512M or 50%, or GPU by GPU, like 0=4GiB,1=25%; "        \
            "without it, all that the GPU has",                                                              \
            .letter = 'm'                                                                                    \
    }
#define CLI_OPTION_WAIT                                                                                      \
    {                                                                                                        \
        "wait", "[=DURATION]", CLI_MAYBE_DURATION, offsetof(struct cli_arguments, wish.wait_usec),           \
            "if there is no room, wait for it in the queue, for at most DURATION if that is given"           \
    }
#define CLI_OPTION_MEMORY_CHANGED                                                                            \
    {                                                                                                        \
        "memory", "SIZE", CLI_MEMORY, offsetof(struct cli_arguments, wish.memory),                           \
            "new limit on each of its GPUs, like 2GiB or 50%, or on some of them, like 0=4GiB,1=25%",        \
            .letter = 'm'                                                                                    \
    }
/* The options of all properties that `which` names (enum cli_properties). */
#define CLI_OPTION_PROPERTIES(which)                                                                         \
    {                                                                                                        \
        "", NULL, CLI_PROPERTIES, which, NULL                                                                \
    }
