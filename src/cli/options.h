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
            "give the option again; without it, those of CUDA_VISIBLE_DEVICES, or else the GPU with the "    \
            "most unreserved memory"                                                                         \
    }
#define CLI_OPTION_MEMORY                                                                                    \
    {                                                                                                        \
        "memory", "SIZE", CLI_MEMORY, offsetof(struct cli_arguments, wish.memory),                           \
            "the most memory on each GPU, like 4GiB, 512M or 50%, or GPU by GPU, like 0=4GiB,1=25%; "        \
            "without it, all that the GPU has",                                                              \
            .letter = 'm'                                                                                    \
    }
#define CLI_OPTION_COMPUTE                                                                                   \
    {                                                                                                        \
        "compute", "SHARE", CLI_SHARE, offsetof(struct cli_arguments, wish.compute),                         \
            "share of each GPU's time: 20%..60% promises 20% whenever the session wants it, and gives at "   \
            "most 60%; 25% means 25%..25%; without it, 0%..100%"                                             \
    }
#define CLI_OPTION_PRIORITY                                                                                  \
    {                                                                                                        \
        "priority", "LEVEL", CLI_PRIORITY, offsetof(struct cli_arguments, wish.priority),                    \
            "which session goes first for the time that no minimum promises: low, normal, high or "          \
            "critical; without it, normal"                                                                   \
    }
#define CLI_OPTION_TTL                                                                                       \
    {                                                                                                        \
        "ttl", "DURATION|never", CLI_LIFETIME, offsetof(struct cli_arguments, wish.ttl_usec),                \
            "the session expires after this time, like 90s or 2h; its programs then get no more GPU memory"  \
    }
#define CLI_OPTION_TTL_ACTION                                                                                \
    {                                                                                                        \
        "ttl-action", "ACTION", CLI_TTL_ACTION, offsetof(struct cli_arguments, wish.ttl_action),             \
            "what happens to its programs when the --ttl is over; none: they run on, which is the default; " \
            "kill: they get SIGTERM, and after 10 seconds SIGKILL"                                           \
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
#define CLI_OPTION_OVERSUBSCRIBE                                                                             \
    {                                                                                                        \
        "oversubscribe", "[=ENGINE]", CLI_MAYBE_ENGINE, offsetof(struct cli_arguments, wish.oversubscribe),  \
            "its GPU memory can leave the card for host memory and come back: 'gpuslice suspend', "          \
            "--idle-suspend; ENGINE is swap, or managed, where the driver pages it"                          \
    }
#define CLI_OPTION_WHEN_FULL                                                                                 \
    {                                                                                                        \
        "when-full", "POLICY", CLI_WHEN_FULL, offsetof(struct cli_arguments, wish.when_full),                \
            "what happens to the session, and to what its programs ask for, when memory is short: "          \
            "refuse, wait (as --wait) or oversubscribe (as --oversubscribe); without it, what "              \
            "gpuslice.conf says"                                                                             \
    }
#define CLI_OPTION_SINGLE_OVERSUBSCRIBE                                                                      \
    {                                                                                                        \
        "single-oversubscribe", NULL, CLI_FLAG, offsetof(struct cli_arguments, wish.single_oversubscribe),   \
            "with --oversubscribe=managed: --memory may be more than the card has, for one program that is " \
            "larger than it"                                                                                 \
    }
#define CLI_OPTION_HOST_MEMORY                                                                               \
    {                                                                                                        \
        "host-memory", "SIZE", CLI_SIZE, offsetof(struct cli_arguments, wish.host_memory_bytes),             \
            "the most host memory that its GPU memory may take while it is off the card, like 32GiB; "       \
            "without it, as much as the daemon has for all sessions"                                         \
    }
#define CLI_OPTION_IDLE_SUSPEND                                                                              \
    {                                                                                                        \
        "idle-suspend", "DURATION|never", CLI_LIFETIME,                                                      \
            offsetof(struct cli_arguments, wish.idle_suspend_usec),                                          \
            "with --oversubscribe: its memory leaves the card after this time without work, like 5m, and "   \
            "comes back when there is work"                                                                  \
    }
