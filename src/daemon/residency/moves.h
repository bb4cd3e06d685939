/* moves.h - sessions whose memory leaves the card and comes back.
 *
 * resident   all that the session has is on the card, and its programs run
 * leaving    its processes were told to take what can move off the card
 * away       that is in host memory (arena.h); a program that touches the GPU waits
 * coming     its processes were told to bring it back
 *
 * What is where, the processes themselves say (wire.h, MOVED): a daemon that begins knows nothing until they do. Orders
 * may be given again at any time, so one whose answer is lost is. A process that is stopped answers no order and keeps
 * nobody but its own session waiting. tests/model/moves.pml is the protocol. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct daemon;
struct session;

enum move_state { MOVE_RESIDENT, MOVE_LEAVING, MOVE_AWAY, MOVE_COMING };

/* Why a session left. */
enum move_cause {
    MOVE_BY_USER, /* somebody said so, and it stays away until somebody says so */
    MOVE_BY_NEED, /* another one needed the room, or it waits for room itself */
    MOVE_BY_IDLE, /* it had no work for long, and comes back when it has */
};

/* Have the session leave, or come back. They return at once; moves_standing() tells how it goes. -EBUSY where nothing of
 * it can move, or where there is no room for it in host memory. Without an engine: moves_checkpoint.c. */
int moves_suspend(struct session *session, struct error *error);
int moves_resume(struct session *session, struct error *error);

/* How a session stands, as answers and metrics show it. */
struct moves_standing {
    enum move_state state;
    enum move_cause cause;    /* of one that left or leaves */
    bool waits;               /* for room on the card */
    double wait_seconds_left; /* about; below 0: that cannot be told */
    uint64_t resident_bytes;  /* that can move, and are on the card */
    uint64_t evicted_bytes;
    uint64_t unmovable_bytes;         /* of processes whose memory can move else */
    uint64_t arena_bytes;             /* host memory that it has */
    uint64_t done_bytes, total_bytes; /* of the move that goes on */
    double seconds_left;              /* of it, about; below 0: none goes on, or the driver does not tell */
    const char *failure;              /* why the last move failed; "": it did not */
};
struct moves_standing moves_standing(const struct session *session);

/* How memory takes turns. */
enum anti_thrash {
    ANTI_THRASH_AUTO, /* where it does not fit together */
    ANTI_THRASH_ON,   /* always: of those that can move, one works on a GPU at a time */
    ANTI_THRASH_OFF,  /* never: whoever needs room has it at once, and the driver pages what it can */
};
#define MOVES_TURN_LEAST_NS UINT64_C(1000000000)
#define MOVES_TURN_MOST_NS UINT64_C(3600000000000)

/* `turn_ns`: how long turns are; 0: as long as moving is worth. */
void moves_set_turns(struct daemon *daemon, uint64_t turn_ns);
uint64_t moves_turns_ns(const struct daemon *daemon);
void moves_set_anti_thrash(struct daemon *daemon, enum anti_thrash anti_thrash);
enum anti_thrash moves_anti_thrash(const struct daemon *daemon);
/* Whether sessions take turns with their memory on the GPU, or did of late. */
bool moves_takes_turns(const struct daemon *daemon, unsigned gpu);

/* "auto", "on", "off". */
const char *moves_anti_thrash_name(enum anti_thrash anti_thrash);
bool moves_anti_thrash_parse(const char *text, enum anti_thrash *anti_thrash);

/* What stands in answers and metrics: "resident", and so on; "user", and so on. */
const char *moves_state_name(enum move_state state);
const char *moves_cause_name(enum move_cause cause);

int moves_start(struct daemon *daemon, struct error *error);
/* What the daemon before had the driver do and did not see the end of. */
int moves_go_on(struct daemon *daemon, struct error *error);
void moves_stop(struct daemon *daemon); /* no session is left */
