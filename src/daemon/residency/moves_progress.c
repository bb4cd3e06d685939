/* Tells a move that goes on from one that stands still, as when its process is stopped or does not say the truth. A move that
 * stands still keeps its own session waiting, and nobody else. */
#include "daemon/loop/daemon.h"
#include "daemon/residency/moves_state.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* A move stands still if it has not come on for so long: by one part of itself, so that a byte now and then is not enough. */
#define STILL_USEC UINT64_C(2000000)
#define STEP_PART 64u
/* Who leaves may stand still for so long before nobody counts on its room any more: its work on the GPU may be long. */
#define HOPE_USEC UINT64_C(30000000)
/* Who stood still while it came waits this long before it comes again, and for twice as long each next time. */
#define PUT_OFF_USEC UINT64_C(2000000)
#define PUT_OFF_DOUBLINGS 5u

/* What still has to leave or come. */
static uint64_t left_bytes(const struct session *session)
{
    bool leaves = session->move->is_leaving && !session->move->is_ahead;
    return leaves ? MOVES_SUM(session, resident_bytes) : MOVES_SUM(session, evicted_bytes);
}

void moves_watch_progress(struct session *session)
{
    struct move *move = session->move;
    move->progress_usec = daemon_now_usec();
    move->progress_left = left_bytes(session);
    move->progress_step = move->progress_left / STEP_PART;
}

void moves_note_progress(struct session *session)
{
    struct move *move = session->move;
    uint64_t left = left_bytes(session);
    if (left >= move->progress_left || move->progress_left - left < move->progress_step)
        return;
    move->progress_left = left;
    move->progress_usec = daemon_now_usec();
}

static bool is_long_ago(uint64_t usec)
{
    return daemon_now_usec() - usec >= STILL_USEC;
}

bool moves_stands_still(const struct session *session)
{
    const struct move *move = session->move;
    bool moves = move->state == MOVE_LEAVING || move->state == MOVE_COMING || moves_has_part_order(session);
    return moves && is_long_ago(move->progress_usec);
}

bool moves_stands_for_good(const struct session *session)
{
    return moves_stands_still(session) && daemon_now_usec() - session->move->progress_usec >= HOPE_USEC;
}

bool moves_is_silent(const struct session *session)
{
    bool any = false;
    for (const struct process *process = session->processes; process; process = process->next)
        any |= process->move && process->move->order && is_long_ago(process->move->order_usec);
    return any && is_long_ago(session->move->progress_usec);
}

bool moves_is_put_off(const struct session *session)
{
    return daemon_now_usec() < session->move->put_off_usec || moves_is_silent(session);
}

void moves_put_off(struct session *session)
{
    struct move *move = session->move;
    move->put_off_usec = daemon_now_usec() + (PUT_OFF_USEC << move->put_offs);
    move->put_offs += move->put_offs < PUT_OFF_DOUBLINGS;
}

static uint64_t coming_of(const struct process_move *move)
{
    uint64_t came =
        move->now.resident_bytes > move->part_from ? move->now.resident_bytes - move->part_from : 0;
    return came < move->part_bytes ? move->part_bytes - came : 0;
}

uint64_t moves_coming_bytes(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = 0;
    if (moves_stands_still(session))
        return 0;
    for (const struct process *process = session->processes; process; process = process->next)
        if (process->move && process->move->is_part && process->move->part_gpu == policy_gpu)
            sum += coming_of(process->move);
    return sum;
}

bool moves_wants_to_come(const struct session *session)
{
    return moves_wants_back(session) && !moves_is_put_off(session);
}
