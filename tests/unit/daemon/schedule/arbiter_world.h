/* arbiter_world.h - a simulated world for the arbiter: GPUs that processes time-slice, programs with their
 * own rhythm, and agents that answer with a delay. Its clock is its own; it steps by 10 us. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/schedule/arbiter.h"

#define WORLD_STEP_NS UINT64_C(10000)
#define WORLD_PROCESSES 16u
#define WORLD_GPUS 4u
#define WORLD_BURSTS 20000u
#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)

struct world;

/* A program submits pieces of `piece_ns`, 1 ms of them ahead; after `burst` of them (0: no end) it waits for
 * all and is idle for `idle_ns`. */
struct program {
    uint64_t piece_ns;
    uint64_t
        piece_most_ns; /* 0: all pieces are alike; else they are of any length up to this, by chance: of each order as often */
    unsigned burst;
    uint64_t idle_ns;
    /* Instead of idle_ns: its bursts come at times of their own, so often on average, by chance. */
    uint64_t every_ns;
    /* Instead of idle_ns: a burst is due each so often; those that it was too late for are left out. */
    uint64_t period_ns;
    uint64_t gpus;         /* bits; a piece runs on all of them at once. 0: the first */
    bool says_when_closed; /* and how much is in flight then: CLOSED */
    bool never_drains;     /* its work in flight does not end while its gate is closing */
};

/* How long bursts took from when they were due, in the order in which they ended. */
struct world_bursts {
    uint64_t ns[WORLD_BURSTS];
    unsigned count;
};

/* One way of messages. */
struct mailbox {
    struct mail {
        uint64_t due;
        enum wire_type type;
        uint64_t lease;
        uint32_t flags; /* of GRANT; the outcome of RETURNED */
        uint64_t busy_ns, computed_ns, calls, least_ns, ahead_ns, ended_ns;
    } mails[64];
    unsigned count;
};

struct member {
    struct world *world;
    struct arbiter_session *session;
    struct arbiter_process *process;
    struct program program;
    uint64_t device_ns;          /* that its work was on the GPU */
    struct world_bursts *bursts; /* where they are noted, or NULL */
    bool is_stopped; /* by SIGSTOP: neither program nor agent do anything, what is in flight goes on */
    bool is_dead;
    bool understates;  /* CLOSED says that nothing is left */
    bool says_nothing; /* its agent claims that it does not use the GPU */
    /* Its calls seem to take so many times as long in every other report, and half as long in those between. */
    double misjudges;
    /* They seem to take longer by this part in every other report, and shorter in those between. */
    double jitter;
    /* Of every other report no call was measured: they are taken to be like those of the report before. */
    bool guesses;
    double last_each_ns;
    /* This part of its calls is not measured: they are taken to be like those of late under the same lease. */
    double remembers, of_late_ns;
    unsigned reports;

    /* The program. */
    uint64_t in_flight_ns, idle_until, due_at; /* the burst */
    uint64_t asked, asked_at;                  /* bursts that have come, and when the last one did */
    unsigned pieces;                           /* of this burst, submitted */
    /* Pieces, in all; and of the first that is not done, what is left. */
    uint64_t submitted, done, first_left_ns;
    uint64_t least_ns; /* of those that were done since the last report */

    /* The agent. */
    struct mailbox inbox, outbox;
    bool gate_open, is_free, is_draining, has_asked, had_work;
    bool told_burst;
    uint64_t report_due; /* since the last one */
    uint64_t lease, idle_since, revoked_at, calls, gap_ns, ahead_ns, reported_at;
    uint64_t busy_ns, begun_ns,
        counted;             /* with work in flight: until the last piece was done, and since then */
    uint64_t told_device_ns; /* of `device_ns` */
    uint32_t flags;
    unsigned grants, revokes, undrained;
};

struct world {
    struct arbiter *arbiter;
    uint64_t now;
    uint64_t latency_ns; /* of a message */
    bool is_starved;     /* the daemon is not run */
    /* An agent may be so much late with what it tells of its own accord: by chance. */
    uint64_t late_ns, chance;
    /* So much later it notices that its work has ended where nobody waits for that. */
    uint64_t calm_ns;
    struct member members[WORLD_PROCESSES];
    unsigned member_count;
    unsigned gpu_count;           /* those that anybody uses */
    unsigned running[WORLD_GPUS]; /* whose slice it is */
    uint64_t slice_left_ns[WORLD_GPUS];
    uint64_t slice_ns; /* for which a GPU serves one process before it serves the next one */
    /* How long a GPU takes to change to another process, in which it serves nobody; what is left of that; and which process it
     * served last. */
    uint64_t switch_ns, switching_ns[WORLD_GPUS];
    unsigned served[WORLD_GPUS];
    bool waits_are_told; /* how long calls waited until the GPU began with them is told apart */
    unsigned events[5];  /* by enum arbiter_event */
    unsigned breaches;   /* steps in which two exclusive leases were in use on a GPU */
};

void world_begin(struct world *world);
/* Its card has the constants of an H100. */
void world_be_h100(struct world *world);
void world_end(struct world *world);
struct member *world_add(struct world *world, const char *share, unsigned priority, struct program program);
/* A session of that user's; those of others have each a user of their own. */
struct member *world_add_of(struct world *world, uint64_t user, const char *share, unsigned priority,
                            struct program program);
/* One more process of the same session. */
struct member *world_add_process(struct world *world, struct arbiter_session *session,
                                 struct program program);
void world_kill(struct member *member);
/* One that is dead: another process, of the same program, in its place. */
void world_start_again(struct member *member);
/* A new session in its place, whose process runs the same program; the session is dead, and had no other process. */
void world_come_again(struct member *member, uint64_t user, const char *share, unsigned priority);
/* Of those bursts that ended since there were `from` of them: so long took the one that is longer than 99 of 100; and so many took
 * longer than that. */
uint64_t world_p99_ns(const struct world_bursts *bursts, unsigned from);
unsigned world_longer_than(const struct world_bursts *bursts, unsigned from, uint64_t ns);
void world_run(struct world *world, uint64_t ns);
