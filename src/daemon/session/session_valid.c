#include "daemon/session/session_valid.h"

#include "daemon/loop/daemon.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* It lies between its neighbours, and younger sessions come later. */
static bool has_valid_place(const struct session *session)
{
    const struct daemon *daemon = session->daemon;
    const struct session *previous = session->previous, *next = session->next;
    return !session->has_ended && session->number > 0 && session->number <= daemon->sessions_seen &&
           daemon->session_count > 0 &&
           (previous ? previous->next == session && previous->number < session->number
                     : daemon->sessions == session) &&
           (next ? next->previous == session && next->number > session->number
                 : daemon->last_session == session);
}

static bool has_valid_name(const struct session *session)
{
    return identity_is_id(session->id) && identity_is_valid(session->name) && session->token[0];
}

static bool has_valid_limits(const struct session *session)
{
    const struct session_properties *properties = &session->properties;
    for (unsigned i = 0; i < session->gpu_count && i < LEDGER_GPUS; i++)
        if (session->gpus[i].gpu < -1 || session->gpus[i].gpu >= (int)session->daemon->gpu_count)
            return false;
    return session->gpu_count <= LEDGER_GPUS && properties->compute.min <= properties->compute.max &&
           properties->compute.max <= SHARE_WHOLE && properties->priority < PRIORITY_COUNT &&
           properties->engine < LEDGER_ENGINE_COUNT;
}

static bool has_valid_processes(const struct session *session)
{
    const struct process *newest = session->processes, *oldest = session->oldest_process;
    bool has_any = session->process_count > 0;
    return has_any == (newest != NULL) && has_any == (oldest != NULL) &&
           (!has_any || (!newest->newer && !oldest->next)) &&
           session->process_count <= session->processes_seen;
}

/* Only a queued session is in the queue, and no process gets into it. */
static bool has_valid_state(const struct session *session)
{
    bool is_queued = session->state == SESSION_QUEUED;
    bool is_used = session->ledger.usage || session->processes || session->release;
    return session->state <= SESSION_QUEUED && !(session->queued && !is_queued) && !(is_used && is_queued);
}

static bool has_valid_holdings(const struct session *session)
{
    return (!session->ledger.usage || (session->ledger.policy && session->ledger_counts)) &&
           (session->runner.pidfd < 0 || (session->runner.pid > 0 && session->runner.source)) &&
           (session->orphan_count == 0) == LIST_EMPTY(&session->orphans);
}

bool session_is_valid(const struct session *session)
{
    return has_valid_place(session) && has_valid_name(session) && has_valid_limits(session) &&
           has_valid_processes(session) && has_valid_state(session) && has_valid_holdings(session);
}
