/* The only file that sees all stages. It is told what happened, has each stage note what concerns it, and then decides
 * once from the whole state which session is to hold what. What a stage answers about an earlier one's affair (a lease
 * is over, a cost has changed, nothing is owed any more) is carried out here. */
#include "daemon/schedule/arbiter.h"

#include <stdlib.h>

#include "base/check.h"
#include "daemon/schedule/lease/lease.h"

static void settle(struct arbiter *arbiter, uint64_t now)
{
    if (now <= arbiter->now)
        return;
    double passed = (double)(now - arbiter->now);
    arbiter->now = now;
    facts_pass(arbiter, passed);
    estimate_pass(arbiter, passed);
    account_pass(arbiter, passed);
    role_pass(arbiter, passed);
}

/* --- What is learned ------------------------------------------------------------------------------- */

/* The session may have become a light one. */
static void note_change(struct arbiter_session *session)
{
    if (estimate_take_became_light(session))
        account_forgive(session, FORGIVEN_WAS_DENSE);
}

static void note_guest(struct arbiter_session *session, const struct judged *judged)
{
    double speed = judged->speed;
    role_count_guest(session, judged);
    if (role_is_content(session)) {
        speed = fmax(speed, promised_part(session));
        account_forgive(session, FORGIVEN_CONTENT);
    }
    account_note_guest(session, judged, speed);
}

/* A stretch of the session's time is over. */
static void judge(struct arbiter_session *session)
{
    struct judged judged;
    bool is_judged = estimate_judge(session, &judged);
    note_change(session);
    if (is_judged && judged.is_guest)
        note_guest(session, &judged);
    else if (is_judged)
        account_note_turn(session, &judged);
}

/* The session's turn is over: charge it, and learn from it. */
static void end_turn(struct arbiter_session *session, bool gave_back)
{
    bool was_measuring = is_measuring(session);
    account_charge(session);
    if (session->facts.lease != LEASE_EXCLUSIVE)
        return;
    if (!gave_back)
        estimate_note_gap(session);
    judge(session);
    estimate_end_turn(session, gave_back, was_measuring);
    note_change(session);
    if (!gave_back)
        account_note_handover(session);
}

static void begin_lease(struct arbiter_session *session, enum arbiter_lease lease)
{
    lease_begin(session, lease);
    estimate_begin_lease(session);
    account_begin_lease(session, false);
}

/* The session's turn becomes a guest's lease, or the other way round. What it did as a guest and has not reported yet is
 * charged with the turn. */
static void convert_lease(struct arbiter_session *session, enum arbiter_lease lease)
{
    end_turn(session, false);
    lease_convert(session, lease);
    estimate_begin_lease(session);
    account_begin_lease(session, true);
}

/* End the session's lease if none of its gates is open or closing. `gave_back`: nobody had asked for it. */
static void end_if_over(struct arbiter_session *session, bool gave_back)
{
    if (!lease_is_over(session))
        return;
    end_turn(session, gave_back);
    lease_end(session);
    account_throttle(session);
}

static void close_lease(struct arbiter_session *session)
{
    if (session->facts.closing)
        return;
    lease_close(session);
    end_if_over(session, false);
}

static void become_loose(struct arbiter_session *session)
{
    account_charge(session);
    lease_become_loose(session);
    estimate_begin_lease(session);
    account_begin_lease(session, false);
}

/* --- On which GPUs shares count -------------------------------------------------------------------- */

static void set_free(struct arbiter_session *session)
{
    facts_set_gpus(session, 0);
    if (session->facts.lease == LEASE_FREE && !session->facts.closing)
        return;
    account_charge(session);
    begin_lease(session, LEASE_FREE);
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->facts.gate == PROCESS_OPEN)
            lease_open_gate(at);
}

/* Shares count on these of the session's GPUs now: the session leases them as a whole. */
static void set_gpus(struct arbiter_session *session, uint64_t gpus)
{
    uint64_t more = gpus & ~session->facts.gpus;
    if (more)
        account_come_back(session, more);
    uint64_t held = session->facts.held;
    facts_set_gpus(session, gpus);
    if (session->facts.lease == LEASE_FREE) {
        facts_set_held(session, gpus);
        close_lease(session);
    } else if (session->facts.lease == LEASE_GUEST) {
        facts_set_held(session, gpus);
    } else if (is_held(session) && (gpus & ~held)) {
        close_lease(session);
    } else if (is_held(session) && gpus != held) {
        account_charge(session);
        facts_set_held(session, gpus);
    }
}

static void find_modes(struct arbiter *arbiter)
{
    uint64_t shares = 0;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (is_restricted(session))
            shares |= facts_gpus_of(session);
    uint64_t changed = shares ^ arbiter->shares;
    arbiter->shares = shares;
    FOR_GPUS (gpu, changed)
        arbiter->calls->mode(arbiter->context, (unsigned)gpu,
                             arbiter_mode(arbiter, (unsigned)gpu, arbiter->now));
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        uint64_t gpus = facts_gpus_of(session);
        if (!session->processes)
            facts_set_gpus(session, 0);
        else if (gpus ? !(gpus & shares) : !is_restricted(session))
            set_free(session);
        else
            set_gpus(session, gpus & shares);
    }
}

/* --- A round --------------------------------------------------------------------------------------- */

static void find_role(struct arbiter_session *session)
{
    role_favour_judge(session);
    if (estimate_measure_if_doubted(session))
        lease_extend(session, ESTIMATE_MEASURE_NS);
    if (!session->facts.gpus)
        return;
    if (role_find_needy(session))
        account_forgive(session, FORGIVEN_CONTENT);
    enum role_change change = role_find(session);
    if (change == ROLE_TAKES_TURNS) {
        account_join_turns(session);
    } else if (change == ROLE_BECOMES_GUEST) {
        estimate_leave_turns(session);
        account_leave_turns(session);
    }
    if (session->role.takes_turns && session->account.is_backlogged)
        role_find_donors(session, missing(session));
}

static void find_roles(struct arbiter *arbiter)
{
    FOR_GPUS (gpu, arbiter->shares)
        estimate_audit(arbiter, gpu);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        find_role(at);
}

/* Change the leases of sessions whose role has changed: in place where nothing forbids it. */
static void change_roles(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        enum lease_due due = lease_due_by_role(session);
        if (due == LEASE_CONVERTS)
            convert_lease(session, session->role.takes_turns ? LEASE_EXCLUSIVE : LEASE_GUEST);
        else if (due == LEASE_CLOSES)
            close_lease(session);
    }
}

static void give_up_closing(struct arbiter_session *session)
{
    estimate_take_overdue(session);
    estimate_doubt(session);
    lease_give_up(session);
    end_if_over(session, false);
}

static void take_away(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        enum lease_due due = lease_due_by_time(session);
        if (due == LEASE_IS_OVERDUE)
            give_up_closing(session);
        if (due == LEASE_IS_USED_UP)
            account_use_up(session);
        if (due == LEASE_IS_USED_UP || due == LEASE_CLOSES)
            close_lease(session);
    }
}

/* Close the guests, or else the turns, on the GPUs that the session waits for. */
static void close_for(const struct arbiter_session *session, bool guests)
{
    for (struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if ((at->facts.held & session->facts.gpus) &&
            (guests ? at->facts.lease == LEASE_GUEST : lease_is_in_the_way(at)))
            close_lease(at);
}

static void give_turns(struct arbiter *arbiter, unsigned count)
{
    uint64_t kept = 0;
    for (unsigned i = 0; i < count; i++) {
        struct arbiter_session *session = arbiter->sorted[i];
        if (!session->role.takes_turns || (session->facts.gpus & kept))
            continue;
        enum lease_turn turn = lease_find_turn(session);
        if (turn == TURN_BEGINS)
            begin_lease(session, LEASE_EXCLUSIVE);
        if (turn == TURN_AFTER_HOLDERS)
            close_for(session, false);
        if (turn == TURN_AFTER_HOLDERS || turn == TURN_AFTER_GUESTS)
            kept |= session->facts.gpus;
        if (turn == TURN_AFTER_GUESTS && is_measuring(session)) {
            close_for(session, true);
            arbiter->measured |= session->facts.gpus;
        }
    }
}

static void give(struct arbiter *arbiter)
{
    unsigned count = order_sort(arbiter);
    arbiter->measured = 0;
    give_turns(arbiter, count);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (at->facts.lease != LEASE_EXCLUSIVE || !is_measuring(at))
            continue;
        arbiter->measured |= at->facts.held;
        close_for(at, true); /* there are guests if it held a turn before it was to be measured */
    }
    for (unsigned i = 0; i < count; i++)
        if (!arbiter->sorted[i]->role.takes_turns && !(arbiter->sorted[i]->facts.gpus & arbiter->measured))
            begin_lease(arbiter->sorted[i], LEASE_GUEST);
}

/* What holds between any two decisions. */
static void check(const struct arbiter *arbiter)
{
    uint64_t taken = 0;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        GS_CHECK(at->facts.lease != LEASE_NONE || (!at->facts.held && !at->facts.closing));
        /* A lease that ends keeps what it had: shares may have ceased to count on some of it meanwhile. */
        GS_CHECK(!(at->facts.held & ~arbiter->shares) || at->facts.lease == LEASE_FREE || at->facts.closing);
        if (at->facts.lease != LEASE_EXCLUSIVE || !lease_is_in_the_way(at))
            continue;
        GS_CHECK(!(at->facts.held & taken));
        taken |= at->facts.held;
    }
}

static void decide(struct arbiter *arbiter)
{
    find_modes(arbiter);
    account_find_backlogged(arbiter);
    order_find(arbiter);
    find_roles(arbiter);
    change_roles(arbiter);
    take_away(arbiter);
    lease_take_steps(arbiter);
    give(arbiter);
    lease_note_waiting(arbiter);
    lease_open_gates(arbiter);
    check(arbiter);
    arbiter->next = NEVER;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        arbiter->next = earliest(arbiter->next, lease_next(session));
}

void arbiter_set_quantum(struct arbiter *arbiter, uint64_t quantum_ns)
{
    arbiter->quantum_fixed_ns = quantum_ns;
}

void arbiter_tick(struct arbiter *arbiter, uint64_t now)
{
    settle(arbiter, now);
    decide(arbiter);
}

uint64_t arbiter_next(const struct arbiter *arbiter)
{
    return arbiter->next;
}

/* --- What agents tell ------------------------------------------------------------------------------ */

/* Enter a process's report in the accounts. */
static void take_report(struct arbiter_process *process, const struct wire_report *told)
{
    struct arbiter_session *session = process->session;
    struct report report;
    if (!facts_take(process, told, &report))
        return;
    struct taken taken = estimate_take(process, &report);
    role_favour_use(session, taken.used_ns);
    if (session->facts.lease == LEASE_GUEST)
        account_charge_guest(session, taken, report.is_alone);
    role_count_turns(session);
    if (estimate_is_stretch(session))
        judge(session);
}

void arbiter_want(struct arbiter_process *process, uint64_t gpus, uint64_t now)
{
    settle(process->session->arbiter, now);
    facts_want(process, gpus);
    decide(process->session->arbiter);
}

void arbiter_set_away(struct arbiter_process *process, bool is_away, uint64_t now)
{
    if (process->facts.is_away == is_away)
        return;
    settle(process->session->arbiter, now);
    facts_set_away(process, is_away);
    decide(process->session->arbiter);
}

void arbiter_closed(struct arbiter_process *process, const struct wire_closed *closed, uint64_t now)
{
    struct arbiter *arbiter = process->session->arbiter;
    settle(arbiter, now);
    if (process->facts.gate == PROCESS_OPEN && closed->lease == process->facts.lease) {
        lease_leave(process);
        end_if_over(process->session, false);
    }
    if (process->facts.gate == PROCESS_CLOSING && closed->lease == process->facts.lease) {
        lease_note_answer(process);
        lease_note_left_of(process, closed->left_ns);
        lease_step(process->session);
    }
    decide(arbiter);
}

/* The process's gate is closed, by what it says of its lease. */
static void take_returned(struct arbiter_process *process, const struct wire_returned *returned)
{
    struct arbiter_session *session = process->session;
    bool is_undrained = returned->outcome == WIRE_OUTCOME_UNDRAINED;
    lease_note_answer(process);
    if (process->facts.gate == PROCESS_OVERDUE) /* the process is new, or was stopped */
        estimate_doubt(session);
    take_report(process,
                &(struct wire_report){.longest_ns = returned->longest_ns, .waited_ns = returned->waited_ns});
    facts_returned(process, returned->ended_us * UINT64_C(1000), !is_undrained);
    if (is_undrained)
        become_loose(session);
    else if (session->facts.lease == LEASE_LOOSE && !session->facts.closing &&
             returned->outcome == WIRE_OUTCOME_DRAINED)
        facts_want_again(
            process); /* its gate did close, but another process of its session could not drain */
    if (session->facts.lease != LEASE_LOOSE || session->facts.closing || !facts_has_waiting_process(session))
        end_if_over(session, returned->outcome == WIRE_OUTCOME_IDLE &&
                                 (!session->facts.closing || session->lease.leaves));
}

/* A process that gave a lease back by itself also answers a REVOKE that crossed with that. */
void arbiter_returned(struct arbiter_process *process, const struct wire_returned *returned, uint64_t now)
{
    settle(process->session->arbiter, now);
    if (process->facts.gate == PROCESS_CLOSED || returned->lease != process->facts.lease)
        facts_add_waited(process->session, returned->waited_ns);
    else
        take_returned(process, returned);
    decide(process->session->arbiter);
}

void arbiter_report(struct arbiter_process *process, const struct wire_report *report, uint64_t now)
{
    struct arbiter_session *session = process->session;
    settle(session->arbiter, now);
    if (!facts_is_current(process, report->lease))
        return;
    take_report(process, report);
    if (is_exclusive(session) && now - session->account.charged_at >= CHARGE_EVERY_NS)
        account_charge(session);
    decide(session->arbiter);
}

void arbiter_burst(struct arbiter_process *process, const struct wire_burst *burst, uint64_t now)
{
    settle(process->session->arbiter, now);
    if (!facts_is_current(process, burst->lease))
        return;
    facts_set_burst(process, burst->begins != 0);
    decide(process->session->arbiter);
}

void arbiter_waits(struct arbiter_process *process, const struct wire_waits *waits)
{
    facts_add_waits(process->session, waits);
}

/* --- What the daemon sees -------------------------------------------------------------------------- */

void arbiter_seen(struct arbiter_session *session, unsigned gpu, double part)
{
    estimate_see(session, gpu, part);
}

void arbiter_look_is_over(struct arbiter *arbiter, uint64_t now)
{
    settle(arbiter, now);
    estimate_begin_look(arbiter);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        double unsaid_ns[ARBITER_GPUS] = {0};
        if (estimate_compare(at, unsaid_ns))
            lease_tell(at, ARBITER_UNDERSTATED);
        FOR_GPUS (gpu, at->facts.gpus)
            if (unsaid_ns[gpu] > 0)
                account_charge_unsaid(at, (unsigned)gpu, unsaid_ns[gpu]);
    }
    decide(arbiter);
}

/* --- Coming and going ------------------------------------------------------------------------------ */

struct arbiter *arbiter_new(const struct arbiter_calls *calls, void *context, uint64_t now)
{
    struct arbiter *arbiter = calloc(1, sizeof(*arbiter));
    if (arbiter)
        *arbiter = (struct arbiter){.calls = calls, .context = context, .now = now, .next = NEVER};
    return arbiter;
}

void arbiter_free(struct arbiter *arbiter)
{
    GS_CHECK(!arbiter->sessions);
    account_users_free(arbiter);
    free(arbiter->sorted);
    free(arbiter);
}

/* Without memory, returns false. */
static bool make_room_to_sort(struct arbiter *arbiter)
{
    struct arbiter_session **sorted =
        realloc(arbiter->sorted, (arbiter->session_count + 1) * sizeof(struct arbiter_session *));
    if (sorted)
        arbiter->sorted = sorted;
    return sorted;
}

struct arbiter_session *arbiter_session_add(struct arbiter *arbiter, void *owner, uint64_t user_id,
                                            struct share share, unsigned priority)
{
    struct arbiter_session *session = calloc(1, sizeof(*session));
    bool has_room = session && make_room_to_sort(arbiter);
    struct arbiter_user *user = has_room ? account_user_enter(arbiter, user_id) : NULL;
    if (!user) {
        free(session);
        return NULL;
    }
    *session = (struct arbiter_session){
        .next = arbiter->sessions, .arbiter = arbiter, .owner = owner, .serial = ++arbiter->serial};
    facts_set_share(session, share, priority);
    estimate_begin(session);
    account_begin(session, user);
    role_begin(session);
    arbiter->sessions = session;
    arbiter->session_count++;
    return session;
}

void arbiter_session_set(struct arbiter_session *session, struct share share, unsigned priority, uint64_t now)
{
    unsigned was = session->facts.priority;
    settle(session->arbiter, now);
    facts_set_share(session, share, priority);
    account_set_share(session, was);
    role_forget_need(session);
    decide(session->arbiter);
}

void arbiter_session_remove(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    struct arbiter_session **at = &arbiter->sessions;
    GS_CHECK(!session->processes);
    account_end(session);
    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    arbiter->session_count--;
    free(session);
    for (struct arbiter_session *other = arbiter->sessions; other; other = other->next)
        estimate_begin_beside(other); /* the session's use does not count in what others used any more */
}

struct arbiter_process *arbiter_process_add(struct arbiter_session *session, void *owner, uint64_t now)
{
    struct arbiter_process *process = calloc(1, sizeof(*process));
    if (!process)
        return NULL;
    settle(session->arbiter, now);
    *process = (struct arbiter_process){.next = session->processes, .session = session, .owner = owner};
    session->processes = process;
    facts_enter(process);
    estimate_begin_costs(process);
    decide(session->arbiter);
    lease_enter(process);
    return process;
}

void arbiter_process_remove(struct arbiter_process *process, uint64_t now)
{
    struct arbiter_session *session = process->session;
    struct arbiter_process **at = &session->processes;
    settle(session->arbiter, now);
    if (is_let_in(process)) /* it has gone without a last report */
        take_report(process, &(struct wire_report){.busy_ns = (uint64_t)estimate_last_work(process),
                                                   .longest_ns = process->facts.longest_ns});
    while (*at != process)
        at = &(*at)->next;
    *at = process->next;
    free(process);
    estimate_end_costs(session);
    if (session->processes)
        estimate_doubt(session);
    end_if_over(session, false);
    decide(session->arbiter);
}
