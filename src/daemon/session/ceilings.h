/* ceilings.h - what gpuslice.conf says about the sessions that users ask for: defaults and ceilings.
 *
 * A ceiling is about one user: what [user:NAME] says, key by key, or where that says nothing the lowest that
 * the [group:NAME] sections of the user's groups say. Lowering one ends nothing: it refuses what would be
 * more. Sessions that sessions.conf declares are made whatever they add up to, and count. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/priority.h"
#include "ledger/ledger.h"

struct daemon;
struct session;
struct session_request;

/* What a session has been given, or asks for, of what there are ceilings for. */
struct ceiling_ask {
    uint64_t memory_bytes; /* on all its GPUs together */
    uint32_t compute;      /* upper end of its share, in ten-thousandths */
    bool on_gpu[LEDGER_GPUS];
    enum session_priority priority;
};

/* Fill in what `request` does not say (memory, compute, priority): what [defaults] says, or where the owner's
 * ceiling is lower, the ceiling. */
void ceilings_apply_defaults(const struct daemon *daemon, struct session_request *request);

/* As `session` stands; one that is queued may come to be on any GPU. */
struct ceiling_ask ceiling_ask_of(const struct session *session);

/* Whether the owner of `session` may have it as `ask` says beside his others: all of it if it is new (`old`
 * NULL), else what `ask` has more of than `old`. -EACCES with ERR_CEILING, and which ceiling. */
int ceilings_check(const struct session *session, const struct ceiling_ask *ask,
                   const struct ceiling_ask *old, struct error *error);
