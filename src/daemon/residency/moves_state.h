/* moves_state.h - the state of moves, and what their parts do for each other.
 *
 * moves_sums    what is where, by what processes said last, and who may have how much host memory
 * moves_orders  what processes are told, and what a session comes to by that
 * moves_room    who comes and who leaves, as residency.h decides
 * moves_told    what processes say
 * moves_checkpoint  sessions without an engine, by the driver
 * moves         what people ask, and what time brings */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/error.h"
#include "daemon/loop/changes.h"
#include "daemon/residency/moves.h"
#include "ledger/ledger.h"
#include "wire/wire.h"

struct process;

/* What is not counted among what the card holds, as parts of blocks: so much, and no more than this part of a small card. */
#define MOVES_SLACK_BYTES (UINT64_C(16) << 20)
#define MOVES_SLACK_PART 64
/* How often what no message tells is looked for, while anything moves or waits. */
#define MOVES_TICK_USEC UINT64_C(100000)

/* What one process says of its memory, and was told. */
struct process_move {
    struct wire_moved now;
    uint64_t given_bytes;  /* chunks that were sent and not told of yet count */
    uint64_t order;        /* that was not answered; 0: none */
    bool is_part;          /* that order has some come ahead: */
    unsigned part_gpu;     /* of this GPU of the policy, */
    uint64_t part_bytes;   /* so much, */
    uint64_t part_from;    /* beside so many bytes that were there as it was given */
    uint64_t heard_usec;   /* when it last said something, or was told it */
    uint64_t again_usec;   /* not to be told again before */
    uint64_t extra_bytes;  /* of arena that it needs beyond what it has */
    uint64_t idle_usec;    /* since when it has no work; 0: it has */
    bool has_said;         /* MOVED has come */
    struct wire_need need; /* number 0: no thread waits for room */
    uint64_t need_usec;
    bool silence_told;
    bool chunk_comes; /* one is being made for it */
    /* While it is away, of each GPU of the policy. */
    struct {
        uint64_t ahead_bytes; /* that came ahead */
        uint64_t vain_bytes;  /* a piece of so many bytes brought nothing: what is next is larger */
    } gpus[LEDGER_GPUS];
    uint64_t prepare_usec; /* it may have one ahead of need, but not before */
};

/* One session's move. */
struct move {
    bool is_leaving; /* it is to be away; else on the card */
    enum move_cause cause;
    enum move_state state; /* that was told last */
    uint64_t began_usec, total_bytes;
    uint64_t
        wants_usec; /* of one that is away: since when it is to come as soon as there is room; 0: it is not */
    uint64_t came_usec;   /* when it was on the card as a whole last */
    uint64_t new_usec;    /* when it was made */
    uint64_t paused_usec; /* when it was seen without work last, but for waiting for room; 0: never */
    uint64_t held_usec;   /* it worked so long while others waited for its room */
    bool is_ahead;        /* of one that is away: some of it may be on the card already */
    uint64_t ahead_bytes[LEDGER_GPUS]; /* so much more of it may come, of each of its GPUs */
    bool is_told_away;                 /* that it left was told, and not yet that it is back */
    unsigned misses;                   /* so often there was room, and the card said that there was not */
    bool is_taken_idle;                /* it is to leave only if it has no work */
    bool has_moved;                    /* something of it left since it was resident last */
    uint64_t vain_usec; /* since when it waits for what nobody can make room for; 0: it does not */
    uint64_t due_usec;  /* of one that waits: when it should be there, about; 0: that cannot be told */
    char failure[256];
};

struct moves {
    struct daemon *daemon;
    struct observer observer;
    sd_event_source *timer;
    uint64_t last_order;
    uint64_t bytes_per_second; /* of moves, smoothed */
    uint64_t turn_ns;          /* 0: as long as moving is worth */
    uint64_t decided_usec;     /* when was last looked who is to come */
    enum anti_thrash anti_thrash;
    uint64_t turns_until_usec[LEDGER_GPUS]; /* so long the GPU is in turns */
};

/* --- moves_sums.c ---------------------------------------------------------------------------------- */

bool process_move_is_away(const struct process_move *move);
bool process_move_is_partly_away(const struct process_move *move);
/* What a process lacks of arena, to leave the card as a whole. */
uint64_t process_move_lacks_bytes(const struct process_move *move);

/* The sum over the session's processes of what they said last: a field of struct wire_moved. */
uint64_t moves_sum_of(const struct session *session, size_t offset);
#define MOVES_SUM(session, field) moves_sum_of(session, offsetof(struct wire_moved, field))
/* Host memory that a session has been given. */
uint64_t moves_arena_bytes(const struct session *session);
/* The chunks for all that it still lacks. */
uint64_t moves_chunk_bytes(const struct session *session);
/* Whether the session may have `bytes` more of host memory. */
int moves_check_bounds(const struct session *session, uint64_t bytes, struct error *error);
/* Where it stands, by what its processes said last. */
enum move_state moves_state_now(const struct session *session);
/* Of so many of the session's bytes, those of one of its GPUs: in proportion to what it is charged there. */
uint64_t moves_part(const struct session *session, unsigned policy_gpu, uint64_t bytes);
/* What threads of the session wait for on one of its GPUs; with `again`, more for who was told in vain that there is room. */
uint64_t moves_needed_bytes(const struct session *session, unsigned policy_gpu, bool again);
/* Of that, what stands in the ledger already, and is not on the card. */
uint64_t moves_charged_ahead(const struct session *session, unsigned policy_gpu);
/* Since when a thread of the session waits for room; UINT64_MAX: none does. */
uint64_t moves_needs_since(const struct session *session);
/* Since when none of its processes has work; UINT64_MAX: one has. */
uint64_t moves_idle_since(const struct session *session);
/* Of what can move on one of its GPUs: what came ahead of the rest, what is about to, and what is away, coming or not. */
uint64_t moves_ahead_bytes(const struct session *session, unsigned policy_gpu);
uint64_t moves_coming_bytes(const struct session *session, unsigned policy_gpu);
uint64_t moves_away_bytes(const struct session *session, unsigned policy_gpu);
/* It is away, and is to come as soon as there is room. */
bool moves_wants_to_come(const struct session *session);

/* --- moves_orders.c -------------------------------------------------------------------------------- */

/* Tell its processes what they are to do next, and everybody what has come of it. */
void moves_advance(struct session *session);
/* From now on it is to leave, or to come back. */
void moves_turn(struct session *session, bool is_leaving, enum move_cause cause);
/* An eviction comes to nothing: what has left comes back. A restore is tried again. */
void moves_fail(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* So much more may come ahead as the session's move says; or what has come leaves again. */
void moves_come_ahead(struct session *session);
void moves_drop_ahead(struct session *session);
/* Somebody waits for the end of its turn: have what it lacks of host memory made by then. It is no failure where that cannot be. */
void moves_prepare(struct session *session);
/* It is to come, once there is room. */
void moves_want_back(struct session *session);
/* A session is to be suspended until somebody resumes it, or not any more. */
void moves_set_suspended(struct session *session, bool is_suspended);
/* Time is looked at with the next tick; or by then at the latest. */
void moves_set_timer(struct moves *moves);
void moves_look_again(struct moves *moves, uint64_t usec);

/* --- moves_room.c ---------------------------------------------------------------------------------- */

/* Who waits for room gets it, and somebody may have to leave for it. */
void moves_decide(struct daemon *daemon);

/* --- moves_told.c ---------------------------------------------------------------------------------- */

/* The session's move, made where it has none; `moved`: what its first process says, NULL: nothing yet. NULL without memory. */
struct move *moves_find(struct session *session, const struct wire_moved *moved);
/* For agents_tell_memory(). */
void moves_take_memory(struct process *process, const struct wire_message *message);

/* --- moves_checkpoint.c ---------------------------------------------------------------------------- */

/* Have a session without an engine leave, or come back. They return at once; moves_standing() tells how it goes. -EBUSY where it
 * cannot. */
int moves_checkpoint_suspend(struct session *session, struct error *error);
int moves_checkpoint_resume(struct session *session, struct error *error);
/* How it stands. False: it was never suspended under this daemon. */
bool moves_checkpoint_standing(const struct session *session, struct moves_standing *standing);
/* The session ends; the daemon does. */
void moves_checkpoint_forget(struct session *session);
void moves_checkpoint_stop(struct daemon *daemon);
