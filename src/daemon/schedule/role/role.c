#include "daemon/schedule/role/role.h"

void role_begin(struct arbiter_session *session)
{
    role_forget_need(session);
    role_favour_begin(session);
}

void role_pass(struct arbiter *arbiter, double passed)
{
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        role_favour_count(at, passed);
        role_count_turns(at);
    }
}

/* Whether a dense session of a higher priority wants the GPU. */
static bool is_below_a_dense_one(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && at->facts.priority > session->facts.priority && at->estimate.is_dense &&
            account_has_demand(at))
            return true;
    return false;
}

static bool should_take_turns(const struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    return !session->estimate.is_known || session->estimate.is_dense || session->estimate.understates ||
           now < session->role.needy_until || now < session->role.donor_until ||
           is_below_a_dense_one(session);
}

enum role_change role_find(struct arbiter_session *session)
{
    bool took_turns = session->role.takes_turns;
    session->role.takes_turns = should_take_turns(session);
    if (session->role.takes_turns == took_turns)
        return ROLE_STAYS;
    return took_turns ? ROLE_BECOMES_GUEST : ROLE_TAKES_TURNS;
}

uint64_t role_next(const struct arbiter_session *session)
{
    const struct session_role *role = &session->role;
    uint64_t now = session->arbiter->now, next = NEVER;
    if (role->needy_until > now)
        next = role->needy_until;
    if (role->donor_until > now)
        next = earliest(next, role->donor_until);
    if (session->facts.lease == LEASE_GUEST && !role_is_favoured(session))
        next = earliest(next, role->favour.again_at);
    return next;
}
