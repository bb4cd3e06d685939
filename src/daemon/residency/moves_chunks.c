/* Knows who has which chunk of host memory. What a process says that it gave back counts as its session's until nobody has it
 * any more; what a dead process passed on is taken from whoever has it. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "daemon/loop/daemon.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/chunk.h"
#include "daemon/residency/moves_state.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/users/descriptor_bounds.h"
#include "daemon/users/user_time.h"

/* How often to look at what may be given back, and at how many of a process's chunks, or of those that were left, at most. */
#define CHUNKS_LOOK_USEC UINT64_C(1000000)
#define CHUNKS_A_LOOK 500u

struct held_chunk {
    LIST_ENTRY(held_chunk) next;
    struct process *process; /* NULL: it has gone, or left its session */
    struct daemon *daemon;
    uint64_t bytes;
    uint64_t payer;                   /* of the helper's time */
    uid_t owner;                      /* of the session, */
    char session_id[SESSION_ID_TEXT]; /* which may have ended */
    int own_fd;                       /* the daemon's (chunk.h) */
};

/* --- What must hold -------------------------------------------------------------------------------- */

static bool list_is_valid(const struct held_chunks *chunks, const struct process *process, uint64_t bytes)
{
    const struct held_chunk *at;
    LIST_FOREACH (at, chunks, next) {
        if (at->process != process || at->own_fd < 0 || at->bytes > bytes)
            return false;
        bytes -= at->bytes;
    }
    return bytes == 0;
}

bool moves_chunks_are_valid(const struct process *process)
{
    return list_is_valid(&process->move->chunks, process, process->move->chunk_bytes);
}

bool moves_left_chunks_are_valid(const struct moves *moves)
{
    return list_is_valid(&moves->left_chunks, NULL, moves->left_bytes);
}

/* --- One process's --------------------------------------------------------------------------------- */

/* Those that this daemon sent, of so much that the process has, by what it says: those of an earlier daemon came first. */
static uint64_t ours_of(const struct process_move *move, uint64_t bytes)
{
    return bytes > move->earlier_bytes ? bytes - move->earlier_bytes : 0;
}

void moves_count_kept(struct process *process)
{
    struct process_move *move = process->move;
    uint64_t given = ours_of(move, move->given_bytes),
             kept = move->chunk_bytes > given ? move->chunk_bytes - given : 0;
    process->session->daemon->moves->kept_bytes += kept - move->kept_bytes;
    move->kept_bytes = kept;
}

/* Whether somebody may have given back some of what the process was sent, or never got it. */
static bool is_doubtful(const struct process_move *move)
{
    return move->chunk_bytes > ours_of(move, move->now.arena_bytes);
}

/* The daemon lets go of the chunk. Takes it off its list alone. */
static void let_go(struct held_chunk *chunk)
{
    LIST_REMOVE(chunk, next);
    user_remove(chunk->daemon, chunk->owner, USER_CHUNK);
    free(chunk);
}

/* Have its memory freed, whoever has it. */
static void end_chunk(struct held_chunk *chunk)
{
    arena_end_chunk(chunk->daemon, chunk->own_fd, chunk->payer);
    let_go(chunk);
}

struct held_chunk *moves_keep_chunk(struct process *process, int fd, uint64_t bytes)
{
    struct session *session = process->session;
    struct held_chunk *chunk = calloc(1, sizeof(*chunk));
    int own_fd = chunk ? chunk_keep(fd) : -1;
    if (own_fd < 0) {
        free(chunk);
        return NULL;
    }
    *chunk = (struct held_chunk){.process = process,
                                 .daemon = session->daemon,
                                 .bytes = bytes,
                                 .payer = user_time_key(session->owner, session->number),
                                 .owner = session->owner,
                                 .own_fd = own_fd};
    LIST_INSERT_HEAD(&process->move->chunks, chunk, next);
    process->move->chunk_bytes += bytes;
    strcpy(chunk->session_id, session->id);
    user_add(session->daemon, session->owner, USER_CHUNK);
    GS_CHECK(moves_chunks_are_valid(process));
    return chunk;
}

void moves_drop_chunk(struct held_chunk *chunk)
{
    struct process *process = chunk->process;
    GS_CHECK(process && chunk->bytes <= process->move->chunk_bytes);
    process->move->chunk_bytes -= chunk->bytes;
    end_chunk(chunk);
    moves_count_kept(process);
}

static void look_later(struct moves *moves)
{
    moves->chunks_are_doubtful = true;
    moves_look_again(moves, moves->chunks_looked_usec + CHUNKS_LOOK_USEC);
}

static void look_at_process(struct process *process)
{
    struct process_move *move = process->move;
    struct held_chunk *next, *at = LIST_FIRST(&move->chunks);
    for (unsigned i = 0; at && i < CHUNKS_A_LOOK && is_doubtful(move); i++, at = next) {
        next = LIST_NEXT(at, next);
        if (chunk_is_unused(at->own_fd))
            moves_drop_chunk(at);
    }
}

void moves_take_chunks(struct process *process, uint64_t back_bytes)
{
    if (back_bytes >= ARENA_CHUNK_SMALL) /* less is no chunk, and a process can say so without end */
        look_at_process(process);
    if (is_doubtful(process->move))
        look_later(process->session->daemon->moves);
}

/* --- Those that processes left --------------------------------------------------------------------- */

static bool is_dead(const struct process *process)
{
    struct pollfd ready = {.fd = process->pidfd, .events = POLLIN};
    return poll(&ready, 1, 0) > 0;
}

/* A process that runs another program now, or whose session ends without it, goes on, and may have passed a chunk on to one
 * that needs it. */
static void leave_chunk(struct held_chunk *chunk)
{
    struct moves *moves = chunk->daemon->moves;
    GS_CHECK(chunk->process && chunk->process->session->move);
    chunk->process->session->move->left_bytes += chunk->bytes;
    LIST_REMOVE(chunk, next);
    chunk->process = NULL;
    LIST_INSERT_HEAD(&moves->left_chunks, chunk, next);
    moves->left_bytes += chunk->bytes;
    look_later(moves);
}

void moves_end_chunks(struct process *process)
{
    struct process_move *move = process->move;
    struct moves *moves = process->session->daemon->moves;
    bool is_over = is_dead(process);
    GS_CHECK(moves_chunks_are_valid(process) && move->kept_bytes <= moves->kept_bytes);
    moves->kept_bytes -= move->kept_bytes;
    move->kept_bytes = move->chunk_bytes = 0;
    for (struct held_chunk *next, *at = LIST_FIRST(&move->chunks); at; at = next) {
        next = LIST_NEXT(at, next);
        if (is_over)
            end_chunk(at);
        else
            leave_chunk(at);
    }
}

/* Nobody has it any more. */
static void drop_left(struct held_chunk *chunk)
{
    struct session *session = session_find_id(chunk->daemon, chunk->session_id);
    GS_CHECK(!chunk->process && chunk->bytes <= chunk->daemon->moves->left_bytes);
    if (session && session->move)
        session->move->left_bytes -= chunk->bytes;
    chunk->daemon->moves->left_bytes -= chunk->bytes;
    end_chunk(chunk);
}

static void look_at_left(struct moves *moves)
{
    struct held_chunk *next, *at = moves->left_next ? moves->left_next : LIST_FIRST(&moves->left_chunks);
    for (unsigned i = 0; at && i < CHUNKS_A_LOOK; i++, at = next) {
        next = LIST_NEXT(at, next);
        if (chunk_is_unused(at->own_fd))
            drop_left(at);
    }
    moves->left_next = at;
    GS_CHECK(moves_left_chunks_are_valid(moves));
}

uint64_t moves_left_by_owner(const struct moves *moves, uid_t owner)
{
    uint64_t sum = 0;
    const struct held_chunk *at;
    LIST_FOREACH (at, &moves->left_chunks, next)
        sum += at->owner == owner ? at->bytes : 0;
    return sum;
}

/* --- All ------------------------------------------------------------------------------------------- */

/* Returns whether some of what may have been given back was not. */
static bool look_at_all(struct moves *moves)
{
    bool any = false;
    for (struct session *session = moves->daemon->sessions; session; session = session->next)
        for (struct process *process = session->processes; process; process = process->next)
            if (process->move && is_doubtful(process->move)) {
                look_at_process(process);
                any |= is_doubtful(process->move);
            }
    look_at_left(moves);
    return any || !LIST_EMPTY(&moves->left_chunks);
}

void moves_look_at_chunks(struct moves *moves)
{
    uint64_t now = daemon_now_usec();
    if (!moves->chunks_are_doubtful)
        return;
    if (now - moves->chunks_looked_usec >= CHUNKS_LOOK_USEC) {
        moves->chunks_looked_usec = now;
        moves->chunks_are_doubtful = look_at_all(moves);
    }
    if (moves->chunks_are_doubtful)
        look_later(moves);
}

static void forget_list(struct held_chunks *chunks)
{
    while (!LIST_EMPTY(chunks)) {
        struct held_chunk *chunk = LIST_FIRST(chunks);
        close(chunk->own_fd);
        let_go(chunk);
    }
}

void moves_forget_chunks(struct daemon *daemon)
{
    forget_list(&daemon->moves->left_chunks);
}
