#include "daemon/session/promises.h"

#include <errno.h>
#include <string.h>

#include "base/process.h"
#include "base/saturating.h"
#include "daemon/gpu/nvml.h"
#include "daemon/gpu/traits.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t promises_outside_bytes(const struct daemon *daemon, unsigned gpu)
{
    const struct gpu *card = &daemon->gpus[gpu];
    uint64_t sum = 0, ticks;
    for (unsigned i = 0; i < card->process_count; i++) {
        const struct nvml_process *process = &card->processes[i];
        sum = saturating_add(sum, process->dead_bytes);
        /* A process in the sample may have died since. */
        if (!process_session_of(daemon, process->pid) && process_start_time(process->pid, &ticks) != -ESRCH)
            sum = saturating_add(sum, process->used_bytes);
    }
    return sum;
}

static void reserve(const struct session *session, const struct session_gpu *gpu,
                    struct admission_gpu *promised)
{
    if (gpu->reserved)
        admission_reserve(promised, gpu->limit_bytes, session_can_move(session),
                          session->properties.may_pass_card);
}

void promises_add(const struct session *session, struct admission_state *state)
{
    for (unsigned i = 0; i < session->gpu_count; i++) {
        const struct session_gpu *gpu = &session->gpus[i];
        if (gpu->gpu < 0)
            continue;
        state->gpus[gpu->gpu].promised_share += session->properties.compute.min;
        reserve(session, gpu, &state->gpus[gpu->gpu]);
    }
}

static bool keeps(const struct daemon *daemon, unsigned gpu, enum ledger_engine engine)
{
    return gpu_why_stays(&daemon->gpus[gpu], engine) != NULL;
}

void promises_gather_none(const struct daemon *daemon, struct admission_state *state)
{
    state->gpu_count = daemon->gpu_count;
    state->ceilings = NULL;
    state->packs = daemon->config.daemon.placement_packs;
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        state->gpus[i] = (struct admission_gpu){
            .label = daemon->gpus[i].label,
            .total_bytes = daemon->gpus[i].total_bytes,
            .kept_bytes = daemon->gpus[i].kept_bytes,
            .context_bytes = daemon->gpus[i].context_bytes,
            .keeps = {[LEDGER_ENGINE_SWAP] = keeps(daemon, i, LEDGER_ENGINE_SWAP),
                      [LEDGER_ENGINE_MANAGED] = keeps(daemon, i, LEDGER_ENGINE_MANAGED)}};
}

void promises_gather(const struct daemon *daemon, const struct session *except, struct admission_state *state)
{
    promises_gather_none(daemon, state);
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        state->gpus[i].outside_bytes = promises_outside_bytes(daemon, i);
    for (const struct session *at = daemon->sessions; at; at = at->next)
        if (at != except)
            promises_add(at, state);
}

void promises_gather_ceilings(const struct daemon *daemon, uid_t owner, const struct session *except,
                              struct ceilings *ceilings, struct admission_state *state)
{
    struct ceiling_use *others = &state->others;
    ceilings_find(&daemon->config, owner, ceilings);
    state->ceilings = ceilings;
    *others = (struct ceiling_use){.gpu_count = daemon->gpu_count};
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        others->gpus[i].label = daemon->gpus[i].label;
    for (const struct session *at = daemon->sessions; at; at = at->next) {
        if (at == except || at->owner != owner)
            continue;
        others->sessions++;
        if (at->state == SESSION_QUEUED) {
            others->memory_bytes = saturating_add(others->memory_bytes, at->queued_bytes);
            for (unsigned i = 0; i < daemon->gpu_count; i++) /* it may be admitted on any of them */
                others->gpus[i].compute += at->properties.compute.max;
            continue;
        }
        for (unsigned i = 0; i < at->gpu_count; i++) {
            others->memory_bytes = saturating_add(others->memory_bytes, at->gpus[i].limit_bytes);
            if (at->gpus[i].gpu >= 0)
                others->gpus[at->gpus[i].gpu].compute += at->properties.compute.max;
        }
    }
}

void promises_to(const struct session *session, struct allotment *allotment)
{
    *allotment = (struct allotment){.gpu_count = session->gpu_count,
                                    .compute = session->properties.compute,
                                    .priority = session->properties.priority};
    allotment->can_move = session_can_move(session);
    allotment->may_pass_card = session->properties.may_pass_card;
    for (unsigned i = 0; i < session->gpu_count; i++)
        allotment->gpus[i] = (struct allotment_gpu){
            .gpu = session->gpus[i].gpu,
            .limit_bytes = session->gpus[i].limit_bytes,
            .reserved = session->gpus[i].reserved,
        };
}

uint64_t promises_reserved_bytes(const struct daemon *daemon, unsigned gpu)
{
    struct admission_gpu promised = {.total_bytes = daemon->gpus[gpu].total_bytes,
                                     .context_bytes = daemon->gpus[gpu].context_bytes};
    for (const struct session *at = daemon->sessions; at; at = at->next)
        for (unsigned i = 0; i < at->gpu_count; i++)
            if (at->gpus[i].gpu == (int)gpu)
                reserve(at, &at->gpus[i], &promised);
    return saturating_add(saturating_add(promised.reserved_bytes, promised.staying_bytes),
                          larger(promised.movable_bytes, promised.paged_bytes));
}
