/* arbiter_state.h - the arbiter's own state, shared by its parts: arbiter.c is told what happens, arbiter_time.c keeps the accounts,
 * arbiter_debt.c those of users, arbiter_cost.c knows what calls cost, arbiter_beside.c guesses what a session used beside others,
 * arbiter_role.c learns what sessions are like and says who takes turns, arbiter_favour.c whether others hold still for one,
 * arbiter_audit.c who is measured again, arbiter_order.c says who comes first, arbiter_decide.c who is to hold what, arbiter_lease.c
 * gives and takes leases. */
#pragma once

#include "daemon/schedule/arbiter_types.h"
#include "daemon/schedule/solo_cost.h"

#define QUANTUM_START_NS UINT64_C(30000000)
/* A turn is so many times what a hand-over costs: the time in which the holder has no work before the GPU,
 * while what the one before it left there still runs. */
#define QUANTUM_GAPS 50
#define QUANTUM_AUTO_MIN_NS UINT64_C(15000000)
#define QUANTUM_AUTO_MAX_NS UINT64_C(50000000)
#define NEVER UINT64_MAX
/* What a session that takes turns must be behind its minimum for others to make way. */
#define ROBBED_NS 80000000.0
/* What a stream may have before it where a session of a higher priority may have a burst at any time. */
#define AHEAD_BELOW_NS UINT64_C(300000)
/* Drains in a row that failed, after which a session is called undrainable. */
#define TRIES_UNDRAINABLE 3
/* GPU time that a session below its maximum may save up; and what it begins with, first and after it has used that
 * up: this much, or what it gets in this time. */
#define BUCKET_NS 50000000.0
#define BUCKET_START_NS 20000000.0
#define BUCKET_START_PERIOD_NS 100000000.0

enum arbiter_gate {
    PROCESS_CLOSED,
    PROCESS_OPEN,
    PROCESS_CLOSING, /* told to close; its session's lease lasts until it answers */
    PROCESS_OVERDUE, /* the same, but nobody waits for it any more */
};

struct arbiter_process {
    struct arbiter_process *next;
    struct arbiter_session *session;
    void *owner;
    uint64_t gpus;
    enum arbiter_gate gate;
    bool wants;
    /* It has no memory on the card, or orders to take it off: it is given no lease that can end, and waits for none. */
    bool is_away;
    /* It told that work has begun, and not that it is over. */
    bool is_bursting;
    /* While closing: its work does not end, as it told since a process of its session last took a step; and when it should
     * have ended, with the slices that others have meanwhile. */
    bool stalls;
    uint64_t stalls_at;
    /* While closing: its agent has said something since it was told to. */
    bool has_answered;
    /* Number of its last grant; 0: free. */
    uint64_t lease;
    /* While closing: when its work should be done; UINT64_MAX: nobody knows. */
    uint64_t done_at;
    /* Up to when its busy time is known; and how much of the time until then, since its gate opened, it did not claim. */
    uint64_t reported_at, spare_ns;
    /* Of the time, it had work for this part of late; and for how long it has been told, up to what counts. */
    double busy_part, busy_told_ns;
    /* What its calls take at least while no other session's gate is open. */
    struct least least;
    /* Of a session with several: what its own calls take, when it was measured last, and whether that is taken from another of them
     * until it is. */
    struct solo_cost cost;
    uint64_t measured_at;
    bool is_like_another;
    /* Of that turn, in which it had work; 0: it gave it back. */
    double density;
    /* Since it was watched last: what it told, and how long it waited at its gate; and for which parts of the time it had work, and what
     * it used, of late. */
    uint64_t watched_at;
    double told_busy_ns, told_used_ns, gate_ns, share_busy, share_used, watched_ns;
    /* When its agent was last told to forget what calls took: its gate opened, or a turn began in which they are measured. */
    uint64_t afresh_at;
    /* Its longest piece of work: no longer than its gate was open since `open_since` (0: it has been closed). */
    uint64_t longest_ns, open_since;
};

/* GPU time that was taken too much, as of `since`, and how fast it is paid back. */
struct debt {
    double ns, rate;
    uint64_t since;
};

/* Who owns sessions. Kept while there are any, and until what they took beyond their part is paid back. */
struct arbiter_user {
    struct arbiter_user *next;
    uint64_t id;
    unsigned sessions;
    /* Held time of sessions that have left turns; and what capped ones had overdrawn. */
    struct debt ahead[ARBITER_GPUS], overdrawn;
};

/* GPU time of a session on one GPU. */
struct use {
    /* Virtual time: held time by weight. */
    double vt;
    /* Time open since the last charge, apportioned among those who have a turn; and what guests of this GPU had
     * used, in all, at that charge. */
    double open_ns, guests_ns;
    /* In all. */
    double used_ns, held_ns;
    /* What of the first may be wrong, in all. */
    double unsure_ns;
    /* What the daemon saw of it in this look: a part of the time. */
    double seen_part;
    /* Used, by second: a ring of the last whole seconds and the running one, up to `last_s`. */
    uint64_t first_s, last_s;
    double seconds[ARBITER_WINDOW_S + 1];
};

/* What the processes of a session told of a stretch of time. */
struct seen {
    uint64_t from;
    double busy_ns, calls;
    /* What the calls cost, as far as that is known. */
    double spent_ns;
    /* The least that one of the calls took, of those that were measured; 0: none was, or nobody told. */
    double least_ns;
    /* In which its gates were open, but it was to hold still. */
    double still_ns;
    /* What others used meanwhile, at most. */
    double others_ns;
    /* Another session's gate was open in a part of what they told. */
    bool has_company;
    /* Of some of these calls it was measured what they take. Else it is a guess, by calls of before. */
    bool is_measured;
};

/* Of a session beside others, what is summed up in the running window; and what the last one told. */
struct beside {
    double passed_ns, busy_ns;
    /* In which others had no work; what they were charged; and of that, what may be wrong. */
    double others_idle_ns, others_ns, unsure_ns;
    /* Its own calls; and what they cost, as measured alone. */
    double calls, spent_ns;
    /* Turns that began. */
    unsigned turns;
    /* What they had been charged when it told of something last. */
    double before_ns, unsure_before_ns;
    /* The part of the time in which it has work that the GPU does it; and how far that is to be believed, and not what its calls
     * cost. */
    double part, by_time;
    /* In the last window, neither its calls nor others explained for how long it had work. */
    bool is_unexplained;
};

/* How well it used the time in which others held still for its bursts, since `from`. */
struct favour {
    uint64_t from;
    double ns, used_ns;
    /* For how long they do now; less than what they had before the GPU takes is not in `ns`, since it does that meanwhile. */
    double still_ns;
    /* So it was in the window before: on a busy machine, in one or other any program leaves the GPU idle. */
    bool was_wasted;
    /* They do so again from then on; and for how long they do not the next time. */
    uint64_t again_at, every;
    /* They do now. */
    bool is_given;
};

struct arbiter_session {
    struct arbiter_session *next;
    struct arbiter *arbiter;
    struct arbiter_user *user;
    void *owner;
    uint64_t serial;
    struct share share;
    unsigned priority;
    struct arbiter_process *processes;
    uint64_t came_at; /* the first of them */

    /* On which shares count and its processes run: what it leases. */
    uint64_t gpus;
    /* 0 < weight <= 1. */
    double weight;
    /* Waits or holds, as of the last decision. */
    bool is_backlogged;
    uint64_t waits_since;
    /* Of those that want a turn: how far ahead of its GPUs' clocks. */
    double lag;

    enum arbiter_lease lease;
    /* `leaves`: of its own accord. `has_left`: what it closes with was so little once that the next one may have begun; what
     * its steps add does not bring it back. */
    bool closing, leaves, has_left;
    /* Its processes seem to wait for each other's work, as those of a collective do: for so many closings to come it is taken
     * for granted, and for so many the next time; and whether it is for this one. */
    unsigned entangled, entangled_for;
    bool closes_alone;
    /* Of this closing: how many were taken, and until when others may be; and, where not all have answered, since when. */
    unsigned steps;
    uint64_t steps_until, unanswered_since;
    /* The lease's GPUs. */
    uint64_t held;
    /* Of the lease, as granted. */
    uint32_t flags;
    uint64_t ahead_ns;
    uint64_t since, charged_at;
    /* When its work under the lease ended, as told; 0: nothing was told. */
    uint64_t ended_at;
    /* When a process of it told of its work last, or the lease began. */
    uint64_t told_at;
    /* The turn may be taken away from then on. */
    uint64_t turn_ends;
    /* When closing is given up on; when it began. */
    uint64_t closes_at, closing_at;
    /* By its processes, since the last charge of a turn: how long they had work before the GPU, and what that work takes;
     * and the first of these since the lease began. Of the lease's time, what was not charged for such work: it may be told of
     * later. */
    double busy_ns, spent_ns, lease_busy_ns, unspent_ns;
    /* Of the time in which it had work beside others, as told, what it was not charged for: how long it had may be told by looks, which
     * are too few in one report and too many in the next. */
    double uncharged_ns;
    /* When another session's gate was open beside it last; and when the gates of several of its processes were. */
    uint64_t company_at, together_at;
    struct beside beside;

    /* What it is like. */
    struct solo_cost cost;
    bool is_known, is_dense;
    uint64_t known_at; /* for the first time */
    /* For how long it has looked dense; of that, what it used, and in which it had no work. And for how long it has looked light since
     * it looked dense. */
    double dense_ns, dense_used_ns, dense_idle_ns, light_ns;
    /* What the turns that it gave back count, less how long those were that it did not. */
    double gave_back_ns;
    /* Turns that were taken to get to know it, with all others closed; and how many may be, for each process that is measured for
     * itself. */
    unsigned measures, measures_most;
    /* When its cost is to be measured again if its minimum depends on it, and how long after that. */
    uint64_t measure_at, measure_every;
    /* The same where what it told in company gives a reason. */
    uint64_t doubt_at, doubt_every;
    bool is_doubted;
    /* All together were charged for more or less than the time that passed, and it is the likeliest cause. */
    bool is_wrong;
    /* Part of the time that it keeps the GPU busy alone, and that it used, and had work for, of late; its progress of late. */
    double density, share_used, share_busy, progress;
    /* The part of the last stretch in which it had work, and that it used. */
    double last_busy, last_used;
    /* Its cost was measured last. */
    uint64_t alone_at;
    struct seen seen;
    struct favour favour;

    /* Who takes turns, until when, and for how long the next time. */
    bool takes_turns;
    uint64_t needy_until, needy_for, donor_until, donor_for;

    /* Drains in a row that failed. */
    unsigned tries;
    uint64_t retry_at;

    /* What it is behind its minimum; what it had beyond is negative. A session that is a turn behind while a
     * higher priority comes before it comes first itself, until it has caught up. */
    double owed_ns;
    bool is_due;
    /* Work that it told of beyond the time that had passed: it counts in the time that follows. */
    double late_ns;
    /* The same while it takes turns, but for what hand-overs cost. */
    double robbed_ns;
    bool is_robbed;
    /* How long it has wanted nothing. */
    double idle_ns;

    /* GPU time it may take below its maximum; negative: debt. No maximum: a full bucket. */
    double tokens;
    bool is_throttled;

    /* Looks in a row that showed much more than its agents said, and that did not; the last one. */
    unsigned doubts, trusts;
    uint64_t looked_at;
    /* What agents said since: how long they had work before the GPU. */
    double said_ns;
    bool understates;

    uint64_t waited_ns, overruns;
    uint64_t waits[WAITS_BUCKETS];
    struct use use[ARBITER_GPUS];
};

struct arbiter {
    const struct arbiter_calls *calls;
    void *context;
    uint64_t now;
    struct arbiter_session *sessions;
    struct arbiter_user *users;
    unsigned session_count;
    /* Room for all. */
    struct arbiter_session **order;
    uint64_t serial, lease_number;
    /* GPUs in that mode; and those on which a session is being measured, or is to be next: no guest begins. */
    uint64_t shares, measured;
    struct {
        double clock[ARBITER_PRIORITIES];
        /* Serial of who had it last. */
        uint64_t holder;
        uint64_t handovers;
        /* When somebody waited at a closed gate last. */
        uint64_t waited_at;
        /* Used by guests, in all. */
        double guests_ns;
        /* Charged in all; and at the last audit, which was then. */
        double charged_ns, audited_ns;
        uint64_t audit_at;
        /* Of the time that passed of late, so much was charged to nobody; negative: more was charged. */
        double left_ns;
    } gpus[ARBITER_GPUS];
    uint64_t quantum_fixed_ns;
    double gap_ns;
    uint64_t next;
};

/* For each GPU of the set, by its number `gpu`. */
#define FOR_GPUS(gpu, set)                                                                                   \
    for (uint64_t set_##gpu = (set), gpu; set_##gpu && (gpu = (uint64_t)__builtin_ctzll(set_##gpu), true);   \
         set_##gpu &= set_##gpu - 1)

static inline bool is_capped(const struct arbiter_session *session)
{
    return session->share.max < SHARE_WHOLE;
}

static inline double bucket_start(const struct arbiter_session *session)
{
    double start = (double)session->share.max / SHARE_WHOLE * BUCKET_START_PERIOD_NS;
    return start < BUCKET_START_NS ? start : BUCKET_START_NS;
}

static inline bool is_exclusive(const struct arbiter_session *session)
{
    return session->lease == LEASE_EXCLUSIVE || session->lease == LEASE_LOOSE;
}

static inline bool has_several_gpus(const struct arbiter_session *session)
{
    return session->gpus & (session->gpus - 1);
}

static inline bool has_several_processes(const struct arbiter_session *session)
{
    return session->processes && session->processes->next;
}

/* It may have work before the GPU, and its session's lease lasts for it. */
static inline bool is_let_in(const struct arbiter_process *process)
{
    return process->gate == PROCESS_OPEN || process->gate == PROCESS_CLOSING;
}

/* No two of its several processes could have told of the time since then. */
static inline bool is_single_since(const struct arbiter_session *session, uint64_t since)
{
    return has_several_processes(session) && session->together_at <= since;
}

/* What others keep from it of its minimum. */
static inline double missing(const struct arbiter_session *session)
{
    return session->is_dense ? session->robbed_ns : session->owed_ns;
}

static inline bool is_held(const struct arbiter_session *session)
{
    return session->lease != LEASE_NONE && session->lease != LEASE_FREE;
}

/* It has a lease, but a burst of a higher priority goes first. */
static inline bool is_still(const struct arbiter_session *session)
{
    return is_held(session) && (session->flags & WIRE_LEASE_STILL);
}

/* Whether it is, or may be, necessary that all others' gates are closed in its turn: to learn its cost. */
static inline bool is_measuring(const struct arbiter_session *session)
{
    return !session->is_known && session->takes_turns;
}

/* --- arbiter_time.c -------------------------------------------------------------------------------- */

/* The longest exclusive turn as it is now. */
uint64_t arbiter_turn_ns(const struct arbiter *arbiter);
/* Bring the accounts to `now`. */
void arbiter_settle(struct arbiter *arbiter, uint64_t now);
/* Weights follow from shares and from who competes. */
void arbiter_weigh(struct arbiter *arbiter);
/* A program with gaps of its own leaves the GPU idle in its turns. What is promised to it, it has as soon as it is due; of what
 * nobody is promised, others make more. */
bool arbiter_leaves_the_rest(const struct arbiter_session *session);
/* Advance the GPUs' clocks. */
void arbiter_advance_clocks(struct arbiter *arbiter);
/* One that comes back from idling, or is new on these GPUs: what it did not use is not owed. */
void arbiter_come_back(struct arbiter_session *session, uint64_t gpus);
/* How far it is ahead of its GPUs' clocks at most, whatever it took. */
double arbiter_most_ahead(const struct arbiter_session *session);
/* How far it is ahead of its GPUs' clocks, with what it has taken and is not charged for yet. */
double arbiter_lag(const struct arbiter_session *session);
/* Whether it waits, or holds, or did so until a moment ago: between two turns, nobody does. */
bool arbiter_has_demand(const struct arbiter_session *session);
/* What it is owed, less what it has taken and is not charged for yet. */
double arbiter_owed(const struct arbiter_session *session);
/* What it is owed is never more, and never less, than so much. */
void arbiter_owe(struct arbiter_session *session, double ns);
/* Time of a turn since the last charge. */
double arbiter_uncharged(const struct arbiter_session *session);
/* Turn the time of a turn since the last charge into use. Returns which part of it the session was busy, or -1
 * for no time at all. */
double arbiter_charge(struct arbiter_session *session);
/* It used so much beyond what its agents said. */
void arbiter_charge_unsaid(struct arbiter_session *session, unsigned gpu, double used_ns);
/* What it used in the running second, or in that which was so many before. */
double arbiter_used_in_second(const struct arbiter_session *session, unsigned gpu, unsigned back);
/* A guest used so much of the time in which it had work; `is_alone`: beside nobody's open gate. */
void arbiter_charge_guest(struct arbiter_session *session, double used_ns, double busy_ns, bool is_alone);

/* --- arbiter_cost.c -------------------------------------------------------------------------------- */

/* Whether its processes are measured one by one, with the others' gates closed: several that have the same GPUs. Not where they wait
 * for each other's work. */
bool arbiter_is_measured_singly(const struct arbiter_session *session);
/* How many are, or one: all together. */
unsigned arbiter_measured_count(const struct arbiter_session *session);
/* How many of these need not be measured again; not all of them. */
unsigned arbiter_sure_count(const struct arbiter_session *session);
/* Whether the process may have its gate open in a turn in which one after the other is measured. */
bool arbiter_may_be_measured(const struct arbiter_process *process);
/* It came: it is taken to be like another of its session. One of the session's has gone: if one is left, the session is like it. */
void arbiter_begin_costs(struct arbiter_process *process);
void arbiter_end_costs(struct arbiter_session *session);
/* It told something while no other process of its session could. */
void arbiter_learn_singly(struct arbiter_process *process, struct cost_stretch stretch);
/* Whether it is known what calls of each process take that makes some; and whether that is sure. */
bool arbiter_knows_each(const struct arbiter_session *session);
bool arbiter_is_sure_of_each(const struct arbiter_session *session);
/* Whether what its calls cost is known so well that they are charged by that. */
bool arbiter_is_charged_by_calls(const struct arbiter_session *session);
/* By which part of it a charge by its calls is wrong, usually. */
double arbiter_calls_error(const struct arbiter_session *session);
/* What so many calls of the process cost; negative where nobody knows. */
double arbiter_cost(const struct arbiter_process *process, double calls);
/* Take what it told since then into account. */
void arbiter_watch_process(struct arbiter_process *process);
/* Which part of a GPU's time its processes would use if they had it alone, as far as each of them is known. */
double arbiter_density_of_all(const struct arbiter_session *session);
/* How fast a session was, by its speed alone, in a stretch of so much time of which it had work and was served for these parts. */
double arbiter_speed(const struct arbiter_session *session, double passed_ns, double busy, double used);

/* --- arbiter_beside.c ------------------------------------------------------------------------------ */

/* What it tells of a stretch of time from now on is beside what others are charged from now on. */
void arbiter_begin_beside(struct arbiter_session *session);
/* In company it had work for `busy_ns` of so much time, in so many calls, which cost `cost_ns`. Returns what others used meanwhile,
 * at most: all of the time where that is a guess. */
double arbiter_note_beside(struct arbiter_session *session, double passed_ns, double busy_ns, double calls,
                           double cost_ns);
/* What calls took on the GPU that were before it for so long and cost that, beside others; negative where nobody knows. */
double arbiter_spent(const struct arbiter_session *session, double busy_ns, double cost_ns);

/* --- arbiter_debt.c -------------------------------------------------------------------------------- */

/* The user with this ID, for one more session. NULL without memory. */
struct arbiter_user *arbiter_user_enter(struct arbiter *arbiter, uint64_t id);
void arbiter_users_free(struct arbiter *arbiter);
/* A session that takes turns does so no more, or ends: what it is ahead is its user's debt. */
void arbiter_leave_turns(struct arbiter_session *session);
/* One that was a guest, or is new, takes turns from now on: it begins where the others are, less what its user
 * owes. */
void arbiter_join_turns(struct arbiter_session *session);
/* A session ends: what it took beyond its maximum is its user's debt; and what that is now. */
void arbiter_note_overdraft(struct arbiter_session *session);
double arbiter_overdraft(const struct arbiter_session *session);

/* --- arbiter_role.c -------------------------------------------------------------------------------- */

/* A new session, or one that changed so much that it is to be learned anew. */
void arbiter_forget(struct arbiter_session *session);
/* Other processes of it run than before: one came, ended, was stopped or goes on. What its calls take may be something else now. */
void arbiter_doubt(struct arbiter_session *session);
/* How it fared as a guest says nothing any more. */
void arbiter_forget_need(struct arbiter_session *session);
/* It ends, and took turns for long: who was needy beside it, or gave to it, may not be any more. */
void arbiter_try_open(const struct arbiter_session *gone);
/* A stretch of time begins in which it is watched. */
void arbiter_watch(struct arbiter_session *session);
/* A process told what it did of so much time, in which it had work for `most_ns`, and its session on its account for `busy_ns`;
 * `is_alone`: beside nobody's open gate. */
void arbiter_learn(struct arbiter_process *process, bool is_alone, double passed_ns, double most_ns,
                   double busy_ns, double calls);
/* For `passed` ns its speed was that part of its speed alone. */
void arbiter_note_progress(struct arbiter_session *session, double part, double passed);
/* The turn is over; `gave_back`: because there was no work any more. */
void arbiter_learn_turn(struct arbiter_session *session, bool gave_back);
/* Find out who takes turns now. */
void arbiter_find_roles(struct arbiter *arbiter);

/* --- arbiter_favour.c ------------------------------------------------------------------------------ */

void arbiter_favour_begin(struct arbiter_session *session);
/* So much time passed in which others hold still for its bursts, or do not. */
void arbiter_favour_count(struct arbiter_session *session, double passed_ns);
/* Whether they do so any more is looked at now and then. */
void arbiter_favour_judge(struct arbiter_session *session);

/* --- arbiter_audit.c ------------------------------------------------------------------------------- */

/* On that GPU, if it is time. */
void arbiter_audit(struct arbiter *arbiter, uint64_t gpu);

/* --- arbiter_order.c ------------------------------------------------------------------------------- */

/* On which GPUs shares count, and what sessions lease there. */
void arbiter_find_modes(struct arbiter *arbiter);
/* Notes who waits and who is due; those that neither waited nor held come back from idling. */
void arbiter_find_backlogged(struct arbiter *arbiter);
/* Whether it waits, and may be given a lease. */
bool arbiter_is_eligible(const struct arbiter_session *session);
bool arbiter_precedes(const struct arbiter_session *a, const struct arbiter_session *b);
/* Whether `waiter` may have `holder`'s turn taken away once it is over. A guest waits for those alone that are being measured,
 * whatever they stand before. */
bool arbiter_presses(const struct arbiter_session *waiter, const struct arbiter_session *holder);

/* --- arbiter_decide.c ------------------------------------------------------------------------------ */

/* Give and take leases as they are due now, and find out when to do so again. */
void arbiter_decide(struct arbiter *arbiter);

/* --- arbiter_lease.c ------------------------------------------------------------------------------- */

/* From when on a lease that is being closed has so little left that the next may begin. */
uint64_t arbiter_leaves_at(const struct arbiter_session *session);
/* Whether the lease keeps others off its GPUs. One that was free does so while it closes. */
bool arbiter_is_in_the_way(const struct arbiter_session *session);
/* Whether the process waits at its closed gate, for a lease; whether one of the session's does; and without a lease of the
 * session. */
bool arbiter_process_is_waiting(const struct arbiter_process *process);
bool arbiter_has_waiting_process(const struct arbiter_session *session);
/* Whether one of its processes is let in. */
bool arbiter_is_any_let_in(const struct arbiter_session *session);
bool arbiter_is_waiting(const struct arbiter_session *session);

void arbiter_open_gate(struct arbiter_process *process);
/* Tell those whose gates are open what holds for the lease now. */
void arbiter_set_flags(struct arbiter_session *session, uint32_t flags, uint64_t ahead_ns);
void arbiter_tell(const struct arbiter_session *session, enum arbiter_event event);

void arbiter_begin_lease(struct arbiter_session *session, enum arbiter_lease lease);
/* A turn becomes a guest's lease, or the other way round, with its gates open. */
void arbiter_convert_lease(struct arbiter_session *session, enum arbiter_lease lease);
/* Revoke it, and wait for the answers. */
void arbiter_begin_closing(struct arbiter_session *session);
/* The process closes its gate of its own accord, and cannot return the lease at once. */
void arbiter_leave(struct arbiter_process *process);
/* The lease is over once no gate is open or closing. `gave_back`: nobody had asked for it. */
void arbiter_end_lease_if_returned(struct arbiter_session *session, bool gave_back);
/* The process's work did not drain and its gate is open again: so are the others', and the next in line runs
 * beside them, since what is on the GPU may wait for either. */
void arbiter_become_loose(struct arbiter_session *session);
/* How much the process has left to do, where it says so much. Who has waited for another process of its session takes what is
 * left for as long as that. */
uint64_t arbiter_believed_left(const struct arbiter_process *process, uint64_t left_ns);
/* The process has so much left to do until it is drained. */
void arbiter_expect_drained(struct arbiter_process *process, uint64_t left_ns);
/* While a process cannot drain, those of its session that have take one call each, which the first may wait for. */
void arbiter_step(struct arbiter_session *session);
/* The process, where it closes, has said something. */
void arbiter_note_answer(struct arbiter_process *process);
/* When such a step is due without anybody saying so; UINT64_MAX: never. */
uint64_t arbiter_steps_at(const struct arbiter_session *session);
/* Note whether its maximum keeps it from having a lease now. */
void arbiter_throttle(struct arbiter_session *session);
