/* arbiter_state.h - the arbiter's own state, shared by its files. arbiter.h explains the words.
 *
 * arbiter.c         is told what happens
 * arbiter_time.c    keeps the sessions' accounts: used, held, owed
 * arbiter_debt.c    keeps the users' accounts
 * arbiter_cost.c    knows what calls cost
 * arbiter_beside.c  guesses what a session used beside others
 * arbiter_role.c    learns what sessions are like, and says which of them take turns
 * arbiter_need.c    says which guests take turns for a while
 * arbiter_favour.c  says whether others hold still for a session's bursts
 * arbiter_audit.c   says which session is measured again when all charges together are wrong
 * arbiter_doubt.c   compares what agents say with what the daemon sees
 * arbiter_order.c   says which session comes first
 * arbiter_decide.c  decides which session is to hold what
 * arbiter_lease.c   gives leases and takes them away
 *
 * Times are nanoseconds; sets of GPUs are bits. */
#pragma once

#include <math.h>

#include "daemon/schedule/arbiter_types.h"
#include "daemon/schedule/solo_cost.h"

#define QUANTUM_START_NS UINT64_C(30000000)
/* A turn is this many times as long as the gap of a hand-over: the time in which the holder has no work before the
 * GPU, because the previous holder's work still runs. */
#define QUANTUM_GAPS 50
#define QUANTUM_AUTO_MIN_NS UINT64_C(15000000)
#define QUANTUM_AUTO_MAX_NS UINT64_C(50000000)
#define NEVER UINT64_MAX
/* A session that takes turns counts as robbed when it is this far behind its minimum: others then make way for it. */
#define ROBBED_NS 80000000.0
/* How much work a stream may have before it where a session of a higher priority may begin a burst at any time. */
#define AHEAD_BELOW_NS UINT64_C(300000)
/* After so many failed drains in a row, a session is called undrainable. */
#define TRIES_UNDRAINABLE 3
/* A maximum's bucket: the GPU time that a session may save up (BUCKET_NS); and what the bucket holds at the start,
 * and must hold again after it was empty before the session gets a lease: BUCKET_START_NS, or what the maximum
 * allows in BUCKET_START_PERIOD_NS if that is less. */
#define BUCKET_NS 50000000.0
#define BUCKET_START_NS 20000000.0
#define BUCKET_START_PERIOD_NS 100000000.0

enum arbiter_gate {
    PROCESS_CLOSED,
    PROCESS_OPEN,
    PROCESS_CLOSING, /* told to close; its session's lease lasts until it answers */
    PROCESS_OVERDUE, /* the same, but the arbiter does not wait for the answer any more */
};

struct arbiter_process {
    struct arbiter_process *next;
    struct arbiter_session *session;
    void *owner;
    uint64_t gpus;
    enum arbiter_gate gate;
    bool wants;
    /* Its memory is off the card, or ordered off it: it gets no lease that can end, and waits for none. */
    bool is_away;
    /* It reported the beginning of a burst, and not its end yet. */
    bool is_bursting;
    /* While closing: it reported that its work does not end, since a process of its session last took a step; and
     * when the work should have ended, with the slices of the GPU's time that others get meanwhile. */
    bool stalls;
    uint64_t stalls_at;
    /* While closing: its agent has said something since it was told to close. */
    bool has_answered;
    /* Number of its last grant; 0: a lease of a free GPU. */
    uint64_t lease;
    /* While closing: when its work should be done; UINT64_MAX: not known. */
    uint64_t done_at;
    /* Up to when its busy time is known; and how much of the time from the opening of its gate to then it did not
     * claim as busy. */
    uint64_t reported_at, spare_ns;
    /* The part of recent time in which it had work; and how much time that part covers, up to a bound. */
    double busy_part, busy_told_ns;
    /* The least time that one of its calls takes while no other session's gate is open. */
    struct least least;
    /* For a session with several processes: what this process's calls cost, when that was measured last, and
     * whether the cost is copied from another process of the session until it is measured. */
    struct solo_cost cost;
    uint64_t measured_at;
    bool is_like_another;
    /* Of the turn in which it was measured last, the part in which it had work; 0: it gave the turn back. */
    double density;
    /* Since `watched_at`: its time with work, what its calls cost, and how long it waited at its gate. And,
     * smoothed: the parts of the time in which it had work or waited, and that its calls cost; and how much time
     * these cover. */
    uint64_t watched_at;
    double told_busy_ns, told_used_ns, gate_ns, share_busy, share_used, watched_ns;
    /* When its agent was last told to forget what calls took: because its gate opened, or because a turn began in
     * which its session is measured. */
    uint64_t afresh_at;
    /* Its longest piece of work: no longer than its gate has been open, which is since `open_since` (0: its gate is
     * closed). */
    uint64_t longest_ns, open_since;
};

/* GPU time taken beyond one's part, as of `since`, and how fast it is paid back (ns per ns). */
struct debt {
    double ns, rate;
    uint64_t since;
};

/* A user who owns sessions. Kept while there are any, and until what they took beyond their part is paid back. */
struct arbiter_user {
    struct arbiter_user *next;
    uint64_t id;
    unsigned sessions;
    /* Held time that sessions were ahead when they ceased to take turns; and what sessions had overdrawn on their
     * maxima. */
    struct debt ahead[ARBITER_GPUS], overdrawn;
};

/* GPU time of a session on one GPU. */
struct use {
    /* Virtual time: held time by weight. */
    double vt;
    /* Time of the turn since the last charge, divided among the sessions whose turns overlap; and what guests of
     * this GPU had used, in all, at that charge. */
    double open_ns, guests_ns;
    /* In all, since the session came. */
    double used_ns, held_ns;
    /* How much of `used_ns` may be wrong. */
    double unsure_ns;
    /* What the daemon saw in its present look: a part of the GPU's time. */
    double seen_part;
    /* GPU time used, by second: a ring of the last whole seconds and the running one, which is `last_s`. */
    uint64_t first_s, last_s;
    double seconds[ARBITER_WINDOW_S + 1];
};

/* What the processes of a session reported of a stretch of time that began at `from`. */
struct stretch {
    uint64_t from;
    double busy_ns, calls;
    /* What the calls cost, as far as known. */
    double spent_ns;
    /* The least time that a measured call took; 0: none was measured, or no agent says so. */
    double least_ns;
    /* Time in which its gates were open, but it was to hold still. */
    double still_ns;
    /* The most that other sessions can have used meanwhile. */
    double others_ns;
    /* Another session's gate was open for a part of that time. */
    bool has_company;
    /* Some of these calls were measured. Otherwise their time is the agent's guess, from calls before. */
    bool is_measured;
};

/* A session beside others: the sums of the running window (200 ms), and what the last window told. */
struct beside {
    double passed_ns, busy_ns;
    /* Of the time with work, that in which the GPU had begun with it. */
    double begun_ns;
    /* Time in which other sessions had no work; what they were charged; and how much of that may be wrong. */
    double others_idle_ns, others_ns, unsure_ns;
    /* The session's own calls, and their cost as measured alone. */
    double calls, spent_ns;
    /* Turns of the session that began. */
    unsigned turns;
    /* What others had been charged, in all, at the session's last report. */
    double before_ns, unsure_before_ns;
    /* Of the time in which the session has work, the part in which the GPU does it, as a guess by time; and the
     * weight of that guess, 0..1, against its calls' cost. */
    double part, by_time;
    /* The same three sums as in the window, with those of earlier windows, which count less. */
    struct begun {
        double ns, busy_ns, spent_ns;
    } begun;
    /* Of its calls' cost, the part for which the GPU had begun with work for long enough; 0: not known yet. */
    double cost_part;
    /* In the last window, neither the cost of its calls nor what others were charged explained how long it had work. */
    bool is_unexplained;
};

/* How a session fared for `ns`: its speed as a part of its speed alone, times the time; and its calls. */
struct pace {
    double ns, speed_ns, calls;
};

/* How well a session used the time in which others held still for its bursts, since `from`. */
struct favour {
    uint64_t from;
    double ns, used_ns;
    /* How long they have been holding still. `ns` leaves out the first part of that, in which the GPU still does
     * what they had before it. */
    double still_ns;
    /* The window before was wasted too. One wasted window says nothing: on a busy machine, any program leaves the
     * GPU idle now and then. */
    bool was_wasted;
    /* They hold still again from then on; and how long they will not the next time. */
    uint64_t again_at, every;
    /* They hold still now. */
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
    uint64_t came_at; /* when the first process came */

    /* The GPUs on which its processes run and shares count: what it leases. */
    uint64_t gpus;
    /* 0 < weight <= 1. */
    double weight;
    /* It waited or held a lease at the last decision. */
    bool is_backlogged;
    uint64_t waits_since;
    /* How far it is ahead of its GPUs' clocks. Read for sessions that want a turn. */
    double lag;

    enum arbiter_lease lease;
    /* `leaves`: it closes of its own accord. `has_left`: while closing, its work was once so little that the next
     * session may have begun; what its steps add does not undo that. */
    bool closing, leaves, has_left;
    /* Its processes seem to wait for each other's work, as those of a collective do. `entangled`: for so many
     * closings to come this is taken for granted; `entangled_for`: how many it will be the next time;
     * `closes_alone`: it is taken for granted in this closing. */
    unsigned entangled, entangled_for;
    bool closes_alone;
    /* In this closing: how many steps were taken, until when others may be taken, and since when not all processes
     * have answered. */
    unsigned steps;
    uint64_t steps_until, unanswered_since;
    /* The lease's GPUs. */
    uint64_t held;
    /* What the lease was granted with. */
    uint32_t flags;
    uint64_t ahead_ns;
    uint64_t since, charged_at;
    /* When its work under the lease ended, as its agent says; 0: it has not said so. */
    uint64_t ended_at;
    /* When a process of the session last reported on its work, or the lease began. */
    uint64_t told_at;
    /* From then on the turn may be taken away. */
    uint64_t turn_ends;
    /* When the arbiter gives up waiting for the closing; when the closing began. */
    uint64_t closes_at, closing_at;
    /* Reported by its processes since the last charge of a turn: how long they had work before the GPU, and what
     * that work costs. `lease_busy_ns`: time with work since the lease began. `unspent_ns`: the part of the lease's
     * time that was not charged yet, since work in it may still be reported. */
    double busy_ns, spent_ns, lease_busy_ns, unspent_ns;
    /* Of the reported time with work beside others, what it was not charged for. Agents may measure that time by
     * looks, which are too few in one report and too many in the next. */
    double uncharged_ns;
    /* When another session's gate was last open beside it; and when the gates of several of its own processes last
     * were. */
    uint64_t company_at, together_at;
    struct beside beside;
    /* Of the time with work in the last report, the part in which the GPU had begun with it. */
    double told_begun;

    /* What the session is like. */
    struct solo_cost cost;
    bool is_known, is_dense;
    uint64_t known_at; /* for the first time */
    uint64_t dense_at; /* when it was last found dense, or not dense any more */
    /* How long it has looked dense; of that, what it used, and how long it had no work. And how long it has looked
     * light since it last looked dense. */
    double dense_ns, dense_used_ns, dense_idle_ns, light_ns;
    /* How long it must look dense beside others until it counts as dense. */
    double dense_after_ns;
    /* Grows with each turn that it gives back, and falls by the length of each that it does not. */
    double gave_back_ns;
    /* How much of its allowance of measuring turns (all other gates closed) it has taken; and how much it may take,
     * for each process that is measured by itself. */
    unsigned measures, measures_most;
    /* When its cost is to be measured again if its minimum depends on it, and how long after that the next time. */
    uint64_t measure_at, measure_every;
    /* The same if its cost is doubted. */
    uint64_t doubt_at, doubt_every;
    bool is_doubted;
    /* An audit found that all sessions together were charged too much or too little, and this one is the likeliest
     * cause. */
    bool is_wrong;
    /* Parts of the time, smoothed: `density`: it keeps the GPU busy when alone; `share_used`: it used the GPU;
     * `share_busy`: it had work. `progress`: its speed as a part of its speed alone. `used_over_ns`: how much time
     * `share_used` covers, little if it is to count soon after a change of role. */
    double density, share_used, share_busy, progress, used_over_ns;
    /* The parts of the last stretch in which it had work, and that it used. */
    double last_busy, last_used;
    /* When its cost was measured last. */
    uint64_t alone_at;
    struct stretch stretch;
    struct favour favour;

    /* Whether it takes turns; until when as a needy guest, and until when for the sake of others; and for how long
     * the next time. */
    bool takes_turns;
    uint64_t needy_until, needy_for, donor_until, donor_for;
    /* Until when it is not needy, since turns did not help it; and for how long the next time. */
    uint64_t content_until, content_for;
    /* How it fared of late as a guest beside others; and in turns, since it was last found needy. */
    struct pace as_guest, in_turns;

    /* Failed drains in a row, and when the next one is tried. */
    unsigned tries;
    uint64_t retry_at;

    /* How far it is behind its minimum; negative: ahead. A session that is a turn behind while one of a higher
     * priority comes before it is due: it comes first until it has caught up. */
    double owed_ns;
    bool is_due;
    /* Reported work that is more than the time that had passed: it counts in the time that follows. */
    double late_ns;
    /* The same as `owed_ns` while it takes turns, less what hand-overs cost. */
    double robbed_ns;
    bool is_robbed;
    /* How long it has not wanted the GPU. */
    double idle_ns;

    /* GPU time that its maximum leaves it; negative: overdrawn. Without a maximum: a full bucket. */
    double tokens;
    bool is_throttled;

    /* The daemon's looks in a row that showed much more than its agents said, and those in a row that did not; when
     * the last look was. */
    unsigned doubts, trusts;
    uint64_t looked_at;
    /* How long they had work before the GPU, as its agents said since then. */
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
    /* Room for a pointer to each session, for sorting. */
    struct arbiter_session **order;
    uint64_t serial, lease_number;
    /* GPUs on which shares count; and GPUs on which a session is being measured, or is to be next: no guest begins
     * there. */
    uint64_t shares, measured;
    struct {
        double clock[ARBITER_PRIORITIES];
        /* Serial number of the session that last had a turn on it. */
        uint64_t holder;
        uint64_t handovers;
        /* When a session last waited for a lease on it. */
        uint64_t waited_at;
        /* Used by guests, in all. */
        double guests_ns;
        /* Charged to all sessions: by now, and by the last audit, which was at `audit_at`. */
        double charged_ns, audited_ns;
        uint64_t audit_at;
        /* How much of recent time was charged to no session; negative: more was charged than passed. */
        double left_ns;
    } gpus[ARBITER_GPUS];
    uint64_t quantum_fixed_ns;
    double gap_ns;
    uint64_t next;
};

/* For each GPU of the set; `gpu` is its number. */
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

/* The part of its speed alone that it is promised. */
static inline double promised_part(const struct arbiter_session *session)
{
    return (double)session->share.min / SHARE_WHOLE;
}

static inline bool has_several_gpus(const struct arbiter_session *session)
{
    return session->gpus & (session->gpus - 1);
}

static inline bool has_several_processes(const struct arbiter_session *session)
{
    return session->processes && session->processes->next;
}

/* Whether these are two sessions that have GPUs in common. */
static inline bool meets(const struct arbiter_session *a, const struct arbiter_session *b)
{
    return a != b && (a->gpus & b->gpus);
}

/* The process may have work before the GPU, and its session's lease lasts for it. */
static inline bool is_let_in(const struct arbiter_process *process)
{
    return process->gate == PROCESS_OPEN || process->gate == PROCESS_CLOSING;
}

/* The session has several processes, and no two of them had open gates at once after `since`. */
static inline bool is_single_since(const struct arbiter_session *session, uint64_t since)
{
    return has_several_processes(session) && session->together_at <= since;
}

/* How much of its minimum others keep from it. */
static inline double missing(const struct arbiter_session *session)
{
    return session->is_dense ? session->robbed_ns : session->owed_ns;
}

/* What `passed_ns` weighs in an average over the last `most_ns`. `*covered_ns` is the time that the average stands for, 0
 * where it begins: until that is long enough, all of it weighs the same. */
static inline double weight_in_average(double *covered_ns, double passed_ns, double most_ns)
{
    *covered_ns = fmin(*covered_ns + passed_ns, fmax(passed_ns, most_ns));
    return passed_ns / *covered_ns;
}

static inline bool is_held(const struct arbiter_session *session)
{
    return session->lease != LEASE_NONE && session->lease != LEASE_FREE;
}

/* It has a lease, but holds still for a burst of a higher priority. */
static inline bool is_still(const struct arbiter_session *session)
{
    return is_held(session) && (session->flags & WIRE_LEASE_STILL);
}

/* Whether its cost is to be learned in its turns, for which all other gates must be closed. */
static inline bool is_measuring(const struct arbiter_session *session)
{
    return !session->is_known && session->takes_turns;
}

/* --- arbiter_time.c -------------------------------------------------------------------------------- */

/* The longest exclusive turn in force now. */
uint64_t arbiter_turn_ns(const struct arbiter *arbiter);
/* Bring the accounts up to `now`, which becomes the arbiter's time. */
void arbiter_settle(struct arbiter *arbiter, uint64_t now);
/* Set the sessions' weights, which follow from shares and from who competes. */
void arbiter_weigh(struct arbiter *arbiter);
/* Whether the session's program has gaps of its own and is owed nothing. Such a program leaves the GPU idle in its
 * turns, and others make more of time that nobody is promised: so they come first until it is owed something again. */
bool arbiter_leaves_the_rest(const struct arbiter_session *session);
/* Advance the GPUs' clocks. */
void arbiter_advance_clocks(struct arbiter *arbiter);
/* The session comes back from idling, or is new on these GPUs. It gets a credit of one quantum at most for time
 * that it did not use. */
void arbiter_come_back(struct arbiter_session *session, uint64_t gpus);
/* How far the session may be ahead of its GPUs' clocks at most, whatever it took. */
double arbiter_most_ahead(const struct arbiter_session *session);
/* How far the session is ahead of its GPUs' clocks, counting what it took and is not charged for yet. */
double arbiter_lag(const struct arbiter_session *session);
/* Whether the session waits or holds a lease, or did so up to 5 ms ago: between two turns, a session does neither
 * for a moment. */
bool arbiter_has_demand(const struct arbiter_session *session);
/* What the session is owed, less what it took and is not charged for yet. */
double arbiter_owed(const struct arbiter_session *session);
/* Add to what the session is owed (negative: take off), within bounds. */
void arbiter_owe(struct arbiter_session *session, double ns);
/* Time of the session's turn since the last charge. */
double arbiter_uncharged(const struct arbiter_session *session);
/* Charge the session for the time of its turn since the last charge. Returns the part of that time in which it was
 * busy, or -1 if no time passed or it has no turn. */
double arbiter_charge(struct arbiter_session *session);
/* Charge the session for what it used beyond what its agents said. */
void arbiter_charge_unsaid(struct arbiter_session *session, unsigned gpu, double used_ns);
/* What the session used in the running second, or `back` seconds before it. */
double arbiter_used_in_second(const struct arbiter_session *session, unsigned gpu, unsigned back);
/* Charge a guest: of the time in which it had work, it used so much. `is_alone`: no other session's gate was open. */
void arbiter_charge_guest(struct arbiter_session *session, double used_ns, double busy_ns, bool is_alone);

/* --- arbiter_cost.c -------------------------------------------------------------------------------- */

/* Whether the session's processes are measured one by one, each with the others' gates closed: it has several, they
 * have the same GPUs, and they do not wait for each other's work. */
bool arbiter_is_measured_singly(const struct arbiter_session *session);
/* How many processes are measured by themselves; 1 if all are measured together. */
unsigned arbiter_measured_count(const struct arbiter_session *session);
/* How many of these need not be measured again: all but one, or none. */
unsigned arbiter_sure_count(const struct arbiter_session *session);
/* Whether the process may have its gate open now, in a turn in which the processes are measured one by one. */
bool arbiter_may_be_measured(const struct arbiter_process *process);
/* arbiter_begin_costs(): the process is new, and is taken to be like another process of its session until it is
 * measured. arbiter_end_costs(): a process has gone; if one is left, the session's cost is that process's cost. */
void arbiter_begin_costs(struct arbiter_process *process);
void arbiter_end_costs(struct arbiter_session *session);
/* The process reported a stretch in which no other process of its session could have had work. */
void arbiter_learn_singly(struct arbiter_process *process, struct cost_stretch stretch);
/* Whether the cost of each process that makes calls is known; and whether it is sure. */
bool arbiter_knows_each(const struct arbiter_session *session);
bool arbiter_is_sure_of_each(const struct arbiter_session *session);
/* Whether the cost of the session's calls is known so well that they are charged by it. */
bool arbiter_is_charged_by_calls(const struct arbiter_session *session);
/* The usual error of a charge by the session's calls, as a part of that charge. */
double arbiter_calls_error(const struct arbiter_session *session);
/* What so many calls of the process cost; negative: not known. */
double arbiter_cost(const struct arbiter_process *process, double calls);
/* Bring the process's smoothed figures up to now, with what it reported since `watched_at`. */
void arbiter_watch_process(struct arbiter_process *process);
/* The part of a GPU's time that the session's processes would use if they had it alone, as far as each of them is
 * known. */
double arbiter_density_of_all(const struct arbiter_session *session);
/* The session's progress in a stretch of `passed_ns`: its speed as a part of its speed alone. `busy` and `used`:
 * the parts of the stretch in which it had work, and that it used. */
double arbiter_speed(const struct arbiter_session *session, double passed_ns, double busy, double used);

/* --- arbiter_beside.c ------------------------------------------------------------------------------ */

/* From now on, what the session reports is compared with what others are charged from now on. */
void arbiter_begin_beside(struct arbiter_session *session);
/* In company, the session had work for `busy_ns` of `passed_ns`, in so many calls, which cost `cost_ns`. Returns
 * the most that others can have used meanwhile: all of the time if their charges are too unsure. */
double arbiter_note_beside(struct arbiter_session *session, double passed_ns, double busy_ns, double calls,
                           double cost_ns);
/* GPU time of calls that were before the GPU for `busy_ns` and cost `cost_ns`, beside others; negative: not known. */
double arbiter_spent(const struct arbiter_session *session, double busy_ns, double cost_ns);

/* --- arbiter_debt.c -------------------------------------------------------------------------------- */

/* The user with this ID, who gets one more session. Returns NULL without memory. */
struct arbiter_user *arbiter_user_enter(struct arbiter *arbiter, uint64_t id);
void arbiter_users_free(struct arbiter *arbiter);
/* The session ceases to take turns, or ends: what it is ahead becomes its user's debt. */
void arbiter_leave_turns(struct arbiter_session *session);
/* The session, which was a guest or is new, takes turns from now on. It begins at its GPUs' clocks, behind by what
 * its user owes. */
void arbiter_join_turns(struct arbiter_session *session);
/* The session ends: what it overdrew on its maximum becomes its user's debt. arbiter_overdraft() is that debt as it
 * is now. */
void arbiter_note_overdraft(struct arbiter_session *session);
double arbiter_overdraft(const struct arbiter_session *session);

/* --- arbiter_role.c -------------------------------------------------------------------------------- */

/* Nothing is known of the session: it is new. */
void arbiter_forget(struct arbiter_session *session);
/* Other processes of the session run than before: one came, ended, was stopped or goes on. So its calls may cost
 * something else now. */
void arbiter_doubt_cost(struct arbiter_session *session);
/* Begin a new stretch of time, of which the session's reports are summed up. */
void arbiter_watch(struct arbiter_session *session);
/* A process reported: it had work for `most_ns`, and so many calls were done. `busy_ns`: what of that is its
 * session's time, since several processes may tell of the same time. `passed_ns`: the time since its session's last
 * report. `is_alone`: no other session's gate was open. */
void arbiter_learn(struct arbiter_process *process, bool is_alone, double passed_ns, double most_ns,
                   double busy_ns, double calls);
/* For `passed` ns, the session's speed was this part of its speed alone. */
void arbiter_note_progress(struct arbiter_session *session, double part, double passed);
/* The session's turn is over. `gave_back`: it gave the turn back, since it had no work any more. */
void arbiter_learn_turn(struct arbiter_session *session, bool gave_back);
/* Find out which sessions take turns now. */
void arbiter_find_roles(struct arbiter *arbiter);

/* --- arbiter_need.c -------------------------------------------------------------------------------- */

/* How the session fared as a guest says nothing any more. */
void arbiter_forget_need(struct arbiter_session *session);
/* The session's last process has gone. If it took turns and had been there for 4 seconds or more, all sessions that
 * take turns only for a while are tried as guests again. */
void arbiter_try_open(const struct arbiter_session *gone);
/* Whether the session takes turns because it got less than its minimum as a guest. */
bool arbiter_is_needy(const struct arbiter_session *session);
/* Whether the session is as fast as a guest as it was in turns. */
bool arbiter_is_content(const struct arbiter_session *session);
/* For `passed_ns`, the session's speed was this part of its speed alone, and it made so many calls: as a guest beside
 * others, and in turns. */
void arbiter_count_guest(struct arbiter_session *session, double passed_ns, double speed, double calls);
void arbiter_count_turns(struct arbiter_session *session, double passed_ns, double speed, double calls);
/* `robbed` lacks so much of what was promised to it: if that is enough, have the guests that take more than was
 * promised to them take turns. */
void arbiter_find_donors(const struct arbiter_session *robbed, double lacks_ns);
/* Find out whether the session is needy now: it begins to be, or is no longer since turns do not help it. */
void arbiter_find_needy(struct arbiter_session *session);

/* --- arbiter_favour.c ------------------------------------------------------------------------------ */

void arbiter_favour_begin(struct arbiter_session *session);
/* `passed_ns` more have passed, in which others held still for the session's bursts, or did not. */
void arbiter_favour_count(struct arbiter_session *session, double passed_ns);
/* Judge, every 200 ms, whether others go on holding still for the session's bursts. */
void arbiter_favour_judge(struct arbiter_session *session);

/* --- arbiter_audit.c ------------------------------------------------------------------------------- */

/* Audit the charges on the GPU, if it is time. */
void arbiter_audit(struct arbiter *arbiter, uint64_t gpu);

/* --- arbiter_order.c ------------------------------------------------------------------------------- */

/* Find out on which GPUs shares count, and what sessions lease there. */
void arbiter_find_modes(struct arbiter *arbiter);
/* Note which sessions wait and which are due. Sessions that neither waited nor held a lease before come back from
 * idling. */
void arbiter_find_backlogged(struct arbiter *arbiter);
/* Whether the session waits for a lease, and its maximum lets it have one. */
bool arbiter_is_eligible(const struct arbiter_session *session);
bool arbiter_precedes(const struct arbiter_session *a, const struct arbiter_session *b);
/* Whether `waiter` may have `holder`'s turn taken away once its time is up. A guest may only while `holder` is
 * being measured, whatever the order. */
bool arbiter_presses(const struct arbiter_session *waiter, const struct arbiter_session *holder);

/* --- arbiter_decide.c ------------------------------------------------------------------------------ */

/* Give and take leases as they are due now, and find out when to decide again. */
void arbiter_decide(struct arbiter *arbiter);

/* --- arbiter_lease.c ------------------------------------------------------------------------------- */

/* When a lease that is being closed will have so little work left that the next one may begin; UINT64_MAX: not
 * known, or the next one has to wait for the end. */
uint64_t arbiter_leaves_at(const struct arbiter_session *session);
/* Whether the session's lease keeps others' turns off its GPUs: an exclusive one, or one of a free GPU while it
 * closes; not once so little work is left that the next session may begin. */
bool arbiter_is_in_the_way(const struct arbiter_session *session);
/* Whether the process waits at its closed gate; and whether one of the session's processes does. */
bool arbiter_process_is_waiting(const struct arbiter_process *process);
bool arbiter_has_waiting_process(const struct arbiter_session *session);
/* Whether one of the session's processes may have work before the GPU. */
bool arbiter_is_any_let_in(const struct arbiter_session *session);
/* Whether the session has no lease, and one of its processes waits. */
bool arbiter_is_waiting(const struct arbiter_session *session);

void arbiter_open_gate(struct arbiter_process *process);
/* Tell the processes whose gates are open what holds for the lease now. */
void arbiter_set_flags(struct arbiter_session *session, uint32_t flags, uint64_t ahead_ns);
void arbiter_tell(const struct arbiter_session *session, enum arbiter_event event);

void arbiter_begin_lease(struct arbiter_session *session, enum arbiter_lease lease);
/* The session's turn becomes a guest's lease, or the other way round. Its gates stay open. */
void arbiter_convert_lease(struct arbiter_session *session, enum arbiter_lease lease);
/* Revoke the session's lease, and wait for its processes' answers. */
void arbiter_begin_closing(struct arbiter_session *session);
/* The process has closed its gate of its own accord, and cannot return the lease at once. */
void arbiter_leave(struct arbiter_process *process);
/* End the session's lease if none of its gates is open or closing. `gave_back`: nobody had asked for it. */
void arbiter_end_lease_if_returned(struct arbiter_session *session, bool gave_back);
/* The work of one of the session's processes did not drain, and that gate is open again. The other gates open too,
 * and the next session in the order runs beside this one, since the work on the GPU may wait for either. */
void arbiter_become_loose(struct arbiter_session *session);
/* How much work the process has left, if it says `left_ns`. A process that waited for another one of its session
 * takes the work left to be as long as that wait, so in a session that closes alone the figure is cut down. */
uint64_t arbiter_believed_left(const struct arbiter_process *process, uint64_t left_ns);
/* The process should be drained after `left_ns` more of its work. */
void arbiter_expect_drained(struct arbiter_process *process, uint64_t left_ns);
/* If a process of a closing session cannot drain, let each process of it that has drained and waits make one call,
 * which the first may wait for. */
void arbiter_step(struct arbiter_session *session);
/* The process's agent has said something. Counts if the process is closing. */
void arbiter_note_answer(struct arbiter_process *process);
/* When a step is due although no agent asks for it; UINT64_MAX: never. */
uint64_t arbiter_steps_at(const struct arbiter_session *session);
/* Note whether the session's maximum keeps it from having a lease now. */
void arbiter_throttle(struct arbiter_session *session);
