/* agent_state.h - what the agent's parts share. All of it is the agent's thread's own, but for `pokes`.
 *
 * agent.c        the thread: it listens to the daemon and looks after the gate
 * connection.c   how the daemon is reached, spoken to and lost
 * measure.c      how busy the process keeps the GPUs
 * lease.c        what a GRANT and a REVOKE do, and what a lease is given back for
 * move.c         the process's memory leaves the card, and comes back
 * looks.c        what looks at streams tell; pure
 * idleness.c     whether a program without work will have some soon; pure
 * room.c         what a thread does where the card is full
 * silence.c      a daemon that hangs
 * alone.c        a cap of the environment's, where there is no daemon */
#pragma once

#include "intercept/agent/idleness.h"
#include "intercept/agent/looks.h"
#include "intercept/session/attach.h"
#include "intercept/submit/cap_bucket.h"
#include "intercept/submit/gate_area.h"
#include "wire/wire.h"

/* How often the agent looks at a busy process where it has to know when there is no work any more. */
#define AGENT_TICK_NS UINT64_C(1000000)
/* How often it looks at all: whether its descriptors are still its own. */
#define AGENT_CHECK_NS UINT64_C(5000000000)

/* In a forked child, nobody's. */
struct agent_state {
    struct attach_descriptor connection;
    /* Threads write into the second one. */
    struct attach_descriptor pokes[2];
    /* Whether descriptors are still ours was looked at then; one of the pokes is not: nobody can wake the agent. */
    uint64_t checked_ns;
    bool is_deaf;
    uint16_t version;
    /* GRANT came, and has not been answered by RETURNED. */
    bool held;
    /* WANT was sent for what waits at the gate now. */
    bool wanted;
    uint64_t lease;
    /* Of the lease: enum wire_lease_flags. */
    uint32_t flags;
    /* By the last WANT. */
    uint64_t told_gpus;
    uint64_t next_report_ns;
    /* Since when looks find no work, and nothing was submitted between them; 0: there was work. */
    uint64_t idle_from_ns;
    /* What BURST told last. */
    bool told_burst;
    struct {
        /* GRANT, or the last measure. */
        uint64_t from_ns;
        /* What was seen at moments drawn by chance, and when the next one is. */
        struct looks looks, looks_alone;
        uint64_t look_at_ns;
        /* Streams do not tell for how long there is work, since several have it or too few calls are measured: at such
         * measures, or of late, so many are left until they are thought to tell. `is_parallel`: several had it last. */
        unsigned by_looks;
        bool is_parallel;
        /* Calls under the lease that somebody was told of and that no mark has told of yet. */
        uint64_t ahead;
        /* How much the process had submitted at the last look; and whether it rests since then: the next submission wakes
         * the agent. */
        uint64_t submitted;
        bool rests;
        /* When the work should end that the last look found. */
        uint64_t ends_ns;
        /* Looks since the process rested last. */
        uint32_t looks_since_rest;
        /* How long the program leaves the GPU idle between two calls. */
        uint64_t gap_ns;
        uint32_t chance;
    } measure;
    struct {
        /* From EVICT to RESTORE the gate stays closed, whatever leases say. */
        bool is_away;
        /* What MOVED told last, and when. */
        struct wire_moved told;
        uint64_t told_ns;
        /* The order that is being carried out. */
        uint64_t order;
        /* How much the process had submitted at the last look, and what follows from such looks. */
        uint64_t submitted;
        struct idleness idleness;
        /* Since when it has had host memory to spare; 0: it has none. */
        uint64_t spare_since_ns;
    } move;
    /* Alone: there is no daemon, and a cap of the environment's is all there is to keep. */
    bool alone;
    struct cap_bucket cap;
    /* Alone: the last drain failed, and is not tried again before. */
    uint64_t drain_again_ns;
    /* Alone: when memory leaves or comes back next, where it is moved for no need. */
    uint64_t next_move_ns;
};
extern struct agent_state agent;

/* --- connection.c ---------------------------------------------------------------------------------- */

/* 0, or a negative errno. */
int agent_reach_daemon(void);
/* From now on the gate is open, until the daemon is reached again. */
void agent_lose_daemon(struct gate *gate, const char *why);
/* Send a message; never waits. */
void agent_tell(struct gate *gate, struct wire_message *message);
void agent_tell_want(struct gate *gate);

/* Open the gate as the lease says, or as it is without one; not while the process's memory is away. */
void agent_open_gate(struct gate *gate, enum gate_state state);

/* --- measure.c ------------------------------------------------------------------------------------- */

void agent_count_from(struct gate *gate, uint64_t now_ns);

/* Since the last measure: how long there was work before the GPUs, waiting for others included, and how many
 * calls were done. */
struct agent_measure {
    uint64_t busy_ns, calls;
    /* As in_flight_take_done() tells. */
    uint64_t least_ns, measured;
};
struct agent_measure agent_measure(struct gate *gate, uint64_t now_ns);

/* Whether looks at moments drawn by chance tell for how long there is work, since streams do not. */
bool agent_counts_looks(void);

/* Look whether there is work. Where there has been none for `rest_ns`, nor was any submitted since the last look, the process
 * rests: the next submission wakes the agent. */
bool agent_look(struct gate *gate, uint64_t rest_ns);
/* How long there must be none until none is thought to come soon. A program's usual short gaps are not. */
uint64_t agent_rest_ns(void);
/* When to look again at a process that does not rest. `tells_rest`: somebody has to know soon that it does. */
uint64_t agent_next_look_ns(struct gate *gate, bool tells_rest);

/* --- lease.c --------------------------------------------------------------------------------------- */

void agent_grant(struct gate *gate, const struct wire_grant *grant);
void agent_give_back(struct gate *gate, uint64_t lease, uint64_t patience_ns, enum wire_outcome outcome);
enum agent_drains {
    AGENT_ANSWERS, /* the daemon waits for it */
    AGENT_LEAVES,  /* it gives the lease back of its own accord */
    AGENT_CLOSES,  /* for a moment, which is nobody's affair */
};
/* Close the gate and wait for what was submitted. Returns when that ended, about; 0: it did not in time, or there is no daemon
 * any more; the gate is open. */
uint64_t agent_drain(struct gate *gate, uint64_t patience_ns, enum agent_drains why);
/* Whether there is a lease that can end. */
bool agent_is_paced(void);
/* Say to the daemon what there is to say, and give back what nobody uses. */
void agent_serve(struct gate *gate);
/* How long the agent may sleep under the lease if nothing happens. */
uint64_t agent_lease_pause_ns(struct gate *gate);

/* --- move.c ---------------------------------------------------------------------------------------- */

/* NULL: the process has no memory that can leave the card. */
const struct agent_mover *agent_mover(void);
/* Whether there is memory that can leave the card. */
bool agent_has_mover(void);
/* The daemon was reached: tell it how the memory stands. */
void agent_move_met(struct gate *gate);
/* `fd` is closed by the caller. */
void agent_take_chunk(struct gate *gate, const struct wire_arena *arena, int fd);
void agent_evict(struct gate *gate, const struct wire_evict *evict);
void agent_restore_part(struct gate *gate, const struct wire_restore_part *order);
void agent_restore(struct gate *gate, const struct wire_restore *restore);
/* Of a closed gate: the process's memory is away from now on. False: a call that names some of it takes longer than
 * that, and it is not. */
bool agent_move_out(struct gate *gate, uint64_t patience_ns);
/* It is here again. */
void agent_move_in(struct gate *gate);
/* Around a move. False: the process ends, and moves no more. */
bool agent_begin_move(struct gate *gate);
void agent_end_of_move(void);
/* Say what there is to say of the memory. */
void agent_serve_memory(struct gate *gate);
void agent_serve_spare(struct gate *gate);
/* How long the agent may sleep until then. */
uint64_t agent_move_pause_ns(void);
/* The process ends: wait for what moves. No move begins any more. */
void agent_move_end(void);

/* --- room.c ---------------------------------------------------------------------------------------- */

/* Start the agent, where it does not run yet. */
void agent_begin(void);
/* Ask the daemon for what threads wait for. */
void agent_serve_room(struct gate *gate);
void agent_take_room(const struct wire_room *room);
/* The daemon has gone: the next one is asked anew. */
void agent_ask_again_for_room(void);
/* Whether a thread waits for room. */
bool agent_is_asked_for_room(void);

/* --- silence.c ------------------------------------------------------------------------------------- */

/* Where a thread waits at the closed gate and the daemon gives no sign of life for two seconds, go on without it.
 * Returns how long until it should be looked at again; UINT64_MAX where nobody waits. */
uint64_t agent_watch_daemon(struct gate *gate);

/* --- alone.c --------------------------------------------------------------------------------------- */

/* Keep the environment's cap. Returns how long until it should be looked at again. */
uint64_t agent_serve_alone(struct gate *gate);
