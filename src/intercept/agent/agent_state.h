/* agent_state.h - what the files of the agent share. Only the agent's thread uses it, except for `pokes`, which other
 * threads write to.
 *
 * agent_state.c  what the agent knows, and the mover that it was given
 * agent.c        the thread: starts, listens to the daemon, and serves the rest
 * connection.c   the connection to the daemon: made, used and lost
 * measure.c      how busy the process keeps the GPUs
 * lease.c        what GRANT and REVOKE do, and when the agent gives a lease back
 * move.c         the process's memory leaves the card, and comes back
 * idleness.c     whether a program without work will have some soon; pure
 * room.c         a thread that finds the card full waits until the daemon has made room
 * silence.c      a daemon that hangs
 * alone.c        without a daemon: the cap that the environment sets */
#pragma once

#include "intercept/agent/idleness.h"
#include "intercept/session/attach.h"
#include "intercept/submit/cap_bucket.h"
#include "intercept/submit/gate_area.h"
#include "wire/wire.h"

/* How often the agent looks at a busy process if the daemon has to know when the work ends. */
#define AGENT_TICK_NS UINT64_C(1000000)
/* How often the agent wakes in any case, to check that its descriptors are still its own. */
#define AGENT_CHECK_NS UINT64_C(5000000000)

/* All zero in a forked child, which has no agent. */
struct agent_state {
    struct attach_descriptor connection;
    /* Threads write to the second one to wake the agent, which reads the first one. */
    struct attach_descriptor pokes[2];
    /* When the agent last checked that its descriptors are still its own; and whether one of `pokes` is not, so that nobody
     * can wake the agent. */
    uint64_t checked_ns;
    bool is_deaf;
    uint16_t version;
    /* Since when the connection is lost, though the daemon may go on (lost.c); 0: it is not. */
    uint64_t lost_ns;
    /* The daemon sent GRANT, and the agent has not answered it by RETURNED. */
    bool held;
    /* The agent has sent WANT for the threads that wait at the gate now. */
    bool wanted;
    uint64_t lease;
    /* The lease's: enum wire_lease_flags. */
    uint32_t flags;
    /* The question for room that the daemon was sent (room.c); 0: none, and the next daemon is asked anew. */
    uint64_t told_need;
    /* The GPUs that the last WANT named. */
    uint64_t told_gpus;
    uint64_t next_report_ns;
    /* Since when looks have found no work, and nothing was submitted between them; 0: there was work. */
    uint64_t idle_from_ns;
    /* What the last BURST said: work began. */
    bool told_burst;
    struct {
        /* When the time to be measured began: at GRANT, or at the last measure. */
        uint64_t from_ns;
        /* Looks at moments chosen by chance: how many there were, and at how many of them there was work; and when the next
         * look is. */
        uint32_t looks, looks_busy;
        uint64_t look_at_ns;
        /* Not 0: looks count, since so few calls were measured that marks do not say for how long there is work. So many
         * measures are left until marks count again. */
        unsigned by_looks;
        /* Time under the lease for which the agent has reported no work. */
        uint64_t idle_ns;
        /* How much the process had submitted at the last look; and whether it has rested since then, so that the next
         * submission wakes the agent. */
        uint64_t submitted;
        bool rests;
        /* When the work that the last look found should end. */
        uint64_t ends_ns;
        /* How many looks there were since the process last rested. */
        uint32_t looks_since_rest;
        /* For how long the program leaves the GPU idle between two calls. */
        uint64_t gap_ns;
        uint32_t chance;
    } measure;
    struct {
        /* The memory is away, from EVICT to RESTORE. The gate stays closed then, whatever leases say. */
        bool is_away;
        /* How often it has left. */
        uint64_t absences;
        /* What the last MOVED said, and when it was sent. */
        struct wire_moved told;
        uint64_t told_ns;
        /* The order that is being carried out. */
        uint64_t order;
        /* How much the process had submitted at the last look, and what follows from such looks. */
        uint64_t submitted;
        struct idleness idleness;
        /* Since when the mover has had host memory to spare; 0: it has none. */
        uint64_t spare_since_ns;
        /* The daemon needs host memory elsewhere, and asked for what is beyond `keep_bytes`. */
        bool gives_back;
        uint64_t keep_bytes;
        /* When to page-lock more of the arena. */
        uint64_t lock_at_ns;
    } move;
    /* There is no daemon: the agent keeps the environment's cap, or moves memory at random moments. */
    bool alone;
    struct cap_bucket cap;
    /* Alone: the last drain failed, and the agent does not try again before this time. */
    uint64_t drain_again_ns;
    /* Alone: when memory next leaves or comes back, if it is moved at random moments. */
    uint64_t next_move_ns;
};
extern struct agent_state agent;

/* NULL: the process's memory cannot leave the card. */
const struct agent_mover *agent_mover(void);
bool agent_has_mover(void);

/* --- connection.c ---------------------------------------------------------------------------------- */

/* 0, or a negative errno. */
int agent_reach_daemon(void);
/* Go on without the daemon: the gate is open until the daemon is reached again, unless the process's memory is away. */
void agent_lose_daemon(struct gate *gate, const char *why);
/* The connection has ended: the gate closes until it is known whether the daemon has, too (lost.c). */
void agent_lose_connection(struct gate *gate, const char *why);
/* Send a message; never waits. If that fails, the daemon is lost. */
void agent_tell(struct gate *gate, struct wire_message *message);
void agent_tell_want(struct gate *gate);

/* Open the gate as `state` says, but not while the process's memory is away. */
void agent_open_gate(struct gate *gate, enum gate_state state);

/* --- lost.c ---------------------------------------------------------------------------------------- */

/* While the connection is lost: try to have another one, and open the gate if the daemon has gone. */
void agent_serve_lost(struct gate *gate);

/* --- measure.c ------------------------------------------------------------------------------------- */

/* Drop what was counted so far: the time to be measured begins at `now_ns`. */
void agent_count_from(struct gate *gate, uint64_t now_ns);

/* Since the last measure: for how long there was work before the GPUs, waiting for other sessions included, and how many
 * calls were done. */
struct agent_measure {
    uint64_t busy_ns, calls;
    /* As in struct in_flight_done. */
    uint64_t begun_ns, least_ns, measured;
};
struct agent_measure agent_measure(struct gate *gate, uint64_t now_ns);

/* Whether looks at moments chosen by chance count, since marks do not say for how long there is work. */
bool agent_counts_looks(void);

/* Look for work; returns whether there is some. If there has been none for `rest_ns`, and nothing was submitted since the
 * last look, the process rests from now on: the next submission wakes the agent. */
bool agent_look(struct gate *gate, uint64_t rest_ns);
/* For how long a program must have had no work until none is expected soon. Its usual short gaps are shorter. */
uint64_t agent_rest_ns(void);
/* How long until the next look at a process that does not rest. `tells_rest`: the daemon has to know soon once it rests. */
uint64_t agent_next_look_ns(struct gate *gate, bool tells_rest);

/* --- lease.c --------------------------------------------------------------------------------------- */

void agent_grant(struct gate *gate, const struct wire_grant *grant);
/* Drain the gate if it is open, and send RETURNED. `outcome` becomes UNDRAINED if the work does not end in time. */
void agent_give_back(struct gate *gate, uint64_t lease, uint64_t patience_ns, enum wire_outcome outcome);
/* Why the agent drains the gate. */
enum agent_drains {
    AGENT_ANSWERS, /* the daemon asked for it, and waits */
    AGENT_LEAVES,  /* the agent gives the lease back by itself */
    AGENT_CLOSES,  /* the agent does not report this drain to the daemon */
};
/* Close the gate and wait until what was submitted is done, up to `patience_ns` plus the longest piece of work. Returns
 * about when that was (CLOCK_MONOTONIC). 0: it was not done in time, or the daemon has gone; the gate is open again. */
uint64_t agent_drain(struct gate *gate, uint64_t patience_ns, enum agent_drains why);
/* How the gate is open under a lease that cannot end. Where memory moves, what is before the GPU is bounded even then: a move may
 * come at any time, and waits for it. */
enum gate_state agent_free_state(void);
/* Whether the process has a lease that can end. */
bool agent_is_paced(void);
/* Tell the daemon what it has to know, and give back a lease that the program does not use. */
void agent_serve(struct gate *gate);
/* How long the agent may sleep under the lease if nothing wakes it. */
uint64_t agent_lease_pause_ns(struct gate *gate);

/* --- move.c ---------------------------------------------------------------------------------------- */

/* The daemon was reached: tell it where the memory is. */
void agent_move_met(struct gate *gate);
/* The caller closes `fd`. */
void agent_take_chunk(struct gate *gate, const struct wire_arena *arena, int fd);
void agent_keep(const struct wire_keep *keep);
void agent_evict(struct gate *gate, const struct wire_evict *evict);
void agent_restore_part(struct gate *gate, const struct wire_restore_part *order);
void agent_restore(struct gate *gate, const struct wire_restore *restore);
/* Of a closed gate: the process's memory counts as away from now on. False: a call that names some of it took longer than
 * `patience_ns`, and the memory stays. */
bool agent_move_out(struct gate *gate, uint64_t patience_ns);
/* The memory is back. */
void agent_move_in(struct gate *gate);
/* Around a move. False: the process ends, and nothing moves any more. */
bool agent_begin_move(struct gate *gate);
void agent_end_of_move(void);
/* Tell the daemon of changes in where the memory is, and in whether the process is idle. */
void agent_serve_memory(struct gate *gate);
/* Give host memory back that has been spare for 5 seconds, or that the daemon needs elsewhere. */
void agent_serve_spare(struct gate *gate);
/* Page-lock a piece of the host memory, when it is time for that. */
void agent_serve_arena(struct gate *gate);
/* How long the agent may sleep until it has to call these three again. */
uint64_t agent_move_pause_ns(void);
/* The process ends: wait until a move in progress is over, up to 30 seconds. No move begins afterwards. */
void agent_move_end(void);

/* --- room.c ---------------------------------------------------------------------------------------- */

/* For agent_wait_for_room(): whether the daemon may be asked. `attempt` becomes the daemon's, without the attempts that were made
 * while the memory was away. */
bool agent_may_ask_for_room(unsigned *attempt);
/* Have the agent, which runs, ask the daemon; and wait for the answer. */
bool agent_ask_for_room(struct gate *gate, uint32_t gpu, uint64_t bytes, bool is_charged, unsigned attempt);
/* Ask the daemon for the room that a thread waits for. */
void agent_serve_room(struct gate *gate);
/* The daemon's answer. */
void agent_take_room(const struct wire_room *room);
/* Whether a thread waits for room. */
bool agent_is_asked_for_room(void);
/* Whether a thread waits for the memory to come back, as the daemon can only make room then. */
bool agent_is_card_needed(void);

/* --- silence.c ------------------------------------------------------------------------------------- */

/* If a thread waits at the closed gate or for room, and the daemon has given no sign of life for two seconds, go on without
 * the daemon. Returns how long until the next call is due; UINT64_MAX: nobody waits for the daemon. */
uint64_t agent_watch_daemon(struct gate *gate);

/* --- alone.c --------------------------------------------------------------------------------------- */

/* Keep the cap that the environment sets, or move memory at random moments. Returns how long until the next call is due. */
uint64_t agent_serve_alone(struct gate *gate);
