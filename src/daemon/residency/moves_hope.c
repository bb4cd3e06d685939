/* Who waits in vain: finds the sessions for which nobody could make room, and has their programs refused. */
#include <stdlib.h>
#include <string.h>

#include "daemon/loop/daemon.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/moves_view.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"

#define HOPE_USEC UINT64_C(1500000)

/* What is coming to one of the session's GPUs now: when it has come, it can leave again. */
static uint64_t on_its_way(const struct session *session, unsigned policy_gpu)
{
    bool comes = session->move->state == MOVE_COMING && !moves_stands_still(session);
    uint64_t bytes = comes ? moves_away_bytes(session, policy_gpu) : moves_coming_bytes(session, policy_gpu);
    return moves_at_most(bytes, moves_most_bytes(session, policy_gpu));
}

/* Find what would be free in each place if all left that can leave, or can when they have come. */
static void find_most_room(struct moves_view *view, const int64_t free_bytes[RESIDENCY_PLACES])
{
    memcpy(view->most_room, free_bytes, sizeof(view->most_room));
    for (unsigned i = 0; i < view->count; i++) {
        const struct session *session = view->sessions[i];
        for (unsigned j = 0; j < view->seen[i].part_count; j++)
            view->most_room[view->seen[i].parts[j].gpu] += (int64_t)view->seen[i].parts[j].here_bytes;
        for (unsigned j = 0; j < session->gpu_count; j++)
            if (session->gpus[j].gpu >= 0)
                view->most_room[session->gpus[j].gpu] += (int64_t)on_its_way(session, j);
    }
}

/* The same, but session `number` of the view keeps what it has there. */
static int64_t most_room(const struct moves_view *view, unsigned number, const struct residency_part *part)
{
    const struct session *session = view->sessions[number];
    int64_t room = view->most_room[part->gpu] - (int64_t)part->here_bytes;
    for (unsigned j = 0; j < session->gpu_count; j++)
        if (session->gpus[j].gpu == (int)part->gpu)
            room -= (int64_t)on_its_way(session, j);
    return room;
}

/* Whether there would be room for what session `number` of the view waits for, if all others left; else sets what it lacks.
 * A session whose last try was not enough misses more than it needs: that is cut to the room there is. Memory that the
 * driver pages comes in any case, as far as there is room. What is left out as unusable parts of blocks may be usable after all,
 * so a session whose memory needs that too tries to come back. */
static bool has_hope(const struct moves_view *view, unsigned number, struct moves_lack *lack)
{
    const struct residency_session *waiter = &view->seen[number];
    for (unsigned i = 0; i < waiter->part_count; i++) {
        struct residency_part *wanted = &view->first_part[number][i];
        int64_t room = most_room(view, number, wanted);
        if ((int64_t)wanted->missing_bytes <= room)
            continue;
        const struct session *session = view->sessions[number];
        bool tries = moves_wants_to_come(session) && wanted->gpu < RESIDENCY_GPUS;
        int64_t most = room + (tries ? (int64_t)moves_slack_bytes(&session->daemon->gpus[wanted->gpu]) : 0);
        uint64_t room_bytes = room > 0 ? (uint64_t)room : 0;
        if (!moves_is_paged(session) && (int64_t)wanted->least_bytes > most) {
            *lack = (struct moves_lack){wanted->gpu, wanted->least_bytes, room_bytes, true};
            return false;
        }
        wanted->missing_bytes = room_bytes;
    }
    return true;
}

/* What there would be on each GPU if programs outside of sessions ended, and all sessions too. */
static void find_far_room(const struct daemon *daemon, int64_t far_room[LEDGER_GPUS])
{
    for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++)
        far_room[gpu] = (int64_t)admission_unreserved(daemon->gpus[gpu].total_bytes,
                                                      moves_slack_bytes(&daemon->gpus[gpu]), 0);
}

/* The session stays. */
static void take_far_room(const struct session *session, int64_t far_room[LEDGER_GPUS])
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu >= 0)
            far_room[session->gpus[i].gpu] -= moves_counted_by(session, i);
}

/* Whether there is so much room for what threads of the session wait for. */
static bool has_far_hope(const struct session *session, const int64_t far_room[LEDGER_GPUS])
{
    bool has = true;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        uint64_t wanted = moves_needed_bytes(session, i, false);
        int64_t room = session->gpus[i].gpu >= 0 ? far_room[session->gpus[i].gpu] : INT64_MAX;
        has &= !wanted || (room >= 0 && wanted <= (uint64_t)room);
    }
    return has;
}

/* Whether all that the session's threads wait for is reserved for it. */
static bool is_promised(const struct session *session)
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (moves_needed_bytes(session, i, false) && !session->gpus[i].reserved)
            return false;
    return true;
}

/* Whether there is room for what the session waits for without anybody leaving; else sets what it lacks. */
static bool has_room_now(const struct residency_session *seen, const int64_t free_bytes[RESIDENCY_PLACES],
                         struct moves_lack *lack)
{
    for (unsigned i = 0; i < seen->part_count; i++) {
        const struct residency_part *wanted = &seen->parts[i];
        int64_t room = free_bytes[wanted->gpu];
        if ((int64_t)wanted->missing_bytes <= room)
            continue;
        *lack = (struct moves_lack){wanted->gpu, wanted->least_bytes, room > 0 ? (uint64_t)room : 0, false};
        return false;
    }
    return true;
}

/* Whether the session asked to be refused rather than have others leave, and has no other right to the room. */
static bool is_refused_at_once(const struct moves_view *view, unsigned number,
                               const int64_t free_bytes[RESIDENCY_PLACES], struct moves_lack *lack)
{
    const struct session *session = view->sessions[number];
    return session->properties.when_full == WHEN_FULL_REFUSE && !is_promised(session) &&
           !has_room_now(&view->seen[number], free_bytes, lack);
}

/* Whether the session has waited in vain for long enough to be refused. Not at once: the daemon may not have heard yet
 * of what was allocated or is moving now. */
static bool has_lost_hope(struct move *move, bool is_in_vain, uint64_t waits_since_ns)
{
    uint64_t now = daemon_now_usec(), since = waits_since_ns / 1000;
    if (!is_in_vain)
        move->vain_usec = 0;
    else if (move->vain_usec < since) /* left from an earlier wait */
        move->vain_usec = now;
    return is_in_vain && now - move->vain_usec >= HOPE_USEC;
}

static void refuse(struct moves_view *view, unsigned number)
{
    struct session *session = view->sessions[number];
    bool has_asked = moves_needs_since(session) != UINT64_MAX;
    if (!has_asked || !moves_may_do(view, &view->refusals_left))
        return;
    moves_tell_refused(session, &view->lacks[number]);
    moves_tell_room(session, false);
}

/* Session `number` of the view could not have room whoever left: its threads stop waiting, unless it asked to wait until others
 * end; and where it cannot come back it says so, and goes on waiting. */
static void end_hope(struct moves_view *view, unsigned number, const int64_t far_room[LEDGER_GPUS])
{
    struct session *session = view->sessions[number];
    if (moves_wants_to_come(session) && (session->move->is_short || moves_may_do(view, &view->refusals_left)))
        moves_tell_short(session, &view->lacks[number]);
    if (session->properties.when_full != WHEN_FULL_WAIT || !has_far_hope(session, far_room))
        refuse(view, number);
    else
        moves_note_far(session, &view->lacks[number]);
}

static int compare_vain_waits(const void *a, const void *b)
{
    const struct vain_wait *first = a, *second = b;
    if (first->since_ns != second->since_ns)
        return first->since_ns < second->since_ns ? -1 : 1;
    return first->number < second->number ? -1 : 1;
}

/* What somebody waits for in vain is far, if it is there when all others have ended but for those that wait in vain too, and have
 * waited for longer. */
void moves_end_hopes(struct moves_view *view, const struct daemon *daemon)
{
    int64_t far_room[LEDGER_GPUS];
    find_far_room(daemon, far_room);
    qsort(view->vain_waits, view->vain_count, sizeof(*view->vain_waits), compare_vain_waits);
    for (unsigned i = 0, stay = 0; i < view->vain_count; i++) {
        for (; stay < view->vain_count && view->vain_waits[stay].since_ns <= view->vain_waits[i].since_ns;
             stay++)
            take_far_room(view->sessions[view->vain_waits[stay].number], far_room);
        if (view->has_lost_hope[view->vain_waits[i].number])
            end_hope(view, view->vain_waits[i].number, far_room);
    }
}

void moves_find_hopeless(struct moves_view *view, const int64_t free_bytes[RESIDENCY_PLACES])
{
    find_most_room(view, free_bytes);
    for (unsigned i = 0; i < view->count; i++) {
        struct residency_session *seen = &view->seen[i];
        struct moves_lack *lack = &view->lacks[i];
        bool is_refused = seen->waits && is_refused_at_once(view, i, free_bytes, lack);
        bool is_in_vain = is_refused || (seen->waits && !has_hope(view, i, lack));
        seen->waits &= !is_in_vain;
        view->has_lost_hope[i] = has_lost_hope(view->sessions[i]->move, is_in_vain, seen->waits_since_ns);
        if (is_refused)
            refuse(view, i);
        if (is_in_vain)
            view->vain_waits[view->vain_count++] = (struct vain_wait){seen->waits_since_ns, i};
        else
            moves_forget_short(view->sessions[i]);
    }
}
