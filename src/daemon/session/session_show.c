#include "daemon/session/session_show.h"

#include <stdio.h>

#include "daemon/gpu/traits.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

const char *session_gpu_uuid(const struct session_gpu *gpu, char text[static GPU_UUID_TEXT])
{
    gpu_uuid_format(gpu->uuid, text);
    return gpu->is_mig ? gpu_uuid_set_mig(text) : text;
}

const char *session_state_name(const struct session *session)
{
    static const char *const names[] = {
        [SESSION_QUEUED] = "queued", [SESSION_ACTIVE] = "active", [SESSION_EXPIRED] = "expired"};
    return names[session->state];
}

uint64_t session_used(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = session_charged(session, policy_gpu);
    if (__builtin_add_overflow(sum, session->gpus[policy_gpu].driver_bytes, &sum) ||
        __builtin_add_overflow(sum, session->gpus[policy_gpu].orphan_bytes, &sum))
        return UINT64_MAX;
    return sum;
}

static uint64_t add_charged(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = ledger_joint_total_bytes(session->ledger.usage, policy_gpu);
    if (__builtin_add_overflow(sum, ledger_left(session->ledger.usage, policy_gpu), &sum))
        return UINT64_MAX;
    for (const struct process *process = session->processes; process; process = process->next)
        if (__builtin_add_overflow(sum, ledger_slot_bytes(session->ledger.usage, process->slot, policy_gpu),
                                   &sum))
            return UINT64_MAX;
    return sum;
}

uint64_t session_charged(const struct session *session, unsigned policy_gpu)
{
    const struct ledger_usage *usage = session->ledger.usage;
    uint64_t sum, stamp;
    unsigned sums = 0;
    if (!usage)
        return 0;
    do {
        stamp = ledger_stamp(usage, policy_gpu);
        sum = add_charged(session, policy_gpu);
    } while (ledger_stamp(usage, policy_gpu) != stamp && ++sums < LEDGER_SUMS);
    return sum;
}

const char *session_why_stays(const struct session *session, enum ledger_engine engine,
                              char text[static SESSION_STAYS_TEXT])
{
    for (unsigned i = 0; i < session->gpu_count; i++) {
        const struct gpu *card =
            session->gpus[i].gpu >= 0 ? &session->daemon->gpus[session->gpus[i].gpu] : NULL;
        const char *why = card ? gpu_why_stays(card, engine) : NULL;
        if (!why)
            continue;
        snprintf(text, SESSION_STAYS_TEXT, "GPU %s: %s", card->label, why);
        return text;
    }
    return NULL;
}

const char *session_shown_stays(const struct session *session, char text[static SESSION_STAYS_TEXT])
{
    bool was_to_swap = session->properties.engine == LEDGER_ENGINE_PLAIN &&
                       session->properties.when_full == WHEN_FULL_OVERSUBSCRIBE;
    return session_why_stays(session, was_to_swap ? LEDGER_ENGINE_SWAP : session->properties.engine, text);
}

uint64_t session_refused(const struct session *session)
{
    uint64_t sum = session->refused_before;
    for (const struct process *process = session->processes; process; process = process->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            sum += process_counts(process, i).refused;
    return sum;
}
