/* admission.h - whether what is asked for fits, and what it comes to. Pure.
 *
 * state      what the GPUs have, what was promised on them, and what the ceilings of the one who asks say
 * request    what somebody asks for: a new session, or a change of one (request.h)
 * allotment  the GPUs, limits, share and priority that come of it */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/priority.h"
#include "base/units.h"
#include "daemon/session/ceilings.h"
#include "ledger/ledger.h"

struct session_request;
struct session_limit;

/* One GPU. */
struct admission_gpu {
    const char *label; /* what people call it */
    uint64_t total_bytes;
    uint64_t reserved_bytes; /* promised to others than who asks, and stays there */
    uint64_t movable_bytes;  /* the largest limit of others whose memory can leave the card for each other, */
    uint64_t paged_bytes;    /* or, the same, where the driver pages what does not fit; but for contexts: */
    uint64_t staying_bytes;  /* one of each of them, which stays there while the rest is away */
    uint64_t context_bytes;  /* what one takes; 0: not known */
    uint64_t outside_bytes;  /* held by processes in no session, and left to them */
    uint32_t promised_share; /* the sum of others' minima, in ten-thousandths */
    unsigned waiting;        /* how many sessions wait for room here, and come first */
};

struct admission_state {
    unsigned gpu_count;
    struct admission_gpu gpus[LEDGER_GPUS];
    const struct ceilings *ceilings; /* NULL: none counts */
    struct ceiling_use others;       /* what the owner's other sessions have; with ceilings */
};

struct allotment {
    bool can_move;      /* its memory can leave the card */
    bool may_pass_card; /* and limits may be more than the card has */
    unsigned gpu_count;
    struct allotment_gpu {
        int gpu; /* of the state; -1: it is not there now */
        uint64_t limit_bytes;
        bool reserved;
    } gpus[LEDGER_GPUS];
    struct share compute;
    enum session_priority priority;
};

struct admission {
    bool waits;                 /* there is no room now, and the request says that it waits then */
    uint64_t queued_bytes;      /* the most that it may come to hold, while it waits */
    struct allotment allotment; /* without GPUs while it waits */
};

/* What comes of `request`. `held` is what the session has (a change), or NULL (a new one): of that nothing is
 * checked again. -EBUSY with ERR_ADMISSION and the numbers when it does not fit, or others wait for the same
 * GPUs; -EACCES with ERR_CEILING. Each GPU that a change names is one of `held`. */
int admission_plan(const struct admission_state *state, const struct allotment *held,
                   const struct session_request *request, struct admission *admission, struct error *error);

/* Count what was allotted among what is promised. */
void admission_promise(struct admission_state *state, const struct allotment *allotment);

/* The limit that is asked for on a card of `total_bytes`, where one is: `limit` is that on this card, or NULL. */
uint64_t admission_asked_bytes(const struct session_request *request, const struct session_limit *limit,
                               uint64_t total_bytes);

/* Whether `request` may come to have something set aside on GPU `gpu`. */
bool admission_may_reserve(const struct session_request *request, unsigned gpu);

/* What is left of a card of `total_bytes` of which `reserved_bytes` are promised, and `others_bytes` held by
 * processes in no session. Never below 0. */
uint64_t admission_unreserved(uint64_t total_bytes, uint64_t reserved_bytes, uint64_t others_bytes);

/* What of a limit can leave the card, where so much of it stays. */
uint64_t admission_moving_bytes(uint64_t limit_bytes, uint64_t staying_bytes);
