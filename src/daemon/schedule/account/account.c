/* The sessions' accounts: time held, what is owed, buckets of maxima. */
#include "daemon/schedule/account/account.h"

void account_begin(struct arbiter_session *session, struct arbiter_user *user)
{
    session->account = (struct session_account){.user = user, .weight = 1, .progress = 1};
    session->account.tokens =
        is_capped(session) ? bucket_start(session) - account_overdraft(session) : BUCKET_NS;
    account_throttle(session);
}

void account_begin_lease(struct arbiter_session *session, bool goes_on)
{
    session->account.charged_at = session->arbiter->now;
    for (const struct arbiter_process *at = session->processes; at && goes_on; at = at->next)
        if (at->facts.gate == PROCESS_OPEN && at->facts.reported_at < session->account.charged_at)
            session->account.charged_at = at->facts.reported_at;
}

void account_set_share(struct arbiter_session *session, unsigned was)
{
    struct arbiter *arbiter = session->arbiter;
    unsigned priority = session->facts.priority;
    FOR_GPUS (gpu, priority != was ? session->facts.gpus : 0) {
        double ahead = session->account.vt[gpu] - arbiter->gpus[gpu].account.clock[was];
        session->account.vt[gpu] = arbiter->gpus[gpu].account.clock[priority] + fmax(ahead, 0);
    }
    if (!is_capped(session))
        session->account.tokens = BUCKET_NS;
    account_throttle(session);
}

/* --- What is owed ---------------------------------------------------------------------------------- */

/* Add within bounds. What the session takes in its present turn is not charged yet, so that much more may be owed:
 * it comes off later. */
static void add_bounded(const struct arbiter_session *session, double *value, double ns)
{
    double most = OWED_MOST_NS + (is_exclusive(session) ? facts_uncharged(session) : 0);
    *value += ns;
    if (*value > most)
        *value = most;
    if (*value < -OWED_MOST_NS)
        *value = -OWED_MOST_NS;
}

static void owe(struct arbiter_session *session, double ns)
{
    add_bounded(session, &session->account.owed_ns, ns);
    if (!session->estimate.is_dense && session->account.owed_ns < -OWED_MOST_NS / 10)
        session->account.owed_ns = -OWED_MOST_NS / 10;
}

void account_forgive(struct arbiter_session *session, enum forgiven why)
{
    if (why == FORGIVEN_CONTENT || is_on(forgive_dense))
        session->account.owed_ns = fmin(session->account.owed_ns, 0);
}

static void note_progress(struct arbiter_session *session, double part, double passed)
{
    struct session_account *account = &session->account;
    smooth(&account->progress, part, passed);
    account->passed_ns += passed;
    account->speed_ns += part * passed;
}

/* While the session was to hold still, it was owed its minimum (promise()). */
void account_note_guest(struct arbiter_session *session, const struct judged *judged, double speed)
{
    note_progress(session, speed * judged->passed_ns / judged->whole_ns, judged->whole_ns);
    owe(session, (promised_part(session) - speed) * judged->passed_ns);
}

void account_note_turn(struct arbiter_session *session, const struct judged *judged)
{
    if (session->facts.lease == LEASE_EXCLUSIVE && !judged->was_dense)
        owe(session, -judged->speed * judged->passed_ns);
}

void account_note_handover(struct arbiter_session *session)
{
    if (is_on(handover_owed) && !session->estimate.is_dense)
        owe(session, session->arbiter->gap_ns);
}

/* --- Time passes ----------------------------------------------------------------------------------- */

/* Promise each session its minimum of the time that passed. A session that does not want the GPU is owed nothing
 * for that time; for a program with gaps of its own, that time was progress. What a guest is owed follows from what
 * it reports (account_note_guest()). */
static void promise(struct arbiter_session *session, double passed)
{
    if (session->facts.lease == LEASE_GUEST && !is_still(session))
        return;
    if (session->account.is_backlogged) {
        owe(session, passed * promised_part(session));
        add_bounded(session, &session->account.robbed_ns,
                    passed * promised_part(session) * (1 - (is_on(handovers_ratio) ? HANDOVERS_RATIO : 0)));
        session->account.idle_ns = 0;
        return;
    }
    session->account.idle_ns += passed;
    if (session->account.idle_ns >= GAP_MAX_NS)
        session->account.robbed_ns = 0;
    if (!session->estimate.is_dense && session->processes)
        owe(session, passed * (promised_part(session) - 1));
    else if (session->account.idle_ns >= GAP_MAX_NS && session->account.owed_ns > 0)
        session->account.owed_ns = 0;
}

bool account_has_demand(const struct arbiter_session *session)
{
    return session->account.is_backlogged || (session->processes && session->account.idle_ns < GAP_MAX_NS);
}

/* What the session takes in its present turn is not charged yet, so the bucket may hold that much more. */
static void fill_bucket(struct arbiter_session *session, double passed)
{
    double full = BUCKET_NS + (is_exclusive(session) ? facts_uncharged(session) : 0);
    double gained = passed * session->facts.share.max / SHARE_WHOLE;
    session->account.tokens = fmin(session->account.tokens + gained, full);
}

void account_pass(struct arbiter *arbiter, double passed)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        promise(session, passed);
        if (session->account.in_turns && !is_held(session))
            note_progress(session, facts_is_waiting(session) ? 0 : 1, passed);
        if (is_capped(session))
            fill_bucket(session, passed);
    }
}

/* --- Charges --------------------------------------------------------------------------------------- */

static void book(struct arbiter_session *session, uint64_t gpu, struct used_now used, double held_ns)
{
    if (session->account.in_turns)
        account_advance(session, gpu, held_ns);
    session->account.held_ns[gpu] += held_ns;
    estimate_book(session, gpu, used);
}

static void take_tokens(struct arbiter_session *session, double used_ns)
{
    if (!is_capped(session))
        return;
    session->account.tokens -= used_ns;
    if (session->account.tokens > BUCKET_NS)
        session->account.tokens = BUCKET_NS;
}

void account_charge(struct arbiter_session *session)
{
    double passed = (double)(session->arbiter->now - session->account.charged_at);
    double most_used = 0, most_held = 0, most_open = 0;
    session->account.charged_at = session->arbiter->now;
    if (!is_exclusive(session) || passed <= 0)
        return;
    struct turn_estimate turn = estimate_take_turn(session, passed);
    FOR_GPUS (gpu, session->facts.held) {
        double held;
        struct used_now used = estimate_used_in_turn(session, gpu, &turn, &held);
        most_open = fmax(most_open, held);
        /* All dense sessions lose alike what hand-overs cost, so it does not count. */
        held = session->estimate.is_dense ? used.used_ns : held;
        facts_charged(session, gpu);
        book(session, gpu, used, held);
        most_used = fmax(most_used, used.used_ns);
        most_held = fmax(most_held, held);
    }
    take_tokens(session, most_used);
    note_progress(session, most_open / passed, passed);
    if (session->estimate.is_dense || session->facts.lease == LEASE_LOOSE)
        owe(session, -most_held); /* others, by their progress */
    add_bounded(session, &session->account.robbed_ns, -most_held);
}

void account_charge_guest(struct arbiter_session *session, struct taken taken, bool is_alone)
{
    struct used_now used = estimate_used_by_guest(session, taken.used_ns, taken.busy_ns, is_alone);
    FOR_GPUS (gpu, session->facts.held) {
        book(session, gpu, used, used.used_ns);
        estimate_book_guest(session, gpu, used.used_ns);
    }
    take_tokens(session, used.used_ns);
}

void account_charge_unsaid(struct arbiter_session *session, unsigned gpu, double used_ns)
{
    book(session, gpu, (struct used_now){used_ns, 0}, used_ns);
    take_tokens(session, used_ns);
}

void account_throttle(struct arbiter_session *session)
{
    session->account.is_throttled = is_capped(session) && session->account.tokens <= 0;
}

void account_use_up(struct arbiter_session *session)
{
    session->account.is_throttled = true;
}
