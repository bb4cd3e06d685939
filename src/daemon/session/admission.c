#include "daemon/session/admission.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/saturating.h"
#include "daemon/session/admission_refuse.h"
#include "daemon/session/request.h"

/* --- One GPU --------------------------------------------------------------------------------------- */

uint64_t admission_unreserved(uint64_t total_bytes, uint64_t reserved_bytes, uint64_t others_bytes)
{
    uint64_t taken;
    return __builtin_add_overflow(reserved_bytes, others_bytes, &taken) || taken >= total_bytes
               ? 0
               : total_bytes - taken;
}

static uint64_t left_on(const struct admission_gpu *gpu)
{
    return admission_unreserved(gpu->total_bytes, saturating_add(gpu->reserved_bytes, gpu->staying_bytes),
                                gpu->outside_bytes);
}

uint64_t admission_moving_bytes(uint64_t limit_bytes, uint64_t staying_bytes)
{
    return limit_bytes > staying_bytes ? limit_bytes - staying_bytes : 0;
}

/* How much of a limit must have room on the card. Where the driver pages what does not fit, that is at most the card
 * without the contexts that stay. */
static uint64_t on_card(const struct admission_gpu *gpu, uint64_t limit_bytes, bool may_pass_card)
{
    uint64_t most = gpu->total_bytes > gpu->staying_bytes ? gpu->total_bytes - gpu->staying_bytes : 0;
    return may_pass_card && limit_bytes > most ? most : limit_bytes;
}

/* Whether `wanted_bytes` can be reserved on the GPU. */
static int check_bytes(const struct admission_gpu *gpu, uint64_t wanted_bytes, struct error *error)
{
    uint64_t unreserved = left_on(gpu);
    return wanted_bytes <= unreserved ? 0 : admission_refuse_bytes(gpu, wanted_bytes, unreserved, error);
}

/* Whether the largest of the others whose memory can leave would still fit beside one more context, which stays. */
static int check_context(const struct admission_gpu *gpu, struct error *error)
{
    bool fits = !gpu->movable_bytes || saturating_add(gpu->movable_bytes, gpu->context_bytes) <= left_on(gpu);
    return fits ? 0 : admission_refuse_context(gpu, error);
}

/* Whether a minimum share of `wanted` can be promised on the GPU. */
static int check_share(const struct admission_gpu *gpu, uint32_t wanted, struct error *error)
{
    uint32_t left = gpu->promised_share < SHARE_WHOLE ? SHARE_WHOLE - gpu->promised_share : 0;
    return wanted <= left ? 0 : admission_refuse_share(gpu, wanted, left, error);
}

/* --- What a request says --------------------------------------------------------------------------- */

static uint32_t minimum_of(const struct session_request *request)
{
    return property_is_given(&request->properties, PROPERTY_COMPUTE) ? request->properties.compute.min : 0;
}

static uint64_t part_of(uint64_t total_bytes, uint32_t part)
{
    return (uint64_t)((unsigned __int128)total_bytes * part / SHARE_WHOLE);
}

uint64_t admission_asked_bytes(const struct session_request *request, const struct session_limit *limit,
                               uint64_t total_bytes)
{
    if (limit && limit->has_bytes)
        return limit->part ? part_of(total_bytes, limit->part) : limit->bytes;
    return request->part ? part_of(total_bytes, request->part) : request->bytes;
}

/* The limit of a new session on a GPU that the request names, or that may be chosen for it. */
static uint64_t limit_on(const struct session_request *request, const struct session_limit *limit,
                         const struct admission_gpu *gpu)
{
    bool is_asked = request->has_bytes || (limit && limit->has_bytes);
    return is_asked ? admission_asked_bytes(request, limit, gpu->total_bytes) : gpu->total_bytes;
}

static const struct session_limit *find_limit(const struct session_request *request, unsigned gpu)
{
    for (unsigned i = 0; i < request->limit_count; i++)
        if (request->limits[i].gpu == gpu)
            return &request->limits[i];
    return NULL;
}

bool admission_may_reserve(const struct session_request *request, unsigned gpu)
{
    bool reserves = request->has_bytes || minimum_of(request);
    const struct session_limit *limit = find_limit(request, gpu);
    return limit ? reserves || limit->has_bytes : request->limit_count == 0 && reserves;
}

/* --- What must hold -------------------------------------------------------------------------------- */

bool admission_state_is_valid(const struct admission_state *state)
{
    for (unsigned i = 0; i < state->gpu_count && i < LEDGER_GPUS; i++)
        if (!state->gpus[i].label || state->gpus[i].keeps[LEDGER_ENGINE_PLAIN])
            return false;
    return state->gpu_count <= LEDGER_GPUS &&
           (!state->ceilings || state->others.gpu_count == state->gpu_count);
}

bool allotment_is_valid(const struct allotment *allotment, const struct admission_state *state)
{
    for (unsigned i = 0; i < allotment->gpu_count && i < LEDGER_GPUS; i++)
        if (allotment->gpus[i].gpu < -1 || allotment->gpus[i].gpu >= (int)state->gpu_count)
            return false;
    return allotment->gpu_count <= LEDGER_GPUS && allotment->compute.min <= allotment->compute.max &&
           allotment->compute.max <= SHARE_WHOLE && allotment->priority < PRIORITY_COUNT;
}

bool admission_is_valid(const struct admission *admission, const struct admission_state *state)
{
    const struct allotment *allotment = &admission->allotment;
    for (unsigned i = 0; i < allotment->gpu_count; i++) {
        const struct allotment_gpu *gpu = &allotment->gpus[i];
        const struct admission_gpu *card = gpu->gpu >= 0 ? &state->gpus[gpu->gpu] : NULL;
        if (gpu->reserved && !allotment->may_pass_card && card && gpu->limit_bytes > card->total_bytes)
            return false;
    }
    return admission->waits == (allotment->gpu_count == 0);
}

/* --- A new session --------------------------------------------------------------------------------- */

/* Whether a GPU may be chosen for the request, which names none: not one that keeps memory that is to leave. */
static bool may_choose(const struct session_request *request, const struct admission_gpu *gpu)
{
    return !gpu->keeps[request->properties.engine];
}

/* Whether it would fit if nothing were promised to anybody. */
static bool has_hope(const struct admission_state *state, const struct session_request *request)
{
    for (unsigned i = 0; i < request->limit_count; i++) {
        const struct admission_gpu *gpu = &state->gpus[request->limits[i].gpu];
        if (!request->properties.may_pass_card &&
            limit_on(request, &request->limits[i], gpu) > gpu->total_bytes)
            return false;
    }
    for (unsigned i = 0; i < state->gpu_count && request->limit_count == 0; i++)
        if (may_choose(request, &state->gpus[i]) &&
            (request->properties.may_pass_card ||
             limit_on(request, NULL, &state->gpus[i]) <= state->gpus[i].total_bytes))
            return true;
    return request->limit_count > 0;
}

/* Refuse a request for more than any GPU has, even if it would wait: waiting would not help. The error names the
 * largest GPU that it might have been given. */
static int check_hope(const struct admission_state *state, const struct session_request *request,
                      struct error *error)
{
    struct admission_gpu largest = {.total_bytes = 0};
    uint64_t wanted = 0;
    if (has_hope(state, request))
        return 0;
    for (unsigned i = 0; i < state->gpu_count; i++) {
        const struct session_limit *limit = find_limit(request, i);
        uint64_t bytes = limit_on(request, limit, &state->gpus[i]);
        bool may_be_on = limit || (request->limit_count == 0 && may_choose(request, &state->gpus[i]));
        if (!may_be_on || bytes <= state->gpus[i].total_bytes ||
            state->gpus[i].total_bytes <= largest.total_bytes)
            continue;
        largest = (struct admission_gpu){.label = state->gpus[i].label,
                                         .total_bytes = state->gpus[i].total_bytes,
                                         .kept_bytes = state->gpus[i].kept_bytes};
        wanted = bytes;
    }
    return check_bytes(&largest, wanted, error);
}

static int check_nobody_waits(const struct admission_gpu *gpu, struct error *error)
{
    return gpu->waiting ? admission_refuse_behind(gpu, error) : 0;
}

static int allot_gpu(const struct admission_state *state, const struct session_request *request, unsigned gpu,
                     struct allotment_gpu *allotted, struct error *error)
{
    GS_CHECK(gpu < state->gpu_count);
    const struct admission_gpu *card = &state->gpus[gpu];
    const struct session_limit *limit = find_limit(request, gpu);
    *allotted = (struct allotment_gpu){
        .gpu = (int)gpu,
        .limit_bytes = limit_on(request, limit, card),
        .reserved = request->has_bytes || (limit && limit->has_bytes),
    };
    uint64_t bytes = on_card(card, allotted->limit_bytes, request->properties.may_pass_card);
    int result = admission_may_reserve(request, gpu) ? check_nobody_waits(card, error) : 0;
    if (result == 0 && allotted->reserved)
        result = check_bytes(card, bytes, error);
    if (result == 0 && allotted->reserved && request->properties.engine != LEDGER_ENGINE_PLAIN)
        result = check_context(card, error);
    return result < 0 ? result : check_share(card, minimum_of(request), error);
}

/* A queued session may be admitted on any GPU, so it counts on all of them. */
static struct ceiling_ask ask_of(const struct allotment *allotment, bool waits, uint64_t queued_bytes,
                                 unsigned gpu_count)
{
    struct ceiling_ask ask = {.compute = allotment->compute.max, .priority = allotment->priority};
    ask.memory_bytes = queued_bytes;
    for (unsigned i = 0; i < gpu_count && waits; i++)
        ask.on_gpu[i] = true;
    for (unsigned i = 0; i < allotment->gpu_count; i++) {
        if (__builtin_add_overflow(ask.memory_bytes, allotment->gpus[i].limit_bytes, &ask.memory_bytes))
            ask.memory_bytes = UINT64_MAX;
        if (allotment->gpus[i].gpu >= 0)
            ask.on_gpu[allotment->gpus[i].gpu] = true;
    }
    return ask;
}

/* The GPUs that may be chosen for the request, in the order in which they are tried. Spread begins with the one that has
 * the most unreserved memory, the first of equals. Pack begins with the one that has the least, for a session that reserves
 * memory: any other would get a GPU that is full. Returns how many there are. */
static unsigned order_gpus(const struct admission_state *state, const struct session_request *request,
                           unsigned order[static LEDGER_GPUS])
{
    bool packs = state->packs && request->has_bytes;
    unsigned count = 0;
    for (unsigned gpu = 0; gpu < state->gpu_count; gpu++) {
        if (!may_choose(request, &state->gpus[gpu]))
            continue;
        uint64_t left = left_on(&state->gpus[gpu]);
        unsigned at = count++;
        for (; at > 0; at--) {
            uint64_t before = left_on(&state->gpus[order[at - 1]]);
            if (packs ? before <= left : before >= left)
                break;
            order[at] = order[at - 1];
        }
        order[at] = gpu;
    }
    return count;
}

/* Whether a new session may have the GPU by all rules: room, shares, and its owner's ceilings. */
static int try_gpu(const struct admission_state *state, const struct session_request *request, unsigned gpu,
                   struct allotment *allotment, struct error *error)
{
    allotment->gpu_count = 1;
    int result = allot_gpu(state, request, gpu, &allotment->gpus[0], error);
    if (result < 0 || !state->ceilings)
        return result;
    struct ceiling_ask ask = ask_of(allotment, false, 0, state->gpu_count);
    return ceilings_check(state->ceilings, &state->others, &ask, NULL, error);
}

/* Take the first GPU that the session may have. If there is none, the error is about a GPU with room that a ceiling keeps
 * from the user, else about the first one. */
static int choose_gpu(const struct admission_state *state, const struct session_request *request,
                      struct allotment *allotment, struct error *error)
{
    unsigned order[LEDGER_GPUS] = {0}, told = 0;
    unsigned count = order_gpus(state, request, order);
    int told_result = 0;
    for (unsigned i = 0; i < count; i++) {
        int result = try_gpu(state, request, order[i], allotment, NULL);
        if (result == 0)
            return 0;
        if (i == 0 || (result == -EACCES && told_result != -EACCES)) {
            told = order[i];
            told_result = result;
        }
    }
    return try_gpu(state, request, told, allotment, error);
}

static int allot_new(const struct admission_state *state, const struct session_request *request,
                     struct allotment *allotment, struct error *error)
{
    int result = check_hope(state, request, error);
    if (result == 0 && request->limit_count == 0)
        return choose_gpu(state, request, allotment, error);
    allotment->gpu_count = request->limit_count;
    for (unsigned i = 0; i < request->limit_count && result == 0; i++)
        result = allot_gpu(state, request, request->limits[i].gpu, &allotment->gpus[i], error);
    return result;
}

/* The most that the request can come to hold, wherever it is placed. */
static uint64_t demand_of(const struct admission_state *state, const struct session_request *request)
{
    uint64_t sum = 0, most = 0;
    for (unsigned i = 0; i < request->limit_count; i++)
        if (__builtin_add_overflow(
                sum, limit_on(request, &request->limits[i], &state->gpus[request->limits[i].gpu]), &sum))
            return UINT64_MAX;
    for (unsigned i = 0; i < state->gpu_count && request->limit_count == 0; i++) {
        uint64_t limit = limit_on(request, NULL, &state->gpus[i]);
        most = limit > most ? limit : most;
    }
    return request->limit_count ? sum : most;
}

static int plan_new(const struct admission_state *state, const struct session_request *request,
                    struct admission *admission, struct error *error)
{
    struct allotment *allotment = &admission->allotment;
    allotment->compute =
        property_is_given(&request->properties, PROPERTY_COMPUTE) ? request->properties.compute : SHARE_ANY;
    allotment->priority = property_is_given(&request->properties, PROPERTY_PRIORITY)
                              ? request->properties.priority
                              : PRIORITY_NORMAL;
    allotment->may_pass_card = request->properties.may_pass_card;
    int result = allot_new(state, request, allotment, error);
    if (result == -EBUSY && request->wait && has_hope(state, request)) {
        admission->waits = true;
        admission->queued_bytes = demand_of(state, request);
        allotment->gpu_count = 0;
        result = 0;
    }
    GS_CHECK(result < 0 || admission_is_valid(admission, state));
    return result;
}

/* --- A change -------------------------------------------------------------------------------------- */

static int change_gpu(const struct admission_state *state, const struct session_request *request,
                      bool may_pass_card, struct allotment_gpu *gpu, struct error *error)
{
    const struct session_limit *limit = gpu->gpu >= 0 ? find_limit(request, (unsigned)gpu->gpu) : NULL;
    const struct admission_gpu *card = gpu->gpu >= 0 ? &state->gpus[gpu->gpu] : NULL;
    if (request->drops_limits) {
        gpu->reserved = false;
        gpu->limit_bytes = card ? card->total_bytes : gpu->limit_bytes;
        return 0;
    }
    if (!request->has_bytes && (!limit || !limit->has_bytes))
        return 0;
    const bool is_part = limit && limit->has_bytes ? limit->part : request->part;
    if (is_part && !card) /* the size of an absent card is not known */
        return 0;
    uint64_t bytes = admission_asked_bytes(request, limit, card ? card->total_bytes : 0);
    bool is_lower = gpu->reserved && bytes <= gpu->limit_bytes;
    int result = card && !is_lower ? check_bytes(card, on_card(card, bytes, may_pass_card), error) : 0;
    gpu->limit_bytes = bytes;
    gpu->reserved = true;
    return result;
}

static int plan_change(const struct admission_state *state, const struct allotment *held,
                       const struct session_request *request, struct admission *admission,
                       struct error *error)
{
    struct allotment *allotment = &admission->allotment;
    int result = 0;
    *allotment = *held;
    for (unsigned i = 0; i < held->gpu_count && result == 0; i++)
        result = change_gpu(state, request, held->may_pass_card, &allotment->gpus[i], error);
    bool is_more = minimum_of(request) > held->compute.min;
    for (unsigned i = 0; i < held->gpu_count && is_more && result == 0; i++)
        if (held->gpus[i].gpu >= 0)
            result = check_share(&state->gpus[held->gpus[i].gpu], request->properties.compute.min, error);
    if (property_is_given(&request->properties, PROPERTY_COMPUTE))
        allotment->compute = request->properties.compute;
    if (property_is_given(&request->properties, PROPERTY_PRIORITY))
        allotment->priority = request->properties.priority;
    return result;
}

/* --- The whole plan -------------------------------------------------------------------------------- */

/* Copy `given`, and reserve room for the largest session whose memory can leave the card: one of these is on the card
 * at a time, and each of them must fit beside what stays. */
static void reserve_for_movable(const struct admission_state *given, struct admission_state *state)
{
    state->gpu_count = given->gpu_count;
    state->packs = given->packs;
    state->ceilings = given->ceilings;
    if (given->ceilings)
        state->others = given->others;
    memcpy(state->gpus, given->gpus, given->gpu_count * sizeof(*given->gpus));
    for (unsigned i = 0; i < state->gpu_count; i++)
        state->gpus[i].reserved_bytes = saturating_add(
            state->gpus[i].reserved_bytes, state->gpus[i].movable_bytes > state->gpus[i].paged_bytes
                                               ? state->gpus[i].movable_bytes
                                               : state->gpus[i].paged_bytes);
}

int admission_plan(const struct admission_state *given, const struct allotment *held,
                   const struct session_request *request, struct admission *admission, struct error *error)
{
    GS_CHECK(admission_state_is_valid(given) && (!held || allotment_is_valid(held, given)));
    struct admission_state beside_movable;
    const struct admission_state *state = given;
    bool can_move = held ? held->can_move : request->properties.engine != LEDGER_ENGINE_PLAIN;
    if (!can_move) {
        reserve_for_movable(given, &beside_movable);
        state = &beside_movable;
    }
    *admission = (struct admission){.waits = false, .allotment.can_move = can_move};
    int result = held ? plan_change(state, held, request, admission, error)
                      : plan_new(state, request, admission, error);
    GS_CHECK(result < 0 || allotment_is_valid(&admission->allotment, state));
    if (result < 0 || !given->ceilings)
        return result;
    struct ceiling_ask old = {0};
    struct ceiling_ask ask =
        ask_of(&admission->allotment, admission->waits, admission->queued_bytes, state->gpu_count);
    if (held)
        old = ask_of(held, false, 0, state->gpu_count);
    return ceilings_check(given->ceilings, &given->others, &ask, held ? &old : NULL, error);
}

void admission_reserve(struct admission_gpu *gpu, uint64_t limit_bytes, bool can_move, bool may_pass_card)
{
    uint64_t limit = may_pass_card && limit_bytes > gpu->total_bytes ? gpu->total_bytes : limit_bytes;
    uint64_t stays = gpu->context_bytes < limit ? gpu->context_bytes : limit;
    uint64_t moving = admission_moving_bytes(limit, stays);
    uint64_t *most = may_pass_card ? &gpu->paged_bytes : &gpu->movable_bytes;
    if (!can_move) {
        gpu->reserved_bytes = saturating_add(gpu->reserved_bytes, limit);
        return;
    }
    gpu->staying_bytes = saturating_add(gpu->staying_bytes, stays);
    *most = moving > *most ? moving : *most;
}

void admission_promise(struct admission_state *state, const struct allotment *allotment)
{
    GS_CHECK(admission_state_is_valid(state) && allotment_is_valid(allotment, state));
    for (unsigned i = 0; i < allotment->gpu_count; i++) {
        const struct allotment_gpu *gpu = &allotment->gpus[i];
        if (gpu->gpu < 0)
            continue;
        state->gpus[gpu->gpu].promised_share += allotment->compute.min;
        if (gpu->reserved)
            admission_reserve(&state->gpus[gpu->gpu], gpu->limit_bytes, allotment->can_move,
                              allotment->may_pass_card);
    }
}
