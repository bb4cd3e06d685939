/* What users' sessions may still take to be measured, and what they took beyond their part. The debt outlives the sessions, so that no user gets rid of it by
 * making new ones. It is paid back in the time in which the user's part of the GPU comes to as much. */
#include <stdlib.h>

#include "daemon/schedule/account/account.h"

static double measure_left(const struct arbiter_user *user, uint64_t now)
{
    return fmin(user->measure_ns + (double)(now - user->measured_at) * MEASURE_RATE, MEASURE_NS);
}

double account_measure_left(const struct arbiter_session *session)
{
    return measure_left(session->account.user, session->arbiter->now);
}

void account_take_measure(struct arbiter_session *session, double ns)
{
    struct arbiter_user *user = session->account.user;
    user->measure_ns = account_measure_left(session) - ns;
    user->measured_at = session->arbiter->now;
}

static double debt_now(const struct debt *debt, uint64_t now)
{
    double left = debt->ns - debt->rate * (double)(now - debt->since);
    return left > 0 ? left : 0;
}

/* Of several sessions that were ahead at once, only the one that was furthest ahead counts, since each has a part
 * of its own. */
static void add_debt(struct debt *debt, double ns, double rate, uint64_t now)
{
    ns = ns < DEBT_MOST_NS ? ns : DEBT_MOST_NS;
    if (ns > debt_now(debt, now))
        *debt = (struct debt){.ns = ns, .rate = rate, .since = now};
}

static bool owes(const struct arbiter_user *user, uint64_t now)
{
    if (debt_now(&user->overdrawn, now) > 0 || measure_left(user, now) < MEASURE_NS)
        return true;
    for (unsigned gpu = 0; gpu < ARBITER_GPUS; gpu++)
        if (debt_now(&user->ahead[gpu], now) > 0)
            return true;
    return false;
}

static void forget_idle_users(struct arbiter *arbiter)
{
    for (struct arbiter_user **at = &arbiter->users; *at;) {
        struct arbiter_user *user = *at;
        if (user->sessions || owes(user, arbiter->now)) {
            at = &user->next;
        } else {
            *at = user->next;
            free(user);
        }
    }
}

struct arbiter_user *account_user_enter(struct arbiter *arbiter, uint64_t id)
{
    struct arbiter_user *user;
    forget_idle_users(arbiter);
    for (user = arbiter->users; user && user->id != id;)
        user = user->next;
    if (!user) {
        user = calloc(1, sizeof(*user));
        if (!user)
            return NULL;
        user->id = id;
        user->measure_ns = MEASURE_NS;
        user->measured_at = arbiter->now;
        user->next = arbiter->users;
        arbiter->users = user;
    }
    user->sessions++;
    return user;
}

void account_users_free(struct arbiter *arbiter)
{
    while (arbiter->users) {
        struct arbiter_user *user = arbiter->users;
        arbiter->users = user->next;
        free(user);
    }
}

void account_leave_turns(struct arbiter_session *session)
{
    const struct arbiter *arbiter = session->arbiter;
    session->account.in_turns = false;
    for (unsigned gpu = 0; gpu < ARBITER_GPUS; gpu++) {
        double ahead = session->account.vt[gpu] - arbiter->gpus[gpu].account.clock[session->facts.priority];
        if (is_on(debt_ahead) && ahead > 0)
            add_debt(&session->account.user->ahead[gpu], ahead * session->account.weight,
                     session->account.weight, arbiter->now);
    }
}

void account_join_turns(struct arbiter_session *session)
{
    const struct arbiter *arbiter = session->arbiter;
    session->account.in_turns = true;
    FOR_GPUS (gpu, session->facts.gpus) {
        double ahead = debt_now(&session->account.user->ahead[gpu], arbiter->now) / session->account.weight;
        session->account.vt[gpu] = arbiter->gpus[gpu].account.clock[session->facts.priority] +
                                   fmin(ahead, account_most_ahead(session));
    }
}

void account_end(struct arbiter_session *session)
{
    if (session->account.in_turns)
        account_leave_turns(session);
    session->account.user->sessions--;
    double rate = (double)session->facts.share.max / SHARE_WHOLE;
    if (is_on(debt_overdrawn) && is_capped(session) && session->account.tokens < 0)
        add_debt(&session->account.user->overdrawn, -session->account.tokens, rate, session->arbiter->now);
}

double account_overdraft(const struct arbiter_session *session)
{
    return debt_now(&session->account.user->overdrawn, session->arbiter->now);
}
