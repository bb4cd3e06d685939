#include "daemon/schedule/standing.h"

#include "base/clock.h"
#include "daemon/session/session.h"

struct standing standing_of(const struct session *session)
{
    const struct arbiter_session *arbitrated = session->arbitrated;
    if (!arbitrated)
        return (struct standing){.lease = LEASE_NONE};
    return (struct standing){
        .lease = arbiter_session_lease(arbitrated),
        .waits = arbiter_session_waits(arbitrated),
        .is_undrainable = arbiter_session_is_undrainable(arbitrated),
        .waited_ns = arbiter_session_waited(arbitrated),
        .overruns = arbiter_session_overruns(arbitrated),
        .understates = arbiter_session_understates(arbitrated),
        .waits_by_length = arbiter_session_waits_by_length(arbitrated),
        .takes_turns = arbiter_session_takes_turns(arbitrated),
        .progress = arbiter_session_progress(arbitrated),
    };
}

uint64_t standing_used_ns(const struct session *session, unsigned policy_gpu)
{
    int gpu = session->gpus[policy_gpu].gpu;
    return session->arbitrated && gpu >= 0 ? arbiter_session_used(session->arbitrated, (unsigned)gpu) : 0;
}

uint64_t standing_held_ns(const struct session *session, unsigned policy_gpu)
{
    int gpu = session->gpus[policy_gpu].gpu;
    return session->arbitrated && gpu >= 0 ? arbiter_session_held(session->arbitrated, (unsigned)gpu) : 0;
}

double standing_achieved_ratio(const struct session *session, unsigned policy_gpu)
{
    int gpu = session->gpus[policy_gpu].gpu;
    return session->arbitrated && gpu >= 0
               ? arbiter_session_achieved(session->arbitrated, (unsigned)gpu, monotonic_ns())
               : 0;
}

const char *standing_lease_name(enum arbiter_lease lease)
{
    static const char *const names[] = {
        [LEASE_NONE] = "none",   [LEASE_FREE] = "free",   [LEASE_EXCLUSIVE] = "exclusive",
        [LEASE_GUEST] = "guest", [LEASE_LOOSE] = "loose",
    };
    return names[lease];
}

const char *standing_mode_name(enum arbiter_mode mode)
{
    static const char *const names[] = {
        [ARBITER_MODE_FREE] = "free", [ARBITER_MODE_OPEN] = "open", [ARBITER_MODE_SHARES] = "shares"};
    return names[mode];
}
