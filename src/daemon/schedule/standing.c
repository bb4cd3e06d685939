#include "daemon/schedule/standing.h"

#include <stdio.h>

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

/* It takes turns since it got less than it was promised. */
static void tell_need(const struct session *session, double got, const struct session *beside, char *text)
{
    int written = snprintf(text, STANDING_WHY, "takes turns: got %.0f %% of %.4g %% promised", 100 * got,
                           session->properties.compute.min / (SHARE_WHOLE / 100.0));
    if (beside)
        snprintf(text + written, STANDING_WHY - (size_t)written, " beside '%s'",
                 *beside->name ? beside->name : beside->id);
}

const char *standing_why(const struct session *session, char *text)
{
    static const char *const whys[] = {
        [WHY_FREE] = "",
        [WHY_LIGHT] = "guest: it leaves gaps for others",
        [WHY_CONTENT] = "guest: turns did not make it faster",
        [WHY_MEASURED] = "takes turns: what its calls cost is being measured",
        [WHY_DENSE] = "takes turns: alone it would keep the GPU busy all the time",
        [WHY_UNDERSTATES] = "takes turns: NVML shows it busier than its programs say",
        [WHY_NEEDY] = "",
        [WHY_DONOR] = "takes turns: it used GPU time that another session was promised",
        [WHY_BELOW] = "takes turns: a session of a higher priority keeps the GPU busy",
    };
    double got;
    void *beside;
    *text = '\0';
    if (!session->arbitrated)
        return text;
    enum arbiter_why why = arbiter_session_why(session->arbitrated, &got, &beside);
    if (why == WHY_NEEDY)
        tell_need(session, got, beside, text);
    else
        snprintf(text, STANDING_WHY, "%s", whys[why]);
    return text;
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
