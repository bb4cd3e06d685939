/* The decisions: from the whole state, who is to hold what, and when to look again. */
#include <stdlib.h>

#include "base/check.h"
#include "daemon/schedule/arbiter_state.h"

/* A lease that nobody wants away is asked about from then on. */
#define REPORT_AFTER_NS UINT64_C(1000000000)
/* A capped session that has used up its bucket starts again with this much, or what it gets in this time. */
#define BUCKET_START_NS 20000000.0
#define BUCKET_START_PERIOD_NS 100000000.0
#define EXTENSION_MIN_NS UINT64_C(1000000)

/* --- Who competes ---------------------------------------------------------------------------------- */

static bool is_restricted(const struct arbiter_session *session)
{
    return session->share.min > 0 || is_capped(session) || session->priority != ARBITER_PRIORITY_NORMAL;
}

static uint64_t gpus_of(const struct arbiter_session *session)
{
    uint64_t gpus = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        gpus |= at->gpus;
    return gpus;
}

static void set_free(struct arbiter_session *session)
{
    if (session->lease == LEASE_FREE && !session->closing)
        return;
    if (session->lease == LEASE_OVERLAP)
        arbiter_charge_overlaps(session->arbiter);
    arbiter_charge(session);
    session->tries = 0;
    arbiter_begin_lease(session, LEASE_FREE);
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_OPEN)
            arbiter_open_gate(at);
}

/* The GPUs on which shares count now: a session leases them as a whole. */
static void set_gpus(struct arbiter_session *session, uint64_t gpus)
{
    uint64_t more = gpus & ~session->gpus;
    if (more)
        arbiter_come_back(session, more);
    session->gpus = gpus;
    if (session->lease == LEASE_FREE) {
        session->held = gpus;
        arbiter_begin_closing(session);
    } else if (is_held(session) && (gpus & ~session->held)) {
        arbiter_begin_closing(session);
    } else if (is_held(session) && gpus != session->held) {
        arbiter_charge(session);
        session->held = gpus;
    }
}

static void find_modes(struct arbiter *arbiter)
{
    uint64_t shares = 0;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (is_restricted(session))
            shares |= gpus_of(session);
    uint64_t changed = shares ^ arbiter->shares;
    arbiter->shares = shares;
    FOR_GPUS (gpu, changed)
        arbiter->calls->mode(arbiter->context, (unsigned)gpu, arbiter_mode(arbiter, (unsigned)gpu));
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        uint64_t gpus = gpus_of(session);
        if (!session->processes)
            session->gpus = 0;
        else if (gpus ? !(gpus & shares) : !is_restricted(session))
            set_free(session);
        else
            set_gpus(session, gpus & shares);
    }
}

static bool has_tokens(struct arbiter_session *session)
{
    if (!is_capped(session))
        return true;
    double start = (double)session->share.max / SHARE_WHOLE * BUCKET_START_PERIOD_NS;
    if (session->tokens >= (start < BUCKET_START_NS ? start : BUCKET_START_NS))
        session->is_throttled = false;
    return !session->is_throttled && session->tokens > 0;
}

/* Whether a session of a higher priority wants one of its GPUs. */
static bool is_outranked(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at->priority > session->priority && at->is_backlogged && (at->gpus & session->gpus))
            return true;
    return false;
}

/* A minimum is kept whatever comes first. */
static void find_due(struct arbiter_session *session)
{
    double owed = arbiter_owed(session);
    if (owed <= 0 || !is_outranked(session))
        session->is_due = false;
    else if (owed >= (double)arbiter_quantum(session->arbiter))
        session->is_due = true;
}

/* Who of those with different ones goes first. */
static unsigned standing(const struct arbiter_session *session)
{
    return session->priority + (session->is_due ? ARBITER_PRIORITIES : 0);
}

/* Notes who waits; those that neither waited nor held come back from idling. */
static void find_backlogged(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        bool was = session->is_backlogged;
        session->is_backlogged = is_held(session) || (arbiter_is_waiting(session) && has_tokens(session));
        if (!session->is_backlogged || was)
            continue;
        session->waits_since = arbiter->now;
    }
    arbiter_weigh(arbiter);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (session->is_backlogged && session->waits_since == arbiter->now && arbiter_is_waiting(session))
            arbiter_come_back(session, session->gpus);
    arbiter_advance_clocks(arbiter);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        session->lag = arbiter_lag(session);
        find_due(session);
    }
}

static bool is_eligible(const struct arbiter_session *session)
{
    return session->is_backlogged && session->lease == LEASE_NONE;
}

static bool precedes(const struct arbiter_session *a, const struct arbiter_session *b)
{
    if (standing(a) != standing(b))
        return standing(a) > standing(b);
    if (a->lag != b->lag)
        return a->lag < b->lag;
    return a->waits_since != b->waits_since ? a->waits_since < b->waits_since : a->serial < b->serial;
}

/* Whether `waiter` may have `holder`'s lease taken away once its turn is over. Of sessions that overlap only
 * one that cannot join them does. */
static bool presses(const struct arbiter_session *waiter, const struct arbiter_session *holder)
{
    if (!is_eligible(waiter) || !(waiter->gpus & holder->held) || standing(waiter) < standing(holder))
        return false;
    if (holder->lease == LEASE_OVERLAP)
        return standing(waiter) > standing(holder) || !waiter->is_sparse;
    return precedes(waiter, holder);
}

/* --- Taking leases away ---------------------------------------------------------------------------- */

static bool is_pressed(const struct arbiter_session *holder)
{
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (presses(at, holder))
            return true;
    return false;
}

static bool is_waited_for(const struct arbiter_session *holder)
{
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (is_eligible(at) && (at->gpus & holder->held) &&
            (holder->lease != LEASE_OVERLAP || !at->is_sparse || at->priority != holder->priority))
            return true;
    return false;
}

static void give_up_closing(struct arbiter_session *session)
{
    arbiter_tell(session, ARBITER_OVERRUN);
    session->overruns++;
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->gate != PROCESS_CLOSING)
            continue;
        at->gate = PROCESS_OVERDUE;
        session->busy_ns += (double)(session->arbiter->now - at->reported_at);
    }
    arbiter_end_lease_if_returned(session, false);
}

/* Others than itself that overlap with it. */
static bool has_company(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && at->lease == LEASE_OVERLAP && (at->held & session->held))
            return true;
    return false;
}

static void end_overlap(struct arbiter_session *session)
{
    for (struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && at->lease == LEASE_OVERLAP && (at->held & session->held))
            arbiter_begin_closing(at);
    arbiter_begin_closing(session);
}

static void become_exclusive(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    session->lease = LEASE_EXCLUSIVE;
    session->charged_at = session->since = arbiter->now;
    session->turn_ends = arbiter->now + arbiter_quantum(arbiter);
    session->busy_ns = 0;
    FOR_GPUS (gpu, session->held)
        session->use[gpu].open_ns = 0;
}

static void balance_overlaps(struct arbiter *arbiter)
{
    bool has_overlap = false;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        has_overlap |= at->lease == LEASE_OVERLAP;
    if (!has_overlap || arbiter->now < arbiter->overlap_since + WIRE_REPORT_NS)
        return;
    uint64_t contended = arbiter_charge_overlaps(arbiter);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        session->lag = arbiter_lag(session);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->lease != LEASE_OVERLAP || session->closing)
            continue;
        if (!has_company(session))
            become_exclusive(session);
        else if (!session->is_sparse)
            end_overlap(session);
        else if ((session->held & contended) &&
                 session->lag * session->weight > (double)arbiter_quantum(arbiter))
            arbiter_begin_closing(session);
    }
}

/* A turn goes on until the holder is ahead of one that waits, at most for another quantum. */
static uint64_t until_overtaken(const struct arbiter_session *holder)
{
    double ns = (double)arbiter_quantum(holder->arbiter);
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (is_eligible(at) && (at->gpus & holder->held) && at->priority == holder->priority &&
            (at->lag - holder->lag) * holder->weight < ns)
            ns = (at->lag - holder->lag) * holder->weight;
    return ns < (double)EXTENSION_MIN_NS ? EXTENSION_MIN_NS : (uint64_t)ns;
}

static void take_away(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->closing) {
            if (arbiter->now >= session->closes_at)
                give_up_closing(session);
            continue;
        }
        if (session->lease == LEASE_LOOSE) {
            if (arbiter->now >= session->retry_at)
                arbiter_begin_closing(session);
            continue;
        }
        if (!arbiter_is_in_the_way(session))
            continue;
        double left = session->tokens - (session->lease == LEASE_EXCLUSIVE ? arbiter_uncharged(session) : 0);
        if (is_capped(session) && left <= 0) {
            session->is_throttled = true;
            arbiter_begin_closing(session);
        } else if (arbiter->now >= session->turn_ends) {
            if (is_pressed(session))
                arbiter_begin_closing(session);
            else if (session->lease == LEASE_EXCLUSIVE)
                session->turn_ends = arbiter->now + until_overtaken(session);
        }
    }
}

/* --- Giving leases --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct arbiter_session *const *left = a, *const *right = b;
    return precedes(*left, *right) ? -1 : precedes(*right, *left);
}

/* Whether it may run beside all that hold its GPUs: neither side keeps them busy, nobody else waits who
 * does, and it is not ahead of them. */
static bool may_overlap(const struct arbiter_session *session)
{
    const struct arbiter *arbiter = session->arbiter;
    if (!session->is_sparse || session->lag * session->weight > (double)arbiter_quantum(arbiter) / 2)
        return false;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (arbiter_is_in_the_way(at) && (at->held & session->gpus) &&
            (at->lease == LEASE_FREE || at->closing || !at->is_sparse || at->priority != session->priority))
            return false;
        if (is_eligible(at) && (at->gpus & session->gpus) && !at->is_sparse &&
            at->priority >= session->priority)
            return false;
    }
    return true;
}

static void overlap(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    arbiter_charge_overlaps(arbiter);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (at->lease != LEASE_EXCLUSIVE || at->closing || !(at->held & session->gpus))
            continue;
        arbiter_charge(at);
        arbiter_begin_overlap(at);
    }
    arbiter_begin_lease(session, LEASE_OVERLAP);
    arbiter_begin_overlap(session);
}

/* A session that waits for several GPUs, of which some stand idle: they are kept for it, if those who hold
 * the others are to give way to it anyway, and those do so now. Else the idle ones go to somebody else
 * meanwhile. All sessions stand in one order, so two that wait for each other's GPUs cannot both keep one. */
static bool keep_for(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (arbiter_is_in_the_way(at) && (at->held & session->gpus) && !at->closing && !precedes(session, at))
            return false;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (arbiter_is_in_the_way(at) && (at->held & session->gpus))
            arbiter_begin_closing(at);
    return true;
}

static uint64_t gpus_in_the_way(const struct arbiter *arbiter)
{
    uint64_t gpus = 0;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (arbiter_is_in_the_way(at))
            gpus |= at->held;
    return gpus;
}

static void give(struct arbiter *arbiter)
{
    unsigned count = 0;
    uint64_t kept = 0;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (is_eligible(at))
            arbiter->order[count++] = at;
    if (count > 1)
        qsort(arbiter->order, count, sizeof(struct arbiter_session *), compare);
    for (unsigned i = 0; i < count; i++) {
        struct arbiter_session *session = arbiter->order[i];
        uint64_t taken = gpus_in_the_way(arbiter);
        if (session->gpus & kept)
            continue;
        if (!(session->gpus & taken))
            arbiter_begin_lease(session, LEASE_EXCLUSIVE);
        else if (may_overlap(session))
            overlap(session);
        else if ((session->gpus & ~taken) && keep_for(session))
            kept |= session->gpus;
    }
}

static void open_gates(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->lease == LEASE_NONE || session->closing)
            continue;
        if (is_held(session)) {
            uint32_t flags = 0;
            if (is_capped(session) || is_waited_for(session))
                flags |= WIRE_LEASE_WANTED;
            if (session->lease != LEASE_EXCLUSIVE || arbiter->now - session->since >= REPORT_AFTER_NS)
                flags |= WIRE_LEASE_REPORT;
            arbiter_raise_flags(session, flags);
        }
        for (struct arbiter_process *at = session->processes; at; at = at->next)
            if (at->gate == PROCESS_CLOSED && (at->wants || session->lease == LEASE_FREE))
                arbiter_open_gate(at);
    }
}

/* --- When next ------------------------------------------------------------------------------------- */

static void earlier(uint64_t *next, uint64_t at)
{
    if (at < *next)
        *next = at;
}

static uint64_t after(const struct arbiter *arbiter, double ns)
{
    return arbiter->now + (ns < 50000 ? UINT64_C(50000) : (uint64_t)ns + 1);
}

static uint64_t next_of(const struct arbiter_session *session)
{
    const struct arbiter *arbiter = session->arbiter;
    double rate = (double)session->share.max / SHARE_WHOLE;
    uint64_t next = NEVER;
    if (session->closing) {
        uint64_t leaves = arbiter_leaves_at(session);
        return leaves > arbiter->now && leaves < session->closes_at ? leaves : session->closes_at;
    }
    if (session->lease == LEASE_LOOSE)
        return session->retry_at;
    if (session->lease == LEASE_OVERLAP)
        earlier(&next, arbiter->overlap_since + WIRE_REPORT_NS);
    if (session->lease == LEASE_EXCLUSIVE && !(session->flags & WIRE_LEASE_REPORT))
        earlier(&next, session->since + REPORT_AFTER_NS);
    if (session->lease == LEASE_EXCLUSIVE && is_capped(session))
        earlier(&next, after(arbiter, (session->tokens - arbiter_uncharged(session)) / (1 - rate)));
    if (arbiter_is_in_the_way(session) && is_waited_for(session))
        earlier(&next, session->turn_ends > arbiter->now ? session->turn_ends
                                                         : arbiter->now + arbiter_quantum(arbiter));
    if (arbiter_is_waiting(session) && session->is_throttled) {
        double start = rate * BUCKET_START_PERIOD_NS;
        start = start < BUCKET_START_NS ? start : BUCKET_START_NS;
        earlier(&next, after(arbiter, (start - session->tokens) / rate));
    }
    return next;
}

/* What holds between any two decisions. */
static void check(const struct arbiter *arbiter)
{
    uint64_t taken = 0;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        GS_CHECK(at->lease != LEASE_NONE || (!at->held && !at->closing));
        GS_CHECK(!(at->held & ~arbiter->shares) || at->lease == LEASE_FREE);
        if (at->lease != LEASE_EXCLUSIVE || !arbiter_is_in_the_way(at))
            continue;
        GS_CHECK(!(at->held & taken));
        taken |= at->held;
    }
}

void arbiter_decide(struct arbiter *arbiter)
{
    find_modes(arbiter);
    find_backlogged(arbiter);
    balance_overlaps(arbiter);
    take_away(arbiter);
    give(arbiter);
    open_gates(arbiter);
    check(arbiter);
    arbiter->next = NEVER;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        earlier(&arbiter->next, next_of(session));
}
