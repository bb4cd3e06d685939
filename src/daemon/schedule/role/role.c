#include "daemon/schedule/role/role.h"

void role_begin(struct arbiter_session *session)
{
    role_forget_need(session);
    role_favour_begin(session);
}

/* Whether a guest is there, whose gate would close while the session is measured. Who takes turns waits for turns anyway. */
static bool is_beside_guests(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && at->processes && !at->role.takes_turns)
            return true;
    return false;
}

bool role_is_new(const struct arbiter_session *session)
{
    return !session->estimate.known_at;
}

/* A newcomer is a guest, whose use is guessed, as long as measuring it would cost others too much: where its user has
 * measured enough of late, and at first beside guests of a higher priority. */
static bool is_to_be_measured(const struct arbiter_session *session)
{
    if (session->estimate.is_known)
        return false;
    if (!role_is_new(session) || !is_beside_guests(session))
        return true;
    if (session->arbiter->now - session->facts.came_at < MEASURE_BELOW_NS && facts_is_below_a_guest(session))
        return false;
    return account_measure_left(session) > (session->role.is_measured ? 0 : (double)ESTIMATE_MEASURE_NS / 2);
}

void role_pass(struct arbiter *arbiter, double passed)
{
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (is_measuring(at) && role_is_new(at) && at->facts.lease == LEASE_EXCLUSIVE && is_beside_guests(at))
            account_take_measure(at, passed / estimate_measured_count(at));
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

static enum arbiter_why find_why(const struct arbiter_session *session)
{
    const struct session_role *role = &session->role;
    uint64_t now = session->arbiter->now;
    if (role->is_measured)
        return WHY_MEASURED;
    if (session->estimate.is_dense)
        return WHY_DENSE;
    if (session->estimate.understates)
        return WHY_UNDERSTATES;
    if (backoff_lasts(&role->needy, now))
        return WHY_NEEDY;
    if (backoff_lasts(&role->donor, now))
        return WHY_DONOR;
    if (is_on(below_dense) && is_below_a_dense_one(session))
        return WHY_BELOW;
    return role_is_content(session) ? WHY_CONTENT : WHY_LIGHT;
}

enum role_change role_find(struct arbiter_session *session)
{
    bool took_turns = session->role.takes_turns;
    session->role.is_measured = is_to_be_measured(session);
    session->role.why = find_why(session);
    session->role.takes_turns = session->role.why >= WHY_MEASURED;
    if (session->role.takes_turns == took_turns)
        return ROLE_STAYS;
    return took_turns ? ROLE_BECOMES_GUEST : ROLE_TAKES_TURNS;
}

uint64_t role_next(const struct arbiter_session *session)
{
    const struct session_role *role = &session->role;
    uint64_t now = session->arbiter->now, next = NEVER;
    if (backoff_lasts(&role->needy, now))
        next = role->needy.until;
    if (backoff_lasts(&role->donor, now))
        next = earliest(next, role->donor.until);
    if (session->facts.lease == LEASE_GUEST && !role_is_favoured(session))
        next = earliest(next, role->favour.pause.until);
    return next;
}
