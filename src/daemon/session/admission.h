/* admission.h - decides whether a request fits on the GPUs, and what it gets. Pure.
 *
 * state      what the GPUs have, what is promised on them, and the ceilings that hold for the user who asks
 * request    what a user asks for: a new session, or a change of one (request.h)
 * allotment  the result: GPUs, limits, share and priority */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/priority.h"
#include "base/units.h"
#include "daemon/session/admission_gpu.h"
#include "daemon/session/ceilings.h"
#include "ledger/ledger.h"

struct session_request;
struct session_limit;

struct admission_state {
    unsigned gpu_count;
    struct admission_gpu gpus[LEDGER_GPUS];
    bool packs; /* a session that names no GPU gets the fullest on which it fits, not the emptiest */
    const struct ceilings *ceilings; /* NULL: no ceiling counts */
    struct ceiling_use others;       /* what the owner's other sessions have; only with ceilings */
};

struct allotment {
    bool can_move;      /* its memory can leave the card */
    bool may_pass_card; /* its limits may be more than the card has */
    unsigned gpu_count;
    struct allotment_gpu {
        int gpu; /* index of the state's GPU; -1: the GPU is absent now */
        uint64_t limit_bytes;
        bool reserved;
    } gpus[LEDGER_GPUS];
    struct share compute;
    enum session_priority priority;
};

struct admission {
    bool waits;                 /* there is no room now, and the request asked to wait for it */
    uint64_t queued_bytes;      /* while it waits: the most that it may come to hold */
    struct allotment allotment; /* has no GPUs while it waits */
};

/* Decide `request`. `held` is what the session to be changed has, or NULL for a new one; a change is checked only where
 * it asks for more than that. -EBUSY with ERR_ADMISSION and the numbers when it does not fit, or when others wait for
 * the same GPUs; -EACCES with ERR_CEILING. Each GPU that a change names must be in `held`. */
int admission_plan(const struct admission_state *state, const struct allotment *held,
                   const struct session_request *request, struct admission *admission, struct error *error);

/* Whether what is known of the GPUs, and what was given of them, goes together. */
bool admission_state_is_valid(const struct admission_state *state);
bool allotment_is_valid(const struct allotment *allotment, const struct admission_state *state);

/* The same of what a new session gets: it has no GPU while it waits; else at least one, and what is reserved fits there. */
bool admission_is_valid(const struct admission *admission, const struct admission_state *state);

/* Add an allotment to what the state has promised. */
void admission_promise(struct admission_state *state, const struct allotment *allotment);
/* Add a reserved limit to what is promised on one GPU. Limits that may pass the card count up to the card. */
void admission_reserve(struct admission_gpu *gpu, uint64_t limit_bytes, bool can_move, bool may_pass_card);

/* The limit in bytes that the request asks for on a card of `total_bytes`, if it asks for one. `limit` is what the
 * request says about this card, or NULL. */
uint64_t admission_asked_bytes(const struct session_request *request, const struct session_limit *limit,
                               uint64_t total_bytes);

/* Whether `request` may end up with memory or time reserved on GPU `gpu`. */
bool admission_may_reserve(const struct session_request *request, unsigned gpu);

/* What is left of a card of `total_bytes` of which `reserved_bytes` are promised, and `others_bytes` held by processes
 * in no session. Never below 0. */
uint64_t admission_unreserved(uint64_t total_bytes, uint64_t reserved_bytes, uint64_t others_bytes);

/* How much of a limit can leave the card when `staying_bytes` of it stay. */
uint64_t admission_moving_bytes(uint64_t limit_bytes, uint64_t staying_bytes);
