/* Says which guests take turns for a while: those that get less than their minimum (needy), and those that take what
 * others lack.
 *
 * A guest's progress is counted from how long it has no work before the GPU (estimate/learn.c), which is right for a
 * program that makes its next call when it is done with the last one and with its own affairs. A service whose
 * requests come at times of their own has less idle time where each of them takes longer, and still answers all of
 * them as soon as alone. By that count it may look needy, and turns then make each request wait for others' turns,
 * for nothing. So a needy guest's turns are a trial: what they bring is compared with what they should bring by that
 * count. Where they bring no more calls a second, the guest was not needy. */
#include "daemon/schedule/role/role.h"

/* What others may lack until guests take turns for their sake; and where a guest was one of those until a short while ago. */
#define ROBBED_NS (2 * NEEDY_NS)
#define ROBBED_AGAIN_NS NEEDY_NS

void role_forget_need(struct arbiter_session *session)
{
    session->role.needy = session->role.donor = session->role.content =
        (struct backoff){.length = BACKOFF_FIRST_NS};
    session->role.as_guest = session->role.in_turns = (struct pace){0};
}

bool role_is_needy(const struct arbiter_session *session)
{
    return !session->estimate.is_dense && backoff_lasts(&session->role.needy, session->arbiter->now);
}

/* --- Trials ---------------------------------------------------------------------------------------- */

void role_count_turns(struct arbiter_session *session)
{
    struct pace all = {session->account.passed_ns, session->account.speed_ns, session->facts.calls};
    const struct pace *seen = &session->role.seen;
    if (backoff_lasts(&session->role.needy, session->arbiter->now) && session->role.takes_turns) {
        session->role.in_turns.ns += all.ns - seen->ns;
        session->role.in_turns.speed_ns += all.speed_ns - seen->speed_ns;
        session->role.in_turns.calls += all.calls - seen->calls;
    }
    session->role.seen = all;
}

void role_count_guest(struct arbiter_session *session, const struct judged *judged)
{
    struct pace *pace = &session->role.as_guest;
    if (judged->is_alone) {
        *pace = (struct pace){0};
        return;
    }
    pace->ns += judged->whole_ns;
    pace->speed_ns += judged->speed * judged->passed_ns;
    pace->calls += judged->calls;
    double kept = fmin(PROCESS_SMOOTH_NS / pace->ns, 1);
    *pace = (struct pace){pace->ns * kept, pace->speed_ns * kept, pace->calls * kept};
}

/* How many calls the session would have made in `ns` at that pace. */
static double calls_in(const struct pace *pace, double ns)
{
    return pace->ns > 0 ? pace->calls / pace->ns * ns : 0;
}

/* How much so many calls may be off, if they are estimated from `a` calls and compared with `b` calls, all of which
 * came by chance. */
static double by_chance(double calls, double a, double b)
{
    return calls * sqrt(1 / fmax(a, 1) + 1 / fmax(b, 1));
}

static double speed_at(const struct pace *pace)
{
    return pace->ns > 0 ? pace->speed_ns / pace->ns : 1;
}

/* Whether its turns bring the session far fewer calls than its speed in them says. If it is no faster in them by that
 * count either, they should bring none. */
static bool are_turns_in_vain(const struct arbiter_session *session)
{
    const struct pace *guest = &session->role.as_guest, *turns = &session->role.in_turns;
    if (turns->ns < TRIAL_NS || guest->ns < WINDOW_NS || turns->calls < 1 || guest->calls < 1 ||
        guest->speed_ns <= 0 || speed_at(guest) > promised_part(session) * ABOUT_MIN)
        return false;
    double before = calls_in(guest, turns->ns), brought = turns->calls - before;
    double should_bring = before * (speed_at(turns) / speed_at(guest) - 1);
    double chance = by_chance(before, guest->calls, turns->calls);
    return should_bring > SURE * chance && brought < OF_USE * should_bring;
}

/* The session is as fast as a guest as in turns: its turns end, and those that others take for its sake. */
static void end_trial(struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    for (struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at->facts.gpus & session->facts.gpus)
            backoff_end(&at->role.donor, now);
    backoff_end(&session->role.needy, now);
    session->role.needy.length = BACKOFF_FIRST_NS;
    backoff_begin(&session->role.content, now);
    session->role.as_guest = (struct pace){0};
}

bool role_is_content(const struct arbiter_session *session)
{
    const struct pace *guest = &session->role.as_guest, *turns = &session->role.in_turns;
    double in_turns = calls_in(turns, guest->ns);
    return backoff_lasts(&session->role.content, session->arbiter->now) &&
           guest->calls + SURE * by_chance(in_turns, guest->calls, turns->calls) >= SAME_PACE * in_turns;
}

/* Whether the session gets less than its minimum as a guest. */
static bool lacks(const struct arbiter_session *session)
{
    uint64_t known_ns = session->arbiter->now - session->estimate.known_at;
    return session->facts.lease == LEASE_GUEST && session->account.owed_ns >= NEEDY_NS &&
           known_ns >= NEEDY_AFTER_NS && !role_is_content(session);
}

/* Of the sessions on its GPUs, the one that uses most: its serial number; 0: none is there. */
static uint64_t heaviest_beside(const struct arbiter_session *session)
{
    const struct arbiter_session *heaviest = NULL;
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && (!heaviest || at->estimate.share_used > heaviest->estimate.share_used))
            heaviest = at;
    return heaviest ? heaviest->serial : 0;
}

/* Whether nobody else takes turns, so that the session's own bring nothing before those do that take what it lacks. */
static bool is_among_guests(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (meets(at, session) && at->role.takes_turns)
            return false;
    return true;
}

bool role_find_needy(struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    bool is_in_vain = is_on(content) && role_is_needy(session) && are_turns_in_vain(session);
    if (is_in_vain)
        end_trial(session);
    if (!is_on(needy))
        return false;
    if (is_in_vain || backoff_lasts(&session->role.needy, now) || !lacks(session))
        return is_in_vain;
    backoff_begin(&session->role.needy, now);
    session->role.content.until = 0;
    session->role.in_turns = (struct pace){0};
    session->role.got = speed_at(&session->role.as_guest);
    session->role.beside = heaviest_beside(session);
    if (is_on(among_guests) && is_among_guests(session))
        role_find_donors(session, INFINITY);
    return false;
}

/* --- Those who take what others lack --------------------------------------------------------------- */

/* Have a guest take turns because others lack what it takes. */
static void give_for_others(struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    struct backoff *donor = &session->role.donor;
    if (now - donor->until > BACKOFF_MOST_NS)
        donor->length = BACKOFF_FIRST_NS;
    backoff_begin(donor, now);
}

/* The part of a GPU's time that a guest keeps from others. Work that needs several GPUs occupies each of them while
 * it waits for another. */
static double taken_by(const struct arbiter_session *guest)
{
    return has_several_gpus(guest) ? guest->estimate.share_busy : guest->estimate.share_used;
}

/* How much others may lack until the guest is one who takes it: less where it was one until a short while ago. */
static double robs_at_ns(const struct arbiter_session *guest)
{
    uint64_t until = guest->role.donor.until;
    return is_on(robbed_again) && until && guest->arbiter->now - until < BACKOFF_FIRST_NS ? ROBBED_AGAIN_NS
                                                                                          : ROBBED_NS;
}

void role_find_donors(const struct arbiter_session *robbed, double lacks_ns)
{
    if (!is_on(donors) || lacks_ns < ROBBED_AGAIN_NS)
        return;
    for (struct arbiter_session *at = robbed->arbiter->sessions; at; at = at->next) {
        if (!meets(at, robbed) || at->role.takes_turns || lacks_ns < robs_at_ns(at))
            continue;
        if (taken_by(at) > fmax(promised_part(at), GUEST_LITTLE) + GUEST_BEYOND)
            give_for_others(at);
    }
}
