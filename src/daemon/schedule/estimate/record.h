/* estimate/record.h - what sessions' work costs, what they used, and how much of that may be wrong.
 *
 * Written by estimate/ alone. Times are nanoseconds. */
#pragma once

#include "daemon/schedule/backoff.h"
#include "daemon/schedule/estimate/solo_cost.h"
#include "daemon/schedule/types.h"

struct process_estimate {
    /* The part of recent time in which it had work; and how much time that part covers, up to a bound. */
    double busy_part, busy_told_ns;
    /* For a session with several processes: what this process's calls cost, when that was measured last, and
     * whether the cost is copied from another process of the session until it is measured. */
    struct solo_cost cost;
    uint64_t measured_at;
    bool is_like_another;
    /* Since `watched_at`: its time with work, what its calls cost, and how long it waited at its gate. And,
     * smoothed: the parts of the time in which it had work or waited, and that its calls cost; and how much time
     * these cover. */
    uint64_t watched_at;
    double told_busy_ns, told_used_ns, gate_ns, share_busy, share_used, watched_ns;
};

/* GPU time that a session used on one GPU. */
struct used {
    /* In all, since the session came; and how much of that may be wrong. */
    double ns, unsure_ns;
    /* What guests of this GPU had used, in all, when the session was charged last. */
    double guests_ns;
    /* What the daemon saw in its present look: a part of the GPU's time. */
    double seen_part;
    /* By second: a ring of the last whole seconds and the running one, which is `last_s`. */
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
    /* The cost of the session's own calls, as measured alone. */
    double spent_ns;
    /* What others had been charged, in all, at the session's last report. */
    double before_ns, unsure_before_ns;
    /* Of the time in which the session has work, the part in which the GPU does it, as a guess by time; and the
     * weight of that guess, 0..1, against its calls' cost. */
    double part, by_time;
    /* The same two sums as in the window, with those of earlier windows, which count less. */
    struct begun {
        double ns, busy_ns;
    } begun;
};

struct session_estimate {
    struct solo_cost cost;
    bool is_known, is_dense;
    bool became_light; /* and that was not told yet */
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
    /* Until when it is not measured again although its cost is doubted. */
    struct backoff doubted;
    bool is_doubted;
    /* An audit found that all sessions together were charged too much or too little, and this one is the likeliest
     * cause. */
    bool is_wrong;
    /* Parts of the time, smoothed: `density`: it keeps the GPU busy when alone; `share_used`: it used the GPU;
     * `share_busy`: it had work. `used_over_ns`: how much time `share_used` covers, little if it is to count soon
     * after a change of role. */
    double density, share_used, share_busy, used_over_ns;
    /* The parts of the last stretch in which it had work, and that it used. */
    double last_busy, last_used;
    /* When its cost was measured last. */
    uint64_t alone_at;
    struct stretch stretch;
    struct beside beside;
    /* Reported by its processes since the last charge of a turn: how long they had work before the GPU, and what
     * that work costs. `lease_busy_ns`: time with work since the lease began. `unspent_ns`: the part of the lease's
     * time that was not charged yet, since work in it may still be reported. */
    double busy_ns, spent_ns, lease_busy_ns, unspent_ns;
    /* Of the reported time with work beside others, what it was not charged for. Agents may measure that time by
     * looks, which are too few in one report and too many in the next. */
    double uncharged_ns;
    /* Reported work that is more than the time that had passed: it counts in the time that follows. */
    double late_ns;
    /* The daemon's looks in a row that showed much more than its agents said, and those in a row that did not; when
     * the last look was. */
    unsigned doubts, trusts;
    uint64_t looked_at;
    /* How long they had work before the GPU, as its agents said since then. */
    double said_ns;
    bool understates;
    struct used used[ARBITER_GPUS];
};

/* All sessions of a GPU. */
struct gpu_estimate {
    /* Used by guests, in all. */
    double guests_ns;
    /* Charged to all sessions: by now, and by the last audit, which was at `audit_at`. */
    double charged_ns, audited_ns;
    uint64_t audit_at;
    /* How much of recent time was charged to no session; negative: more was charged than passed. */
    double left_ns;
};
