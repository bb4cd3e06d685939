/* moves.h - sessions whose memory leaves the card and comes back.
 *
 * resident   all memory of the session is on the card, and its programs run
 * leaving    its processes were told to take what can move off the card
 * away       what can move is in host memory (arena.h); a program that touches the GPU waits
 * partly away   the same, and some of its memory cannot move and is still on the card (stays.h)
 * coming     its processes were told to bring it back
 *
 * The processes themselves say what is where (wire.h, MOVED): a daemon that has just started knows nothing until they do.
 * An order may be given again at any time, so the daemon repeats an order whose answer was lost. A process that is stopped
 * answers no order, and keeps only its own session waiting. tests/model/moves.pml is the protocol. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/wire.h"

struct daemon;
struct session;

/* PARTLY_AWAY is AWAY to whoever gives orders; those who ask how a session stands are told the difference. */
enum move_state { MOVE_RESIDENT, MOVE_LEAVING, MOVE_AWAY, MOVE_COMING, MOVE_PARTLY_AWAY };

/* Why a session left. */
enum move_cause {
    MOVE_BY_USER, /* somebody asked for it; it stays away until somebody asks for it back */
    MOVE_BY_NEED, /* another session needed the room, or it waits for room itself */
    MOVE_BY_IDLE, /* it had no work for long; it comes back when it has */
};

/* Have the session leave, or come back. They return at once; moves_standing() tells the progress. -EBUSY where nothing
 * of the session can move, or where host memory has no room for it. Sessions without an engine: moves_checkpoint.c. */
int moves_suspend(struct session *session, struct error *error);
int moves_resume(struct session *session, struct error *error);

/* Where the memory of a session is that can move. Together it is never more than the session uses. */
struct moves_memory {
    uint64_t
        movable_bytes; /* on the card; while nothing moves, by what the ledger has charged at this moment */
    uint64_t evicted_bytes;
    uint64_t stays_bytes[WIRE_STAYS_COUNT]; /* cannot move, by why */
};
/* The same to somebody who has read elsewhere that the session uses so much: its ledger changes meanwhile. */
void moves_fit(struct moves_memory *memory, uint64_t used_bytes);

/* The most host memory that the session's memory can ever take: the least of its own bound, its owner's, that of all sessions
 * and what the machine has. What it holds beyond that keeps it on the card. UINT64_MAX: its memory does not leave for host
 * memory of ours. */
uint64_t moves_host_memory_most(const struct session *session);

/* The host memory that all sessions have together. */
uint64_t moves_host_memory_bytes(const struct daemon *daemon);

/* How a session stands, for answers and metrics. */
struct moves_standing {
    enum move_state state;
    enum move_cause cause;    /* of a session that has left or is leaving */
    bool waits;               /* for room on the card */
    double wait_seconds_left; /* estimated; below 0: not known */
    const char *
        wait_why; /* who or what keeps it waiting, where that has no known end; "": it has, or it does not wait */
    struct moves_memory memory;
    uint64_t arena_bytes;             /* host memory that it has been given */
    uint64_t done_bytes, total_bytes; /* of the move under way */
    /* Of that move, estimated; below 0: no move is under way, or the driver does not tell. */
    double seconds_left;
    const char *failure; /* why the last move failed; "": it did not fail */
};
struct moves_standing moves_standing(const struct session *session);

/* When sessions take turns with their memory on a GPU. */
enum anti_thrash {
    ANTI_THRASH_AUTO, /* where their memory does not fit together */
    ANTI_THRASH_ON,   /* always: of the sessions whose memory can move, one works on a GPU at a time */
    ANTI_THRASH_OFF,  /* never: a session that needs room gets it at once, and the driver pages what it can */
};
#define MOVES_TURN_LEAST_NS UINT64_C(1000000000)
#define MOVES_TURN_MOST_NS UINT64_C(3600000000000)

/* `turn_ns`: the length of a turn; 0: chosen by how long moving takes. */
void moves_set_turns(struct daemon *daemon, uint64_t turn_ns);
uint64_t moves_turns_ns(const struct daemon *daemon);
void moves_set_anti_thrash(struct daemon *daemon, enum anti_thrash anti_thrash);
enum anti_thrash moves_anti_thrash(const struct daemon *daemon);
/* Whether sessions take turns with their memory on the GPU, or did in the last 2 s. */
bool moves_takes_turns(const struct daemon *daemon, unsigned gpu);

/* "auto", "on", "off". */
const char *moves_anti_thrash_name(enum anti_thrash anti_thrash);
bool moves_anti_thrash_parse(const char *text, enum anti_thrash *anti_thrash);

/* The names in answers and metrics: "resident" and so on; "user" and so on. */
const char *moves_state_name(enum move_state state);
const char *moves_cause_name(enum move_cause cause);

int moves_start(struct daemon *daemon, struct error *error);
/* Go on with what an earlier daemon had the driver do, and did not see finished. */
int moves_go_on(struct daemon *daemon, struct error *error);
void moves_stop(struct daemon *daemon); /* when no session is left */
