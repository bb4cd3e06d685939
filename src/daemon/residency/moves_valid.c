/* Whether the sums of moves go together with what they are sums of. */
#include "daemon/loop/daemon.h"
#include "daemon/residency/moves_state.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* A process that is told to bring a part ahead has an order to do so. */
static bool has_valid_order(const struct process *process)
{
    const struct process_move *move = process->move;
    return move->order <= process->session->daemon->moves->last_order &&
           (!move->is_part ||
            (move->order && !move->is_eviction && move->part_gpu < process->session->gpu_count));
}

/* What came ahead is on the card. */
static bool has_valid_ahead(const struct process_move *move)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < LEDGER_GPUS; i++)
        sum += move->gpus[i].ahead_bytes;
    return sum <= move->now.resident_bytes;
}

bool process_move_is_valid(const struct process *process)
{
    const struct process_move *move = process->move;
    return move->now.arena_bytes <= move->sent_bytes && move->given_bytes <= move->sent_bytes &&
           move->earlier_bytes <= move->sent_bytes && move->kept_bytes <= move->chunk_bytes &&
           has_valid_order(process) && has_valid_ahead(move) && moves_chunks_are_valid(process);
}

bool move_is_valid(const struct session *session)
{
    const struct move *move = session->move;
    uint64_t now = daemon_now_usec();
    return move->state <= MOVE_PARTLY_AWAY && move->cause <= MOVE_BY_IDLE &&
           (!move->is_taken_idle || move->is_leaving) && move->began_usec <= now && move->wants_usec <= now &&
           move->came_usec <= now && move->left_bytes <= session->daemon->moves->left_bytes;
}

bool moves_are_valid(const struct moves *moves)
{
    uint64_t given_bytes = 0, kept_bytes = 0;
    for (const struct session *session = moves->daemon->sessions; session; session = session->next) {
        if (session->move && !move_is_valid(session))
            return false;
        for (const struct process *process = session->processes; process; process = process->next) {
            if (!process->move)
                continue;
            if (!process_move_is_valid(process))
                return false;
            given_bytes += process->move->given_bytes;
            kept_bytes += process->move->kept_bytes;
        }
    }
    return given_bytes == moves->given_bytes && kept_bytes == moves->kept_bytes &&
           moves_left_chunks_are_valid(moves);
}
