/* The accounts: GPU time, virtual time, buckets. */
#include <string.h>

#include "daemon/schedule/arbiter_state.h"

#define SECOND_NS UINT64_C(1000000000)
/* What a session without a minimum counts at least. */
#define WEIGHT_LEAST 0.01
/* An overlapping session is judged over this long, so that one long piece of work does not count as busy. */
#define DENSE_WINDOW_NS 100000000.0
#define DENSE_RATIO 0.9
/* What is missed or had beyond this is not made up for. */
#define OWED_MOST_NS 100000000.0
/* From this part of its time on, a GPU counts as wanted by more than it can serve. */
#define CONTENDED_RATIO 0.95

static double quantum(const struct arbiter *arbiter)
{
    return (double)arbiter_quantum(arbiter);
}

double arbiter_uncharged(const struct arbiter_session *session)
{
    double most = 0;
    FOR_GPUS (gpu, session->held)
        if (session->use[gpu].open_ns > most)
            most = session->use[gpu].open_ns;
    return most;
}

/* Who does not want the GPU is owed nothing for that time. */
static void promise(struct arbiter_session *session, double passed)
{
    if (session->is_backlogged)
        session->owed_ns += passed * session->share.min / SHARE_WHOLE;
    else if (session->owed_ns > 0)
        session->owed_ns = 0;
    if (session->owed_ns > OWED_MOST_NS)
        session->owed_ns = OWED_MOST_NS;
}

double arbiter_owed(const struct arbiter_session *session)
{
    return session->owed_ns - (is_exclusive(session) ? arbiter_uncharged(session) : 0);
}

/* How many of its processes may have work before the GPU. Where sessions meet there, the driver goes round
 * among processes. */
static unsigned parties(const struct arbiter_session *session)
{
    unsigned count = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        count += at->gate == PROCESS_OPEN || at->gate == PROCESS_CLOSING;
    return count ? count : 1;
}

void arbiter_settle(struct arbiter *arbiter, uint64_t now)
{
    unsigned open[ARBITER_GPUS] = {0};
    if (now <= arbiter->now)
        return;
    double passed = (double)(now - arbiter->now);
    arbiter->now = now;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (is_exclusive(session))
            FOR_GPUS (gpu, session->held)
                open[gpu] += parties(session);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (is_exclusive(session))
            FOR_GPUS (gpu, session->held)
                session->use[gpu].open_ns += passed * parties(session) / open[gpu];
        promise(session, passed);
        if (!is_capped(session))
            continue;
        /* What is taken now is not charged yet, and leaves room for as much. */
        double full = BUCKET_NS + (is_exclusive(session) ? arbiter_uncharged(session) : 0);
        session->tokens += passed * session->share.max / SHARE_WHOLE;
        if (session->tokens > full)
            session->tokens = full;
    }
}

void arbiter_weigh(struct arbiter *arbiter)
{
    uint32_t promised[ARBITER_GPUS] = {0};
    unsigned rest[ARBITER_GPUS] = {0};
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        FOR_GPUS (gpu, session->gpus) {
            promised[gpu] += session->share.min;
            rest[gpu] += session->share.min == 0 && session->is_backlogged;
        }
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        session->weight = session->share.min ? (double)session->share.min / SHARE_WHOLE : 1;
        if (session->share.min)
            continue;
        FOR_GPUS (gpu, session->gpus) {
            double left = 1 - (double)promised[gpu] / SHARE_WHOLE;
            double weight = rest[gpu] > 1 ? left / rest[gpu] : left;
            if (weight < session->weight)
                session->weight = weight;
        }
        if (session->weight < WEIGHT_LEAST)
            session->weight = WEIGHT_LEAST;
    }
}

static double virtual_now(const struct arbiter_session *session, uint64_t gpu)
{
    return session->use[gpu].vt + (is_exclusive(session) ? session->use[gpu].open_ns / session->weight : 0);
}

void arbiter_advance_clocks(struct arbiter *arbiter)
{
    double least[ARBITER_GPUS][ARBITER_PRIORITIES];
    uint64_t found[ARBITER_PRIORITIES] = {0};
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        unsigned priority = session->priority;
        if (!session->is_backlogged || session->lease == LEASE_LOOSE)
            continue;
        FOR_GPUS (gpu, session->gpus) {
            double at = virtual_now(session, gpu);
            if (!(found[priority] & UINT64_C(1) << gpu) || at < least[gpu][priority])
                least[gpu][priority] = at;
        }
        found[priority] |= session->gpus;
    }
    for (unsigned priority = 0; priority < ARBITER_PRIORITIES; priority++)
        FOR_GPUS (gpu, found[priority])
            if (least[gpu][priority] > arbiter->gpus[gpu].clock[priority])
                arbiter->gpus[gpu].clock[priority] = least[gpu][priority];
}

void arbiter_come_back(struct arbiter_session *session, uint64_t gpus)
{
    struct arbiter *arbiter = session->arbiter;
    FOR_GPUS (gpu, gpus) {
        double least = arbiter->gpus[gpu].clock[session->priority] - quantum(arbiter) / session->weight;
        if (session->use[gpu].vt < least)
            session->use[gpu].vt = least;
        if (!session->use[gpu].first_s)
            session->use[gpu].first_s = session->use[gpu].last_s = arbiter->now / SECOND_NS;
    }
}

double arbiter_lag(const struct arbiter_session *session)
{
    bool is_first = true;
    double lag = 0;
    FOR_GPUS (gpu, session->gpus) {
        double ahead = virtual_now(session, gpu) - session->arbiter->gpus[gpu].clock[session->priority];
        if (is_first || ahead > lag)
            lag = ahead;
        is_first = false;
    }
    return lag;
}

/* --- Charging -------------------------------------------------------------------------------------- */

/* Seconds in which nothing was charged are zero. */
static void reach_second(struct use *use, uint64_t second)
{
    const uint64_t length = ARBITER_WINDOW_S + 1;
    if (second - use->last_s >= length)
        memset(use->seconds, 0, sizeof(use->seconds));
    else
        while (use->last_s < second)
            use->seconds[++use->last_s % length] = 0;
    use->last_s = second;
}

static void count_use(struct arbiter_session *session, uint64_t gpu, double used_ns)
{
    struct use *use = &session->use[gpu];
    use->vt += used_ns / session->weight;
    use->used_ns += used_ns;
    reach_second(use, session->arbiter->now / SECOND_NS);
    use->seconds[use->last_s % (ARBITER_WINDOW_S + 1)] += used_ns;
}

static void take_from(struct arbiter_session *session, double used_ns)
{
    session->owed_ns -= used_ns;
    if (session->owed_ns < -OWED_MOST_NS)
        session->owed_ns = -OWED_MOST_NS;
    if (!is_capped(session))
        return;
    session->tokens -= used_ns;
    if (session->tokens > BUCKET_NS)
        session->tokens = BUCKET_NS;
}

double arbiter_charge(struct arbiter_session *session)
{
    double passed = (double)(session->arbiter->now - session->charged_at), most = 0;
    session->charged_at = session->arbiter->now;
    if (!is_exclusive(session) || passed <= 0)
        return -1;
    double busy = session->busy_ns < passed ? session->busy_ns : passed;
    session->busy_ns -= busy;
    FOR_GPUS (gpu, session->held) {
        double used = session->use[gpu].open_ns * busy / passed;
        session->use[gpu].open_ns = 0;
        count_use(session, gpu, used);
        if (used > most)
            most = used;
    }
    take_from(session, most);
    return busy / passed;
}

void arbiter_begin_overlap(struct arbiter_session *session)
{
    session->lease = LEASE_OVERLAP;
    session->busy_ns = session->dense_busy_ns = session->dense_ns = 0;
}

/* What it was busy is its own clock's view: while another's work was on the GPU, that counts too. So what is
 * more than there was is cut down for all alike. */
static void charge_overlap(struct arbiter_session *session, const double *wanted, double passed)
{
    double busy = session->busy_ns < passed ? session->busy_ns : passed, most = 0;
    /* Reports come at each process's own time: what is beyond this window belongs to the next. */
    session->busy_ns -= busy;
    if (session->busy_ns > (double)WIRE_REPORT_NS)
        session->busy_ns = (double)WIRE_REPORT_NS;
    FOR_GPUS (gpu, session->held) {
        double used = wanted[gpu] > passed ? busy * passed / wanted[gpu] : busy;
        count_use(session, gpu, used);
        if (used > most)
            most = used;
    }
    take_from(session, most);
    session->dense_busy_ns += busy;
    session->dense_ns += passed;
    if (session->dense_ns >= DENSE_WINDOW_NS) {
        session->is_sparse = session->dense_busy_ns < DENSE_RATIO * session->dense_ns;
        session->dense_ns = session->dense_busy_ns = 0;
    }
}

/* Where there was enough for all, nobody is owed what it did not want. */
static void forgive(struct arbiter *arbiter, uint64_t gpu)
{
    double most = 0;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (session->lease == LEASE_OVERLAP && (session->held >> gpu & 1) && session->use[gpu].vt > most)
            most = session->use[gpu].vt;
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        double least = most - quantum(arbiter) / session->weight;
        if (session->lease == LEASE_OVERLAP && (session->held >> gpu & 1) && session->use[gpu].vt < least)
            session->use[gpu].vt = least;
    }
}

uint64_t arbiter_charge_overlaps(struct arbiter *arbiter)
{
    double wanted[ARBITER_GPUS] = {0};
    double passed = (double)(arbiter->now - arbiter->overlap_since);
    uint64_t open = 0, contended = 0;
    arbiter->overlap_since = arbiter->now;
    if (passed <= 0)
        return 0;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->lease != LEASE_OVERLAP)
            continue;
        FOR_GPUS (gpu, session->held)
            wanted[gpu] += session->busy_ns < passed ? session->busy_ns : passed;
        open |= session->held;
    }
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (session->lease == LEASE_OVERLAP)
            charge_overlap(session, wanted, passed);
    FOR_GPUS (gpu, open)
        if (wanted[gpu] >= CONTENDED_RATIO * passed)
            contended |= UINT64_C(1) << gpu;
        else
            forgive(arbiter, gpu);
    return contended;
}

/* --- Telling --------------------------------------------------------------------------------------- */

uint64_t arbiter_session_used(const struct arbiter_session *session, unsigned gpu)
{
    return (uint64_t)session->use[gpu].used_ns;
}

double arbiter_session_achieved(const struct arbiter_session *session, unsigned gpu, uint64_t now)
{
    struct use use = session->use[gpu];
    uint64_t second = now / SECOND_NS;
    if (!use.first_s || second <= use.first_s)
        return 0;
    reach_second(&use, second);
    double sum = 0;
    for (unsigned i = 0; i <= ARBITER_WINDOW_S; i++)
        sum += i == second % (ARBITER_WINDOW_S + 1) ? 0 : use.seconds[i];
    uint64_t seconds = second - use.first_s;
    double ratio =
        sum / (double)SECOND_NS / (double)(seconds < ARBITER_WINDOW_S ? seconds : ARBITER_WINDOW_S);
    return ratio < 1 ? ratio : 1;
}
