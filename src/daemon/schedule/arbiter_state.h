/* arbiter_state.h - the arbiter's own state, shared by its parts: arbiter.c is told what happens,
 * arbiter_time.c keeps the accounts, arbiter_decide.c says who is to hold what, arbiter_lease.c gives and
 * takes leases. */
#pragma once

#include "daemon/schedule/arbiter.h"

#define QUANTUM_START_NS UINT64_C(30000000)
/* What is measured of a hand-over's gap is the messages' way; that a process sees its work done, and that a
 * thread of the next wakes up at its gate, is not. With shorter turns these cost above a hundredth. */
#define QUANTUM_AUTO_MIN_NS UINT64_C(15000000)
#define QUANTUM_AUTO_MAX_NS UINT64_C(50000000)
#define NEVER UINT64_MAX
/* Drains in a row that failed, after which a session is called undrainable. */
#define TRIES_UNDRAINABLE 3
/* GPU time that a session below its maximum may save up. */
#define BUCKET_NS 50000000.0

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
    uint64_t lease;       /* number of its last grant; 0: free */
    uint64_t done_at;     /* while closing: when its work should be done; UINT64_MAX: nobody knows */
    uint64_t reported_at; /* up to when its busy time is known */
    uint64_t longest_ns;  /* piece of work */
};

/* GPU time by second: a ring of the last whole seconds and the running one. */
struct use {
    double vt;      /* virtual time: GPU time by weight */
    double open_ns; /* time open since the last charge, apportioned among those open */
    double used_ns; /* in all */
    uint64_t first_s, last_s;
    double seconds[ARBITER_WINDOW_S + 1]; /* by second modulo length; up to last_s */
};

struct arbiter_session {
    struct arbiter_session *next;
    struct arbiter *arbiter;
    void *owner;
    uint64_t serial;
    struct share share;
    unsigned priority;
    struct arbiter_process *processes;

    uint64_t gpus;      /* on which shares count and its processes run: what it leases */
    double weight;      /* 0 < weight <= 1 */
    bool is_backlogged; /* waits or holds, as of the last decision */
    uint64_t waits_since;
    double lag; /* of those that want a turn: how far ahead of its GPUs' clocks */

    enum arbiter_lease lease;
    bool closing;
    uint64_t held;  /* the lease's GPUs */
    uint32_t flags; /* of the lease, as granted */
    uint64_t since, charged_at;
    uint64_t turn_ends;             /* may be taken away from then on */
    uint64_t closes_at, closing_at; /* when closing is given up on; when it began */
    double busy_ns;                 /* by its processes, since the last charge */
    bool is_sparse;                 /* leaves the GPU idle now and then */
    double dense_busy_ns, dense_ns; /* of an overlap: a window in which it may turn out busy */

    unsigned tries; /* drains in a row that failed */
    uint64_t retry_at;

    /* What it is behind its minimum while a higher priority comes before it, on any of its GPUs; what it had
     * beyond is negative. Once that is a turn, it comes first itself until it has caught up. */
    double owed_ns;
    bool is_due;

    double tokens; /* GPU time it may take below its maximum; negative: debt. No maximum: a full bucket */
    bool is_throttled;

    uint64_t waited_ns, overruns;
    struct use use[ARBITER_GPUS];
};

struct arbiter {
    const struct arbiter_calls *calls;
    void *context;
    uint64_t now;
    struct arbiter_session *sessions;
    unsigned session_count;
    struct arbiter_session **order; /* room for all */
    uint64_t serial, lease_number;
    uint64_t shares; /* GPUs in that mode */
    struct {
        double clock[ARBITER_PRIORITIES];
        uint64_t holder; /* serial of who had it last */
        uint64_t handovers;
    } gpus[ARBITER_GPUS];
    uint64_t quantum_fixed_ns;
    double gap_ns;
    uint64_t overlap_since; /* up to when overlaps are apportioned */
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

static inline bool is_exclusive(const struct arbiter_session *session)
{
    return session->lease == LEASE_EXCLUSIVE || session->lease == LEASE_LOOSE;
}

static inline bool is_held(const struct arbiter_session *session)
{
    return session->lease != LEASE_NONE && session->lease != LEASE_FREE;
}

/* --- arbiter_time.c -------------------------------------------------------------------------------- */

/* Bring the accounts to `now`. */
void arbiter_settle(struct arbiter *arbiter, uint64_t now);
/* Weights follow from shares and from who competes. */
void arbiter_weigh(struct arbiter *arbiter);
/* Advance the GPUs' clocks. */
void arbiter_advance_clocks(struct arbiter *arbiter);
/* One that comes back from idling, or is new on these GPUs: what it did not use is not owed. */
void arbiter_come_back(struct arbiter_session *session, uint64_t gpus);
/* How far it is ahead of its GPUs' clocks, with what it has taken and is not charged for yet. */
double arbiter_lag(const struct arbiter_session *session);
/* What it is owed, less what it has taken and is not charged for yet. */
double arbiter_owed(const struct arbiter_session *session);
/* GPU time since the last charge. */
double arbiter_uncharged(const struct arbiter_session *session);
/* Turn the time since the last charge into use. Returns which part of it the session was busy, or -1 for no
 * time at all. */
double arbiter_charge(struct arbiter_session *session);
/* Charge what overlapping sessions were busy since the last time, and find out who has turned busy. Returns
 * those GPUs on which more was wanted than there is. */
uint64_t arbiter_charge_overlaps(struct arbiter *arbiter);
/* Count what overlap there is from now on. */
void arbiter_begin_overlap(struct arbiter_session *session);

/* --- arbiter_decide.c ------------------------------------------------------------------------------ */

/* Give and take leases as they are due now, and find out when to do so again. */
void arbiter_decide(struct arbiter *arbiter);

/* --- arbiter_lease.c ------------------------------------------------------------------------------- */

/* From when on a lease that is being closed has so little left that the next may begin. */
uint64_t arbiter_leaves_at(const struct arbiter_session *session);
/* Whether the lease keeps others off its GPUs. One that was free does so while it closes. */
bool arbiter_is_in_the_way(const struct arbiter_session *session);
/* Whether a process waits at a closed gate; and without a lease of the session. */
bool arbiter_has_waiting_process(const struct arbiter_session *session);
bool arbiter_is_waiting(const struct arbiter_session *session);

void arbiter_open_gate(struct arbiter_process *process);
/* Tell those whose gates are open what else holds for the lease. */
void arbiter_raise_flags(struct arbiter_session *session, uint32_t flags);
void arbiter_tell(const struct arbiter_session *session, enum arbiter_event event);

void arbiter_begin_lease(struct arbiter_session *session, enum arbiter_lease lease);
/* Revoke it, and wait for the answers. */
void arbiter_begin_closing(struct arbiter_session *session);
/* The lease is over once no gate is open or closing. `gave_back`: nobody had asked for it. */
void arbiter_end_lease_if_returned(struct arbiter_session *session, bool gave_back);
/* The process's work did not drain and its gate is open again: so are the others', and the next in line runs
 * beside them, since what is on the GPU may wait for either. */
void arbiter_become_loose(struct arbiter_session *session);
/* Note whether its maximum keeps it from having a lease now. */
void arbiter_throttle(struct arbiter_session *session);
