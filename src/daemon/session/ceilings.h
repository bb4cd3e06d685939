/* ceilings.h - the most that an administrator lets users ask for.
 *
 * A ceiling is about one user: what [user:NAME] says in gpuslice.conf, key by key, or where that says nothing
 * the lowest that the [group:NAME] sections of the user's groups say. Lowering one ends nothing: it refuses
 * what would be more. Sessions that sessions.conf declares are made whatever they add up to, and count. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/priority.h"
#include "ledger/ledger.h"

struct config;
struct config_ceiling;

/* The sections that decide for one user, key by key; NULL where none says anything. */
struct ceilings {
    const struct config *config;
    const struct config_ceiling *memory, *compute, *sessions, *priority, *when_full, *host_memory;
};

/* What a session has been given, or asks for, of what there are ceilings for. */
struct ceiling_ask {
    uint64_t memory_bytes; /* on all its GPUs together */
    uint32_t compute;      /* upper end of its share, in ten-thousandths */
    bool on_gpu[LEDGER_GPUS];
    enum session_priority priority;
};

/* The same of all sessions of a user together. */
struct ceiling_use {
    unsigned sessions;
    uint64_t memory_bytes;
    unsigned gpu_count;
    struct {
        const char *label;
        uint64_t compute;
    } gpus[LEDGER_GPUS];
};

/* What is in force for `uid`. Reads the accounts of the machine. */
void ceilings_find(const struct config *config, uid_t uid, struct ceilings *ceilings);

/* Whether the user may have it as `ask` says beside `others`: all of it if it is new (`old` NULL), else what
 * `ask` has more of than `old`. -EACCES with ERR_CEILING, and which ceiling. */
int ceilings_check(const struct ceilings *ceilings, const struct ceiling_use *others,
                   const struct ceiling_ask *ask, const struct ceiling_ask *old, struct error *error);
