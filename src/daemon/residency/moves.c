#include "daemon/residency/moves.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/names.h"
#include "daemon/agents/agents.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/deferred.h"
#include "daemon/loop/log.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/stays.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

#define FIRST_BYTES_PER_SECOND UINT64_C(10000000000)
/* A process that says nothing for this long while it should move is stopped, or stuck. */
#define SILENCE_USEC UINT64_C(10000000)

/* Report a process that does not answer. Only its own session waits for it. */
static void look_for_silence(struct process *process, uint64_t now)
{
    struct process_move *move = process->move;
    struct session *session = process->session;
    if (!move->order || move->silence_told || now - move->heard_usec < SILENCE_USEC)
        return;
    move->silence_told = true;
    snprintf(session->move->failure, sizeof(session->move->failure),
             "process %d does not answer: it is stopped, or its driver hangs; its memory moves as soon as it "
             "answers",
             (int)process->pid);
    log_warning("session %s: %s", session->id, session->move->failure);
    change_publish(session->daemon,
                   &(struct change){CHANGE_MOVE_FAILED, .session = session, .process = process}, "%s",
                   session->move->failure);
}

/* Have the session leave if it has had no work for long enough. */
static void look_for_idleness(struct session *session, uint64_t now)
{
    const struct move *move = session->move;
    uint64_t since = moves_idle_since(session), usec = session->properties.idle_suspend_seconds * 1000000;
    if (usec == 0 || move->is_leaving || move->state != MOVE_RESIDENT || since == UINT64_MAX ||
        now - since < usec || now - move->began_usec < usec || MOVES_SUM(session, resident_bytes) == 0)
        return;
    moves_turn(session, true, MOVE_BY_IDLE);
}

static bool needs_time(const struct session *session)
{
    return session->move && (session->properties.idle_suspend_seconds ||
                             session->move->state == MOVE_LEAVING || session->move->state == MOVE_COMING);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct moves *moves = userdata;
    uint64_t now = daemon_now_usec();
    bool more = false;
    (void)source;
    (void)usec;
    for (struct session *session = moves->daemon->sessions; session; session = session->next) {
        if (!needs_time(session))
            continue;
        look_for_idleness(session, now);
        for (struct process *process = session->processes; process; process = process->next)
            if (process->move)
                look_for_silence(process, now);
        moves_advance(session);
        more = true;
    }
    moves_decide_rested(moves);
    if (more)
        moves_set_timer(moves);
    moves_look_ahead(moves->daemon);
    moves_look_at_chunks(moves);
    return 0;
}

static void on_decision(void *context)
{
    moves_decide_rested(context);
}

static void on_change(void *context, const struct change *change)
{
    (void)context;
    struct session *session = change->session;
    switch (change->kind) {
    case CHANGE_PROCESS_GONE:
        if (change->process->move) {
            moves_end_chunks(change->process);
            moves_set_given(change->process, 0);
        }
        free(change->process->move);
        change->process->move = NULL;
        moves_advance(session);
        moves_look_again(session->daemon->moves, daemon_now_usec()); /* what it had is free now */
        break;
    case CHANGE_SESSION_GONE:
        GS_CHECK(moves_are_valid(session->daemon->moves));
        free(session->move);
        session->move = NULL;
        moves_checkpoint_forget(session);
        break;
    default:
        break;
    }
}

/* --- What users ask for ---------------------------------------------------------------------------- */

int moves_suspend(struct session *session, struct error *error)
{
    char stays[SESSION_STAYS_TEXT];
    if (session_why_stays(session, session->properties.engine, stays))
        return error_set(error, EBUSY, "ERR_NOT_MOVABLE",
                         "the memory of session %s cannot leave the card: %s", session->id, stays);
    if (!session_can_move(session))
        return moves_checkpoint_suspend(session, error);
    bool leaves = session->move && session->move->is_leaving;
    int result =
        leaves ? 0
               : moves_check_bounds(session, moves_chunk_bytes(session), moves_given_back(session, false),
                                    moves_given_back(session, true), error);
    if (result < 0)
        return result;
    if (!moves_find(session, NULL))
        return error_set_errno(error, ENOMEM, "cannot suspend session %s", session->id);
    if (leaves) {
        session->move->cause = MOVE_BY_USER; /* from now on */
        session->move->is_taken_idle = false;
        session->move->wants_usec = 0;
        moves_drop_ahead(session);
    } else {
        session->move->failure[0] = '\0';
        moves_turn(session, true, MOVE_BY_USER);
    }
    moves_set_suspended(session, true);
    moves_advance(session);
    return 0;
}

int moves_resume(struct session *session, struct error *error)
{
    if (!session_can_move(session))
        return moves_checkpoint_resume(session, error);
    moves_set_suspended(session, false);
    if (!moves_find(session, NULL))
        return error_set_errno(error, ENOMEM, "cannot resume session %s", session->id);
    if (!session->move->is_leaving)
        return 0;
    session->move->failure[0] = '\0';
    session->move->cause = MOVE_BY_NEED;
    if (session->move->state == MOVE_LEAVING)
        moves_turn(session, false, MOVE_BY_NEED); /* only what has left has to come back */
    else
        moves_want_back(session);
    moves_advance(session);
    moves_decide_soon(session->daemon->moves);
    return 0;
}

/* Estimate by this move's progress; before anything has moved, by the speed of earlier moves. */
static double seconds_left_of_move(const struct session *session, uint64_t done_bytes, uint64_t left_bytes)
{
    const struct moves *moves = session->daemon->moves;
    double seconds = (double)(daemon_now_usec() - session->move->began_usec) / 1e6,
           expected = (double)left_bytes / (double)moves->bytes_per_second;
    if (done_bytes)
        return seconds * (double)left_bytes / (double)done_bytes;
    return expected > seconds ? expected : seconds; /* a move that has taken long already will take long */
}

struct moves_standing moves_standing(const struct session *session)
{
    const struct move *move = session->move;
    struct moves_standing standing = {.state = session->is_suspended ? MOVE_AWAY : MOVE_RESIDENT,
                                      .failure = "",
                                      .wait_why = "",
                                      .seconds_left = -1,
                                      .wait_seconds_left = -1};
    if (moves_checkpoint_standing(session, &standing))
        return standing;
    if (session_can_move(session))
        moves_look(session, &standing.memory);
    if (!move)
        return standing;
    bool is_partly = move->state == MOVE_AWAY && stays_against_wish(standing.memory.stays_bytes);
    standing.state = is_partly ? MOVE_PARTLY_AWAY : move->state;
    standing.cause = move->cause;
    standing.waits = moves_waits_for_card(session);
    standing.wait_why = move->wait.why;
    standing.arena_bytes = moves_arena_bytes(session);
    standing.failure = move->failure;
    uint64_t now = daemon_now_usec();
    uint64_t due = moves_wait_due_usec(session);
    if (standing.waits && due)
        standing.wait_seconds_left = due > now ? (double)(due - now) / 1e6 : 0;
    if (move->state != MOVE_LEAVING && move->state != MOVE_COMING)
        return standing;
    uint64_t left = move->is_leaving ? MOVES_SUM(session, resident_bytes) : MOVES_SUM(session, evicted_bytes);
    standing.total_bytes = left > move->total_bytes ? left : move->total_bytes;
    standing.done_bytes = standing.total_bytes - left;
    standing.seconds_left = seconds_left_of_move(session, standing.done_bytes, left);
    return standing;
}

/* --- Turns ----------------------------------------------------------------------------------------- */

static const char *const anti_thrash_names[] = {
    [ANTI_THRASH_AUTO] = "auto", [ANTI_THRASH_ON] = "on", [ANTI_THRASH_OFF] = "off"};

void moves_set_turns(struct daemon *daemon, uint64_t turn_ns)
{
    daemon->moves->turn_ns = turn_ns;
    moves_decide(daemon);
}

uint64_t moves_turns_ns(const struct daemon *daemon)
{
    return daemon->moves->turn_ns;
}

void moves_set_anti_thrash(struct daemon *daemon, enum anti_thrash anti_thrash)
{
    daemon->moves->anti_thrash = anti_thrash;
    moves_decide(daemon);
}

enum anti_thrash moves_anti_thrash(const struct daemon *daemon)
{
    return daemon->moves->anti_thrash;
}

bool moves_takes_turns(const struct daemon *daemon, unsigned gpu)
{
    return daemon->moves && daemon->moves->turns_until_usec[gpu] > daemon_now_usec();
}

const char *moves_anti_thrash_name(enum anti_thrash anti_thrash)
{
    return anti_thrash_names[anti_thrash];
}

bool moves_anti_thrash_parse(const char *text, enum anti_thrash *anti_thrash)
{
    int at = names_find(anti_thrash_names, sizeof(anti_thrash_names) / sizeof(anti_thrash_names[0]), text);
    if (at >= 0)
        *anti_thrash = (enum anti_thrash)at;
    return at >= 0;
}

/* --- Names ----------------------------------------------------------------------------------------- */

const char *moves_state_name(enum move_state state)
{
    static const char *const names[] = {[MOVE_RESIDENT] = "resident",
                                        [MOVE_LEAVING] = "leaving",
                                        [MOVE_AWAY] = "away",
                                        [MOVE_PARTLY_AWAY] = "partly_away",
                                        [MOVE_COMING] = "coming"};
    return names[state];
}

const char *moves_cause_name(enum move_cause cause)
{
    static const char *const names[] = {
        [MOVE_BY_USER] = "user", [MOVE_BY_IDLE] = "idle", [MOVE_BY_NEED] = "need"};
    return names[cause];
}

/* --- Start and end --------------------------------------------------------------------------------- */

int moves_start(struct daemon *daemon, struct error *error)
{
    struct moves *moves = calloc(1, sizeof(*moves));
    if (!moves)
        return error_set_errno(error, ENOMEM, "cannot move memory");
    moves->daemon = daemon;
    moves->bytes_per_second = FIRST_BYTES_PER_SECOND;
    moves->observer = (struct observer){.take = on_change, .context = moves};
    int result = deferred_new(daemon->loop, on_decision, moves, &moves->decision);
    if (result >= 0)
        result = sd_event_add_time_relative(daemon->loop, &moves->timer, CLOCK_MONOTONIC, MOVES_TICK_USEC, 1,
                                            on_timer, moves);
    if (result < 0) {
        deferred_free(moves->decision);
        free(moves);
        return error_set_errno(error, -result, "cannot move memory");
    }
    daemon->moves = moves;
    change_observe(daemon, &moves->observer);
    agents_listen(daemon, AGENTS_MEMORY, &moves_listener);
    return 0;
}

void moves_stop(struct daemon *daemon)
{
    if (!daemon->moves)
        return;
    change_observe_no_more(daemon, &daemon->moves->observer);
    sd_event_source_disable_unref(daemon->moves->timer);
    deferred_free(daemon->moves->decision);
    moves_checkpoint_stop(daemon);
    moves_forget_chunks(daemon);
    free(daemon->moves);
    daemon->moves = NULL;
}
