/* moves_state.h - the state of moves, and what the files of moves do for each other.
 *
 * moves_sums        adds up what is where, by what processes said last, and how much host memory a session may have
 * moves_valid      says whether the sums go together with what they are of
 * moves_timer       when the daemon looks again
 * moves_ahead       has host memory made before it is needed;
 * moves_back        and has it taken back where others need it (moves_back.h)
 * moves_chunks      knows who has which chunk of host memory, whatever processes say
 * moves_progress    tells a move that goes on from one that stands still
 * moves_lessons     remembers that a card has less room than it seems (moves_lessons.h)
 * moves_orders      tells processes what to do, and works out the state that their session comes to
 * moves_room        who comes and who leaves, as residency.h decides;
 * moves_see         for that, sees how each session stands,
 * moves_hope        and finds those for whom nobody could make room
 * moves_wait        says who keeps a waiting session waiting where that has no known end, and lets it fail
 * moves_short       tells who waits for room whether there is some, and of sessions for which nobody can make any
 * moves_reports     takes what processes say
 * moves_checkpoint  sessions without an engine, by the driver
 * moves             what users ask for, and what happens as time passes */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <systemd/sd-event.h>

#include "base/error.h"
#include "daemon/agents/agents.h"
#include "daemon/loop/changes.h"
#include "daemon/residency/moves.h"
#include "daemon/residency/moves_lessons.h"
#include "ledger/ledger.h"
#include "wire/wire.h"

struct process;

/* How much of the card is left out as unusable parts of blocks: at most this many bytes, and at most this part of a
 * small card. */
#define MOVES_SLACK_BYTES (UINT64_C(16) << 20)
#define MOVES_SLACK_PART 64
/* No process has more memory than this, whatever it says: sums over all slots of all sessions do not overflow. */
#define MOVES_BYTES_MOST (UINT64_C(1) << 48)
/* Room for why a move failed: what a session lacks, and all that stays in its way. */
#define MOVES_FAILURE_TEXT 1400
#define MOVES_WAIT_TEXT MOVES_FAILURE_TEXT
/* How often the daemon checks what no message tells it, while anything moves or waits. */
#define MOVES_TICK_USEC UINT64_C(100000)

struct held_chunk;
LIST_HEAD(held_chunks, held_chunk); /* moves_chunks.c */

/* What one process says of its memory, and was told to do. */
struct process_move {
    struct wire_moved now; /* within what it can have: a process may say anything */
    uint64_t
        given_bytes; /* arena it was given, counting chunks that it has not confirmed yet (moves_set_given()) */
    uint64_t sent_bytes; /* chunks that it was sent and has not given back: it has no more arena */
    /* What it has from an earlier daemon, as it says. What this daemon sent is in `chunks`, latest first, until
     * nobody has it any more, whatever the process says; what of that is not in `given_bytes`. */
    uint64_t earlier_bytes, chunk_bytes, kept_bytes;
    struct held_chunks chunks;
    uint64_t order;        /* the order that it has not answered yet; 0: none */
    uint64_t order_usec;   /* when it was given */
    bool is_eviction;      /* that order is to leave */
    bool is_part;          /* that order brings some of its memory ahead: */
    unsigned part_gpu;     /* to this GPU of the policy, */
    uint64_t part_bytes;   /* this many bytes, */
    uint64_t part_from;    /* when this many were on the card already */
    uint64_t heard_usec;   /* when it last sent something, or was given an order */
    uint64_t again_usec;   /* give it no order before then */
    uint64_t extra_bytes;  /* arena that it needs beyond the size of its memory */
    uint64_t idle_usec;    /* since when it has no work; 0: it has work */
    bool has_said;         /* it has sent MOVED */
    struct wire_need need; /* number 0: no thread waits for room */
    uint64_t need_usec;
    /* It was told that there is room, and found none; moves_decide() has not seen that yet. */
    bool need_teaches;
    unsigned rooms_told;    /* how often it was told that there is room, for the same request */
    uint64_t use_when_told; /* moves_use_mark() when it last was */
    bool silence_told;
    bool chunk_comes;     /* a chunk is being made for it */
    bool has_new_room;    /* it was sent a chunk since it was last told to leave */
    uint64_t grown_bytes; /* memory that can move, as last looked at, */
    uint64_t grown_usec;  /* and when it had last grown; 0: it was not looked at */
    uint64_t keep_bytes;  /* it was told to keep no more than this, */
    uint64_t keep_usec;   /* and when; 0: never */
    /* While it is away, for each GPU of the policy. */
    struct {
        uint64_t ahead_bytes; /* came ahead */
        uint64_t vain_bytes;  /* a piece of this size brought nothing: the next must be larger */
    } gpus[LEDGER_GPUS];
    uint64_t prepare_usec; /* make it no chunk before then */
};

/* moves_wait.c: a session's wait for room on a card. */
struct moves_wait {
    uint64_t since_usec;  /* 0: it does not wait */
    uint64_t hoped_usec;  /* when the wait should end, as was estimated before; 0: not known */
    unsigned missed;      /* how many estimates it has outlasted */
    uint64_t looked_usec; /* when `why` was last found out */
    uint64_t failed_usec; /* when it had waited for as long as the session says; 0: it has not */
    bool is_told, is_ended;
    bool is_far; /* `why` says that it waits until others have ended, as it wishes */
    char why
        [MOVES_WAIT_TEXT]; /* who or what keeps it waiting, where that has no known end; "": it has, or nobody knows */
};

/* One session's move. */
struct move {
    bool is_leaving; /* it should be away; else on the card */
    enum move_cause cause;
    enum move_state state; /* the state that was last reported */
    uint64_t began_usec, total_bytes;
    /* moves_progress.c: when the move last came on, what was left then, and how much less of it counts. */
    uint64_t progress_usec, progress_left, progress_step;
    /* How often it stood still while it came, since it last was on the card; and until when it does not come again. */
    unsigned put_offs;
    uint64_t put_off_usec;
    /* If it is away: since when it should come as soon as there is room; 0: it should not come. */
    uint64_t wants_usec;
    /* When its turn began: it was on the card as a whole, or had the room that it waited for. */
    uint64_t came_usec;
    uint64_t new_usec;    /* when it was made */
    uint64_t paused_usec; /* when it was last seen without work and not waiting for room; 0: never */
    uint64_t held_usec;   /* how long it has worked while others waited for its room */
    bool is_ahead;        /* if it is away: some of it may be on the card already */
    uint64_t ahead_bytes[LEDGER_GPUS]; /* how much more of it may come ahead, per GPU of the policy */
    bool is_told_away;                 /* that it left was reported, and not yet that it is back */
    /* For each GPU of the policy: what seemed to be left there when the session was last told that there is room. */
    int64_t seemed_left[LEDGER_GPUS];
    unsigned misses;     /* how often there seemed to be room, and the card had none */
    bool is_wasteful;    /* it was given room when it last asked for some, and used none of it */
    bool is_taken_idle;  /* it should leave only if it has no work */
    bool has_moved;      /* some of it has left since it was last resident */
    uint64_t vain_usec;  /* since when it waits for room that nobody can make; 0: it does not */
    uint64_t left_bytes; /* moves_chunks.c: host memory of processes that left it, which others still have */
    /* It could not leave for others when it last had to: it counts as staying until then; and how often that was, since it last
     * left. */
    uint64_t stuck_until_usec;
    unsigned stuck_times;
    bool is_short;     /* `failure` says that it cannot come back for want of room */
    uint64_t due_usec; /* if it waits: when it should be there, estimated; 0: not known */
    struct moves_wait wait;
    char failure[MOVES_FAILURE_TEXT];
};

struct moves {
    struct daemon *daemon;
    struct observer observer;
    sd_event_source *timer;
    uint64_t last_order;
    uint64_t given_bytes; /* arena that all processes were given */
    /* moves_chunks.c: what processes keep beside that, whatever they say; and chunks of processes that have gone or left their
     * session, which others have still. */
    uint64_t kept_bytes, left_bytes;
    struct held_chunks left_chunks;
    struct held_chunk *left_next; /* the next of these to look at; NULL: the first */
    uint64_t chunks_looked_usec;
    bool chunks_are_doubtful;  /* there is something to look at */
    uint64_t bytes_per_second; /* how fast moves are, smoothed */
    uint64_t turn_ns;          /* 0: chosen by how long moving takes */
    uint64_t decided_usec;     /* when it was last decided who comes */
    struct deferred *decision; /* runs moves_decide_rested() */
    uint64_t rests_until_usec; /* not decided again before */
    enum anti_thrash anti_thrash;
    bool is_making_ahead;                     /* a chunk is being made that nothing waits for */
    bool is_looking;                          /* the helper looks what the machine can spare, */
    uint64_t looked_usec;                     /* and when it was last told to */
    struct moves_lesson lessons[LEDGER_GPUS]; /* of each of the daemon's GPUs */
    uint64_t turns_until_usec[LEDGER_GPUS];   /* until when sessions count as taking turns on the GPU */
};

/* --- moves_sums.c ---------------------------------------------------------------------------------- */

bool process_move_is_away(const struct process_move *move);
bool process_move_is_partly_away(const struct process_move *move);
/* How much arena the process was given, for the sum of all as well. */
void moves_set_given(struct process *process, uint64_t bytes);
/* A chunk was sent to the process. */
void moves_note_chunk(struct process *process, uint64_t bytes);

/* How much arena a process lacks, to leave the card as a whole. */
uint64_t process_move_lacks_bytes(const struct process_move *move);

/* A sum that a process tells of, held to the most that it can be. */
static inline uint64_t moves_at_most(uint64_t bytes, uint64_t most_bytes)
{
    return bytes < most_bytes ? bytes : most_bytes;
}

/* The most that the session can have on one of its GPUs, whatever its processes say and its ledger has charged, both of
 * which its user can write: its limit, or what NVML shows of it if the limit was lowered below that. */
uint64_t moves_most_bytes(const struct session *session, unsigned policy_gpu);
/* The most that one process of it can have on all its GPUs, or away from them: what they have, or what it may pass. */
uint64_t moves_most_of_process(const struct session *session);
/* What the process has charged on all its GPUs. */
uint64_t moves_charged_to(const struct process *process);
/* The sum over the session's processes of a field of struct wire_moved, as they said last. */
uint64_t moves_sum_of(const struct session *session, size_t offset);
#define MOVES_SUM(session, field) moves_sum_of(session, offsetof(struct wire_moved, field))
/* What of the session's memory stays on the card: by why, and all together. */
void moves_stays(const struct session *session, uint64_t bytes[static WIRE_STAYS_COUNT]);
uint64_t moves_stay_bytes(const struct session *session);
/* Where the session's memory is at this moment. */
void moves_look(const struct session *session, struct moves_memory *memory);
/* Host memory that a session has been given, and that all have; with what was not given back, whatever they say. */
uint64_t moves_arena_bytes(const struct session *session);
uint64_t moves_all_arena_bytes(const struct moves *moves);
/* The bytes of the chunks for all that it still lacks. */
uint64_t moves_chunk_bytes(const struct session *session);
/* Whether the session may have `bytes` more of host memory when all sessions have given back `back_bytes`, and those of
 * its owner `owner_back_bytes` of these. 0, or -EBUSY with ERR_HOST_MEMORY. */
int moves_check_bounds(const struct session *session, uint64_t bytes, uint64_t back_bytes,
                       uint64_t owner_back_bytes, struct error *error);
/* The session's state, by what its processes said last. */
enum move_state moves_state_now(const struct session *session);
/* How many of the session's `bytes` belong to one of its GPUs: in proportion to what is charged there. */
uint64_t moves_part(const struct session *session, unsigned policy_gpu, uint64_t bytes);
/* How many bytes threads of the session wait for on one of its GPUs, as far as its limit leaves so many; with `again`, more for threads that were told that
 * there was room, and found none. */
uint64_t moves_needed_bytes(const struct session *session, unsigned policy_gpu, bool again);
/* A number that changes when the process takes memory: it counts what was granted, and what its session uses. */
uint64_t moves_use_mark(const struct process *process);
/* How many of these bytes the ledger has charged already, although they are not on the card. */
uint64_t moves_charged_ahead(const struct session *session, unsigned policy_gpu);
/* Since when a thread of the session waits for room; UINT64_MAX: none does. */
uint64_t moves_needs_since(const struct session *session);
/* Since when none of its processes has work; UINT64_MAX: one has. */
uint64_t moves_idle_since(const struct session *session);
/* Of memory that can move, on one of its GPUs: what has come ahead of the rest; and what is away, whether it is coming or not. */
uint64_t moves_ahead_bytes(const struct session *session, unsigned policy_gpu);
uint64_t moves_away_bytes(const struct session *session, unsigned policy_gpu);
/* Whether it is away, and should come as soon as there is room. */
bool moves_wants_back(const struct session *session);
/* Whether a process of it was told to bring some back ahead, and has not answered. */
bool moves_has_part_order(const struct session *session);
/* The most that its processes can have on one of its GPUs at this moment: what they have charged and the driver holds for
 * them, or what NVML showed. */
uint64_t moves_there_at_most(const struct session *session, unsigned policy_gpu);

/* --- moves_valid.c ---------------------------------------------------------------------------------- */

/* Whether what is known goes together: of a process that has a move; of a session that has one; and of all. */
bool process_move_is_valid(const struct process *process);
bool move_is_valid(const struct session *session);
bool moves_are_valid(const struct moves *moves);

/* --- moves_progress.c ------------------------------------------------------------------------------ */

/* The session begins to move: watch it from now on; and a process of it has said how far it is. */
void moves_watch_progress(struct session *session);
void moves_note_progress(struct session *session);
/* Whether it moves, and has not come on for 2 s: its room is not counted on, and it has no right to any. */
bool moves_stands_still(const struct session *session);
/* The same for 30 s: nobody hopes for its room any more. */
bool moves_stands_for_good(const struct session *session);
/* Whether a process of it has not answered an order for 2 s, and nothing has moved since. */
bool moves_is_silent(const struct session *session);
/* It stood still while it came: it waits for a while before it comes again. */
void moves_put_off(struct session *session);
/* Whether it waits so; or because it has not answered an order for 2 s. */
bool moves_is_put_off(const struct session *session);
/* Whether it wants to come back, and is not put off. */
bool moves_wants_to_come(const struct session *session);
/* Of memory that can move, what is about to come ahead of the rest to one of its GPUs, unless it stands still. */
uint64_t moves_coming_bytes(const struct session *session, unsigned policy_gpu);

/* --- moves_timer.c --------------------------------------------------------------------------------- */

/* Call the timer at the next tick; or at `usec` at the latest. */
void moves_set_timer(struct moves *moves);
void moves_look_again(struct moves *moves, uint64_t usec);

/* --- moves_orders.c -------------------------------------------------------------------------------- */

/* Tell the session's processes what to do next, and report the state that the session has come to. */
void moves_advance(struct session *session);
/* From now on the session should leave, or come back. */
void moves_turn(struct session *session, bool is_leaving, enum move_cause cause);
/* A move has failed. After an eviction, what has left comes back; a restore is tried again. */
bool moves_is_stuck(const struct session *session);
void moves_fail(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Let as much come ahead as the session's move says; or have what came ahead leave again. */
void moves_come_ahead(struct session *session);
void moves_drop_ahead(struct session *session);
/* Another session waits for this one's turn to end: have the host memory that it lacks made by then. It is not a
 * failure if that cannot be done. */
void moves_prepare(struct session *session);
/* Have a chunk made for the process, of a session that does not leave. False: it may have no more. */
bool moves_make_chunk(struct process *process, uint64_t bytes);
/* It should come when there is room. */
void moves_want_back(struct session *session);
/* Note whether the session is suspended until somebody resumes it. */
void moves_set_suspended(struct session *session, bool is_suspended);
/* --- moves_ahead.c --------------------------------------------------------------------------------- */

/* Call as time passes: have the next chunk made ahead of need, if any process should get one now; and have some taken back
 * where the machine is short of memory. */
void moves_look_ahead(struct daemon *daemon);

/* --- moves_back.c ---------------------------------------------------------------------------------- */

/* The session needs `bytes` of host memory now: have others give back what they do not use. Whether some will come. */
bool moves_take_back(const struct session *session, uint64_t bytes);
/* How much other sessions could give back; with `by_owner`, those of the session's owner. */
uint64_t moves_given_back(const struct session *session, bool by_owner);

/* --- moves_chunks.c -------------------------------------------------------------------------------- */

/* A chunk is about to be sent to the process: keep it by a descriptor of our own. NULL: there is none, or no memory. */
struct held_chunk *moves_keep_chunk(struct process *process, int fd, uint64_t bytes);
/* It was not sent after all. */
void moves_drop_chunk(struct held_chunk *chunk);
/* What the process was given has changed: count what it has beside that. */
void moves_count_kept(struct process *process);
/* The process says that it gave so much back: see what nobody has any more. */
void moves_take_chunks(struct process *process, uint64_t back_bytes);
/* The process has gone, or leaves its session: what it had ends with it. */
void moves_end_chunks(struct process *process);
/* Call as time passes: see what nobody has any more of what was given back, or was passed on. */
void moves_look_at_chunks(struct moves *moves);
/* What processes of the owner's sessions left and others still have, of sessions that have ended too. */
uint64_t moves_left_by_owner(const struct moves *moves, uid_t owner);
/* Whether the chunks of a process, and those that processes left, are as many bytes as is counted. */
bool moves_chunks_are_valid(const struct process *process);
bool moves_left_chunks_are_valid(const struct moves *moves);
/* When the daemon ends: programs go on with what they have. */
void moves_forget_chunks(struct daemon *daemon);

/* --- moves_room.c ---------------------------------------------------------------------------------- */

/* Give room to the sessions that wait for it; for that, others may have to leave. */
void moves_decide(struct daemon *daemon);
/* The same, unless deciding has just taken long: then a little later, so that it takes no more than a tenth of the loop. */
void moves_decide_rested(struct moves *moves);
/* The same, once everything that waits in the loop now has had its turn. So many messages cost one decision. */
void moves_decide_soon(struct moves *moves);

/* --- moves_see.c ----------------------------------------------------------------------------------- */

/* The driver had no room for what the session was told to have room for on one of its GPUs: that card has less than it
 * seems. */
void moves_learn(const struct session *session, unsigned policy_gpu);

/* --- moves_short.c --------------------------------------------------------------------------------- */

/* What a session lacks on a GPU. */
struct moves_lack {
    unsigned gpu;
    uint64_t wanted_bytes;
    uint64_t room_bytes; /* free there now; with `others_leave`, if all others left that can */
    bool others_leave;
};
/* The session's programs are refused what they wait for: tell its owner why. */
void moves_tell_refused(struct session *session, const struct moves_lack *lack);
/* It waits in vain to come back: say so, until there is hope again. */
void moves_tell_short(struct session *session, const struct moves_lack *lack);
void moves_forget_short(struct session *session);
/* Its threads wait until other sessions have ended: say what they lack, where the session's wait is told. */
void moves_note_far(struct session *session, const struct moves_lack *lack);
/* Answer the session's threads that wait for room. */
void moves_tell_room(struct session *session, bool has_room);

/* --- moves_wait.c ---------------------------------------------------------------------------------- */

/* Whether it is to come back, or a thread of it asks for memory. */
bool moves_waits_for_card(const struct session *session);
/* After each decision: note how long sessions wait and why, tell their users, and let those fail that wish it. */
void moves_note_waits(struct daemon *daemon);
/* When its wait should be over, estimated; 0: not known, as where the estimate was wrong twice. */
uint64_t moves_wait_due_usec(const struct session *session);

/* --- moves_reports.c -------------------------------------------------------------------------------- */

/* The session's move, which is made if there is none. `moved`: what the session's first process says; NULL: nothing
 * yet. NULL without memory. */
struct move *moves_find(struct session *session, const struct wire_moved *moved);
extern const struct agent_listener moves_listener;

/* --- moves_checkpoint.c ---------------------------------------------------------------------------- */

/* Have a session without an engine leave, or come back. They return at once; moves_standing() tells the progress.
 * -EBUSY where it cannot. */
int moves_checkpoint_suspend(struct session *session, struct error *error);
int moves_checkpoint_resume(struct session *session, struct error *error);
/* How it stands. False: it was never suspended under this daemon. */
bool moves_checkpoint_standing(const struct session *session, struct moves_standing *standing);
/* Call when the session ends; and when the daemon ends. */
void moves_checkpoint_forget(struct session *session);
void moves_checkpoint_stop(struct daemon *daemon);
