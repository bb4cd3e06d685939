/* The sessions' accounts: GPU time used and held, virtual time, what is owed, buckets of maxima. */
#include <math.h>
#include <string.h>

#include "daemon/schedule/arbiter.h" /* arbiter_session_used() and others */
#include "daemon/schedule/arbiter_state.h"

#define SECOND_NS UINT64_C(1000000000)
/* The least weight of a session without a minimum. */
#define WEIGHT_LEAST 0.01
/* What a session missed of its minimum, or had beyond it, counts up to this. */
#define OWED_MOST_NS 100000000.0
/* For a program with gaps, what it had beyond counts up to this only: how it fares changes with its neighbours. */
#define AHEAD_MOST_NS 10000000.0
/* A session that has not wanted the GPU for this long counts as idle: after a turn, it would have asked for the
 * next one sooner. */
#define IDLE_NS 5000000.0
/* How far a session may be ahead of others that take turns: two turns, or its own lease if that is longer, and
 * never more than seventy turns. */
#define AHEAD_TURNS 2
#define AHEAD_TURNS_MOST 70
/* Time that was charged to no session, or charged too much, is remembered up to this, since some work is reported
 * late. Where too much was charged, guests whose calls are not alike are charged less, by that time's part of
 * LEFT_PART_NS. */
#define LEFT_MOST_NS 120000000.0
#define LEFT_PART_NS 200000000.0
/* The part of a minimum that hand-overs may cost: a session is not robbed of that. */
#define HANDOVERS_RATIO 0.02

uint64_t arbiter_turn_ns(const struct arbiter *arbiter)
{
    uint64_t quantum = (uint64_t)(arbiter->gap_ns * QUANTUM_GAPS);
    if (arbiter->quantum_fixed_ns)
        return arbiter->quantum_fixed_ns;
    if (arbiter->gap_ns == 0)
        return QUANTUM_START_NS;
    if (quantum < QUANTUM_AUTO_MIN_NS)
        return QUANTUM_AUTO_MIN_NS;
    return quantum < QUANTUM_AUTO_MAX_NS ? quantum : QUANTUM_AUTO_MAX_NS;
}

static double quantum(const struct arbiter *arbiter)
{
    return (double)arbiter_turn_ns(arbiter);
}

double arbiter_uncharged(const struct arbiter_session *session)
{
    double most = 0;
    FOR_GPUS (gpu, session->held)
        if (session->use[gpu].open_ns > most)
            most = session->use[gpu].open_ns;
    return most;
}

/* Add within bounds. What the session takes in its present turn is not charged yet, so that much more may be owed:
 * it comes off later. */
static void add_bounded(const struct arbiter_session *session, double *value, double ns)
{
    double most = OWED_MOST_NS + (is_exclusive(session) ? arbiter_uncharged(session) : 0);
    *value += ns;
    if (*value > most)
        *value = most;
    if (*value < -OWED_MOST_NS)
        *value = -OWED_MOST_NS;
}

void arbiter_owe(struct arbiter_session *session, double ns)
{
    add_bounded(session, &session->owed_ns, ns);
    if (!session->is_dense && session->owed_ns < -AHEAD_MOST_NS)
        session->owed_ns = -AHEAD_MOST_NS;
}

/* Promise each session its minimum of the time that passed. A session that does not want the GPU is owed nothing
 * for that time; for a program with gaps of its own, that time was progress. What a guest is owed follows from what
 * it reports (arbiter_role.c). */
static void promise(struct arbiter_session *session, double passed)
{
    if (session->lease == LEASE_GUEST && !is_still(session))
        return;
    if (session->is_backlogged) {
        arbiter_owe(session, passed * promised_part(session));
        add_bounded(session, &session->robbed_ns, passed * promised_part(session) * (1 - HANDOVERS_RATIO));
        session->idle_ns = 0;
        return;
    }
    session->idle_ns += passed;
    if (session->idle_ns >= IDLE_NS)
        session->robbed_ns = 0;
    if (!session->is_dense && session->processes)
        arbiter_owe(session, passed * (promised_part(session) - 1));
    else if (session->idle_ns >= IDLE_NS && session->owed_ns > 0)
        session->owed_ns = 0;
}

bool arbiter_has_demand(const struct arbiter_session *session)
{
    return session->is_backlogged || (session->processes && session->idle_ns < IDLE_NS);
}

double arbiter_owed(const struct arbiter_session *session)
{
    return session->owed_ns - (is_exclusive(session) ? arbiter_uncharged(session) : 0);
}

/* How many of the session's processes may have work before the GPU, at least 1. Where sessions meet there, the
 * driver goes round among processes. */
static unsigned parties(const struct arbiter_session *session)
{
    unsigned count = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        count += is_let_in(at);
    return count ? count : 1;
}

/* Whether the gates of several of the session's processes may be open. */
static bool is_together(const struct arbiter_session *session)
{
    unsigned count = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        count += at->gate != PROCESS_CLOSED;
    return count > 1;
}

/* Note which sessions have open gates beside others', and which have several open gates of their own. */
static void note_company(struct arbiter *arbiter)
{
    uint64_t open = 0, several = 0;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        several |= open & at->held;
        open |= at->held;
    }
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (at->held & several)
            at->company_at = arbiter->now;
        if (is_together(at))
            at->together_at = arbiter->now;
    }
}

static void add_left(struct arbiter *arbiter, uint64_t gpu, double ns)
{
    double left = arbiter->gpus[gpu].left_ns + ns;
    arbiter->gpus[gpu].left_ns = left > LEFT_MOST_NS    ? LEFT_MOST_NS
                                 : left < -LEFT_MOST_NS ? -LEFT_MOST_NS
                                                        : left;
}

/* The part of a guest's charge that is believed. All sessions together are never charged more than the time that
 * passed. Where they would be, guests whose calls are not alike are charged less, all in proportion: their cost is
 * an average, and the calls at hand may be far from it. */
static double believed_part(const struct arbiter_session *session)
{
    double part = 1;
    if (arbiter_is_charged_by_calls(session))
        return 1;
    FOR_GPUS (gpu, session->held) {
        double left = session->arbiter->gpus[gpu].left_ns;
        part = left < 0 && 1 + left / LEFT_PART_NS < part ? 1 + left / LEFT_PART_NS : part;
    }
    return part;
}

void arbiter_settle(struct arbiter *arbiter, uint64_t now)
{
    unsigned open[ARBITER_GPUS] = {0};
    if (now <= arbiter->now)
        return;
    double passed = (double)(now - arbiter->now);
    arbiter->now = now;
    note_company(arbiter);
    FOR_GPUS (gpu, arbiter->shares)
        add_left(arbiter, gpu, passed);
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (is_exclusive(session) && !is_still(session))
            FOR_GPUS (gpu, session->held)
                open[gpu] += parties(session);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        arbiter_favour_count(session, passed);
        if (is_still(session))
            session->stretch.still_ns += passed;
        else if (is_exclusive(session))
            FOR_GPUS (gpu, session->held)
                session->use[gpu].open_ns += passed * parties(session) / open[gpu];
        promise(session, passed);
        for (struct arbiter_process *at = session->processes; at; at = at->next)
            at->gate_ns += arbiter_process_is_waiting(at) ? passed : 0;
        if (session->takes_turns && !is_held(session))
            arbiter_note_progress(session, arbiter_is_waiting(session) ? 0 : 1, passed);
        if (!is_capped(session))
            continue;
        /* What the session takes in its present turn is not charged yet, so the bucket may hold that much more. */
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
        session->weight = session->share.min ? promised_part(session) : 1;
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

bool arbiter_leaves_the_rest(const struct arbiter_session *session)
{
    return session->is_known && !session->is_dense && !session->understates && session->share.min > 0 &&
           arbiter_owed(session) <= 0;
}

/* Advance the clocks by the sessions of one kind (arbiter_leaves_the_rest()), for GPUs and priorities whose clock
 * was not found before. `found`: on which GPUs there are any, for each priority. */
static void find_clocks(struct arbiter *arbiter, bool leave_the_rest, uint64_t *found)
{
    uint64_t before[ARBITER_PRIORITIES];
    double least[ARBITER_GPUS][ARBITER_PRIORITIES];
    memcpy(before, found, sizeof(before));
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        unsigned priority = session->priority;
        if (!session->is_backlogged || !session->takes_turns || session->lease == LEASE_LOOSE ||
            arbiter_leaves_the_rest(session) != leave_the_rest)
            continue;
        FOR_GPUS (gpu, session->gpus & ~before[priority]) {
            double at = virtual_now(session, gpu);
            if (!(found[priority] & UINT64_C(1) << gpu) || at < least[gpu][priority])
                least[gpu][priority] = at;
            found[priority] |= UINT64_C(1) << gpu;
        }
    }
    for (unsigned priority = 0; priority < ARBITER_PRIORITIES; priority++)
        FOR_GPUS (gpu, found[priority] & ~before[priority])
            if (least[gpu][priority] > arbiter->gpus[gpu].clock[priority])
                arbiter->gpus[gpu].clock[priority] = least[gpu][priority];
}

/* A session that leaves the rest to others does not hold up their clock meanwhile, and gets no credit for it. */
void arbiter_advance_clocks(struct arbiter *arbiter)
{
    uint64_t found[ARBITER_PRIORITIES] = {0};
    find_clocks(arbiter, false, found);
    find_clocks(arbiter, true, found);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (at->is_backlogged && at->takes_turns && arbiter_leaves_the_rest(at))
            arbiter_come_back(at, at->gpus);
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

/* Advance the ring to `second`. Seconds in which nothing was charged are zero. */
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

/* A session never waits for more than seventy turns of others. A turn counts as long as the quantum, or as the
 * session's own longest piece of work if that is longer. */
double arbiter_most_ahead(const struct arbiter_session *session)
{
    double turn = quantum(session->arbiter);
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        turn = fmax(turn, (double)at->longest_ns);
    return AHEAD_TURNS_MOST * turn;
}

/* Advance the session's virtual time. What it takes while others want nothing is not held against it later: it gets
 * ahead by two turns at most, or by the lease that goes on if that is longer. A session that is ahead by more stays
 * where it is. */
static void advance(struct arbiter_session *session, uint64_t gpu, double held_ns)
{
    struct use *use = &session->use[gpu];
    double lease = (double)(session->arbiter->now - session->since);
    double ahead = fmax(lease, AHEAD_TURNS * quantum(session->arbiter)) / session->weight;
    double most =
        session->arbiter->gpus[gpu].clock[session->priority] + fmin(ahead, arbiter_most_ahead(session));
    double vt = use->vt + held_ns / session->weight;
    if (use->vt < most)
        use->vt = vt < most ? vt : most;
}

/* Enter a charge in the accounts. `unsure_ns`: how much of it may be wrong. */
static void count_use(struct arbiter_session *session, uint64_t gpu, double used_ns, double held_ns,
                      double unsure_ns)
{
    struct use *use = &session->use[gpu];
    if (session->takes_turns)
        advance(session, gpu, held_ns);
    use->held_ns += held_ns;
    use->used_ns += used_ns;
    use->unsure_ns += unsure_ns;
    session->arbiter->gpus[gpu].charged_ns += used_ns;
    add_left(session->arbiter, gpu, -used_ns);
    reach_second(use, session->arbiter->now / SECOND_NS);
    use->seconds[use->last_s % (ARBITER_WINDOW_S + 1)] += used_ns;
}

/* How much of a charge beside others may be wrong. Work that needs several GPUs occupies each of them while it
 * waits for another, and nobody knows how much of its time with work that was. */
static double unsure_of(const struct arbiter_session *session, double used_ns, double busy_ns)
{
    double waits_ns = has_several_gpus(session) && busy_ns > used_ns ? busy_ns - used_ns : 0;
    return used_ns * arbiter_calls_error(session) + waits_ns;
}

static void take_tokens(struct arbiter_session *session, double used_ns)
{
    if (!is_capped(session))
        return;
    session->tokens -= used_ns;
    if (session->tokens > BUCKET_NS)
        session->tokens = BUCKET_NS;
}

/* The most that guests used on one of its GPUs since the last charge. The session's work was kept from all its GPUs
 * for that time. */
static double most_of_guests(const struct arbiter_session *session)
{
    double most = 0;
    FOR_GPUS (gpu, session->held)
        most = fmax(most, session->arbiter->gpus[gpu].guests_ns - session->use[gpu].guests_ns);
    return most;
}

/* Whether guests may have had work in the session's turn. */
static bool has_guests(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && at->lease == LEASE_GUEST && (at->held & session->held))
            return true;
    return most_of_guests(session) > 0;
}

double arbiter_charge(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    double passed = (double)(arbiter->now - session->charged_at), most_used = 0, most_held = 0, most_open = 0;
    session->charged_at = arbiter->now;
    if (!is_exclusive(session) || passed <= 0)
        return -1;
    double busy = session->busy_ns < passed ? session->busy_ns : passed;
    double most_spent = passed + session->unspent_ns;
    double spent = session->spent_ns < most_spent ? session->spent_ns : most_spent;
    /* For calls that are not alike, and for several processes that are not measured one by one, the time of the
     * turn tells more than the cost of the calls. */
    bool is_steady = arbiter_is_charged_by_calls(session);
    bool is_a_guess = has_several_processes(session) && !arbiter_knows_each(session),
         is_beside = has_guests(session);
    double beside = most_of_guests(session);
    session->busy_ns -= busy;
    session->spent_ns = 0;
    session->unspent_ns = most_spent - spent;
    FOR_GPUS (gpu, session->held) {
        struct use *use = &session->use[gpu];
        double guests = arbiter->gpus[gpu].guests_ns - use->guests_ns;
        double held = use->open_ns > guests ? use->open_ns - guests : 0;
        double by_clock = use->open_ns * busy / passed;
        bool is_by_calls = is_beside ? is_steady || session->beside.by_time > 0 : is_steady && !is_a_guess;
        double used = is_by_calls ? spent : fmin(by_clock, fmax(use->open_ns - beside, 0));
        most_open = held > most_open ? held : most_open;
        if (session->understates)
            used = held; /* by the clock */
        /* All dense sessions lose alike what hand-overs cost, so it does not count. */
        held = session->is_dense ? used : held;
        use->open_ns = 0;
        use->guests_ns = arbiter->gpus[gpu].guests_ns;
        count_use(session, gpu, used, held, is_beside ? unsure_of(session, used, held) : 0);
        most_used = used > most_used ? used : most_used;
        most_held = held > most_held ? held : most_held;
    }
    take_tokens(session, most_used);
    arbiter_note_progress(session, most_open / passed, passed);
    if (session->is_dense || session->lease == LEASE_LOOSE)
        arbiter_owe(session, -most_held); /* of others, by their progress: arbiter_role.c */
    add_bounded(session, &session->robbed_ns, -most_held);
    return busy / passed;
}

void arbiter_charge_guest(struct arbiter_session *session, double used_ns, double busy_ns, bool is_alone)
{
    used_ns *= believed_part(session);
    FOR_GPUS (gpu, session->held) {
        count_use(session, gpu, used_ns, used_ns, is_alone ? 0 : unsure_of(session, used_ns, busy_ns));
        session->arbiter->gpus[gpu].guests_ns += used_ns;
    }
    take_tokens(session, used_ns);
}

void arbiter_charge_unsaid(struct arbiter_session *session, unsigned gpu, double used_ns)
{
    count_use(session, gpu, used_ns, used_ns, 0);
    take_tokens(session, used_ns);
}

double arbiter_used_in_second(const struct arbiter_session *session, unsigned gpu, unsigned back)
{
    const struct use *use = &session->use[gpu];
    uint64_t second = session->arbiter->now / SECOND_NS - back;
    if (second > use->last_s || second + ARBITER_WINDOW_S < use->last_s)
        return 0;
    return use->seconds[second % (ARBITER_WINDOW_S + 1)];
}

/* --- Telling --------------------------------------------------------------------------------------- */

uint64_t arbiter_session_used(const struct arbiter_session *session, unsigned gpu)
{
    return (uint64_t)session->use[gpu].used_ns;
}

uint64_t arbiter_session_held(const struct arbiter_session *session, unsigned gpu)
{
    return (uint64_t)session->use[gpu].held_ns;
}

double arbiter_session_progress(const struct arbiter_session *session)
{
    return session->progress;
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
