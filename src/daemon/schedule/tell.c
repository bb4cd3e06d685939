/* What the arbiter tells of sessions and GPUs to those who ask. It changes nothing. */
#include "daemon/schedule/arbiter.h"
#include "daemon/schedule/lease/lease.h"

uint64_t arbiter_quantum(const struct arbiter *arbiter)
{
    return estimate_turn_ns(arbiter);
}

bool arbiter_quantum_is_auto(const struct arbiter *arbiter)
{
    return !arbiter->quantum_fixed_ns;
}

uint64_t arbiter_gap(const struct arbiter *arbiter)
{
    return (uint64_t)arbiter->gap_ns;
}

enum arbiter_mode arbiter_mode(const struct arbiter *arbiter, unsigned gpu, uint64_t now)
{
    if (!(arbiter->shares >> gpu & 1))
        return ARBITER_MODE_FREE;
    uint64_t waited_at = arbiter->gpus[gpu].lease.waited_at;
    return waited_at && now < waited_at + OPEN_AFTER_NS ? ARBITER_MODE_SHARES : ARBITER_MODE_OPEN;
}

uint64_t arbiter_handovers(const struct arbiter *arbiter, unsigned gpu)
{
    return arbiter->gpus[gpu].lease.handovers;
}

enum arbiter_lease arbiter_session_lease(const struct arbiter_session *session)
{
    return session->facts.lease;
}

uint64_t arbiter_session_asked(const struct arbiter_session *session, unsigned *steps)
{
    *steps = session->facts.closing ? session->lease.steps : 0;
    return session->facts.closing ? session->lease.closing_at : 0;
}

bool arbiter_session_waits(const struct arbiter_session *session)
{
    return facts_is_waiting(session);
}

bool arbiter_session_is_undrainable(const struct arbiter_session *session)
{
    return session->lease.tries >= TRIES_UNDRAINABLE;
}

uint64_t arbiter_session_waited(const struct arbiter_session *session)
{
    return session->facts.waited_ns;
}

const uint64_t *arbiter_session_waits_by_length(const struct arbiter_session *session)
{
    return session->facts.waits;
}

bool arbiter_session_understates(const struct arbiter_session *session)
{
    return session->estimate.understates;
}

bool arbiter_session_takes_turns(const struct arbiter_session *session)
{
    return session->role.takes_turns;
}

enum arbiter_why arbiter_session_why(const struct arbiter_session *session, double *got, void **beside)
{
    enum arbiter_why why = session->facts.gpus ? session->role.why : WHY_FREE;
    *got = session->role.got;
    *beside = NULL;
    for (struct arbiter_session *at = session->arbiter->sessions; at && why == WHY_NEEDY; at = at->next)
        if (at->serial == session->role.beside)
            *beside = at->owner;
    return why;
}

uint64_t arbiter_session_overruns(const struct arbiter_session *session)
{
    return session->lease.overruns;
}

uint64_t arbiter_session_used(const struct arbiter_session *session, unsigned gpu)
{
    return (uint64_t)session->estimate.used[gpu].ns;
}

uint64_t arbiter_session_held(const struct arbiter_session *session, unsigned gpu)
{
    return (uint64_t)session->account.held_ns[gpu];
}

double arbiter_session_progress(const struct arbiter_session *session)
{
    return session->account.progress;
}

double arbiter_session_achieved(const struct arbiter_session *session, unsigned gpu, uint64_t now)
{
    return estimate_achieved(session, gpu, now);
}
