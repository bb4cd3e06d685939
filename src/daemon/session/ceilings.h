/* ceilings.h - the most that an administrator lets users ask for.
 *
 * A ceiling is about one user: what [user:NAME] says in gpuslice.conf, key by key, or where that says nothing the lowest
 * that the [group:NAME] sections of the user's groups say, or where none does what [user:*] says, but for root. Lowering a ceiling ends nothing: the daemon only refuses what
 * would go above it. Sessions that sessions.conf declares are made whatever they add up to, and count. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "config/session_properties.h"
#include "ledger/ledger.h"

struct config;
struct config_ceiling;

/* The sections that decide for one user, key by key; NULL where none says anything. */
struct ceilings {
    const struct config *config;
    const struct config_ceiling *memory, *sessions;
    const struct config_ceiling *of[PROPERTY_COUNT];
};

/* What one session has or asks for, of the things that have ceilings. */
struct ceiling_ask {
    uint64_t memory_bytes; /* on all its GPUs together */
    uint32_t compute;      /* upper end of its share, in ten-thousandths */
    bool on_gpu[LEDGER_GPUS];
    enum session_priority priority;
};

/* The same for all sessions of a user together. */
struct ceiling_use {
    unsigned sessions;
    uint64_t memory_bytes;
    unsigned gpu_count;
    struct {
        const char *label;
        uint64_t compute;
    } gpus[LEDGER_GPUS];
};

/* Find the ceilings in force for `uid`. Reads the machine's user accounts. */
void ceilings_find(const struct config *config, uid_t uid, struct ceilings *ceilings);

/* Whether the user may have `ask` beside `others`. A new session (`old` NULL) is checked whole, a change only where
 * `ask` is more than `old`. -EACCES with ERR_CEILING, naming the ceiling. */
int ceilings_check(const struct ceilings *ceilings, const struct ceiling_use *others,
                   const struct ceiling_ask *ask, const struct ceiling_ask *old, struct error *error);
