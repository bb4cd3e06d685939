/* Tells threads that wait for room whether there is some, and users of sessions for which nobody can make any: what they lack, and
 * what stays in their way. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "daemon/agents/agents.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/stays.h"
#include "daemon/session/process.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

#define LACK_TEXT (STAYS_TEXT + 200)

/* What of others' memory stays on a GPU. */
struct obstacles {
    uint64_t stays_bytes[WIRE_STAYS_COUNT];
    uint64_t sessions_bytes; /* of sessions whose memory does not move */
    uint64_t stuck_bytes;    /* of sessions that have just tried in vain to leave */
    uint64_t outside_bytes;  /* of programs outside of sessions */
};

static void add_session(const struct session *session, unsigned policy_gpu, struct obstacles *obstacles)
{
    uint64_t stays[WIRE_STAYS_COUNT];
    if (!session_can_move(session)) {
        obstacles->sessions_bytes += moves_at_most(session_used(session, policy_gpu), MOVES_BYTES_MOST);
        return;
    }
    if (moves_is_stuck(session)) {
        obstacles->stuck_bytes += moves_at_most(session_used(session, policy_gpu), MOVES_BYTES_MOST);
        return;
    }
    moves_stays(session, stays);
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++)
        obstacles->stays_bytes[why] +=
            moves_at_most(moves_part(session, policy_gpu, stays[why]), MOVES_BYTES_MOST);
}

static void find_obstacles(const struct session *session, unsigned gpu, struct obstacles *obstacles)
{
    memset(obstacles, 0, sizeof(*obstacles));
    obstacles->outside_bytes = promises_outside_bytes(session->daemon, gpu);
    for (const struct session *at = session->daemon->sessions; at; at = at->next)
        for (unsigned i = 0; i < at->gpu_count && at != session; i++)
            if (at->gpus[i].gpu == (int)gpu)
                add_session(at, i, obstacles);
}

/* The largest first. Returns how many parts there are. */
static unsigned list_obstacles(const struct obstacles *obstacles,
                               struct units_part parts[static WIRE_STAYS_COUNT + 3])
{
    enum wire_stays order[WIRE_STAYS_COUNT];
    const struct units_part more[] = {
        {obstacles->sessions_bytes, "of sessions whose memory cannot leave"},
        {obstacles->stuck_bytes, "of sessions that could not leave just now: 'gpuslice events' says why"},
        {obstacles->outside_bytes, "of programs outside of sessions"},
    };
    unsigned count = stays_order(obstacles->stays_bytes, order);
    for (unsigned i = 0; i < count; i++)
        parts[i] = (struct units_part){obstacles->stays_bytes[order[i]], wire_stays_text(order[i])};
    for (unsigned i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        unsigned at = more[i].bytes ? count++ : 0;
        for (; more[i].bytes && at > 0 && parts[at - 1].bytes < more[i].bytes; at--)
            parts[at] = parts[at - 1];
        if (more[i].bytes)
            parts[at] = more[i];
    }
    return count;
}

/* "200MiB on GPU 0, where 80MiB would be free if all others left that can; of others 320MiB stay (arrays)". */
static void describe(const struct session *session, const struct moves_lack *lack,
                     char text[static LACK_TEXT])
{
    struct obstacles obstacles;
    struct units_part parts[WIRE_STAYS_COUNT + 3];
    char wanted[UNITS_BYTES_TEXT], room[UNITS_BYTES_TEXT], stays[STAYS_TEXT];
    find_obstacles(session, lack->gpu, &obstacles);
    units_format_stays(parts, list_obstacles(&obstacles, parts), stays, sizeof(stays));
    snprintf(text, LACK_TEXT, "%s on GPU %s, where %s %s%s%s", units_format_bytes(lack->wanted_bytes, wanted),
             session->daemon->gpus[lack->gpu].label, units_format_bytes(lack->room_bytes, room),
             lack->others_leave ? "would be free if all sessions left that can"
                                : "are free, and --when-full refuse keeps others on the card",
             lack->others_leave && *stays ? "; of others " : "", lack->others_leave ? stays : "");
}

void moves_tell_refused(struct session *session, const struct moves_lack *lack)
{
    char text[LACK_TEXT];
    describe(session, lack, text);
    log_info("session %s: refused a program %s", session->id, text);
    change_publish(session->daemon, &(struct change){CHANGE_MEMORY_SHORT, .session = session},
                   "a program was refused %s", text);
}

void moves_tell_short(struct session *session, const struct moves_lack *lack)
{
    struct move *move = session->move;
    char text[LACK_TEXT];
    if (move->is_short)
        return;
    move->is_short = true;
    describe(session, lack, text);
    snprintf(move->failure, sizeof(move->failure), "it waits for room to come back: %s are missing", text);
    log_warning("session %s: %s", session->id, move->failure);
    change_publish(session->daemon, &(struct change){CHANGE_MOVE_FAILED, .session = session}, "%s",
                   move->failure);
}

void moves_note_far(struct session *session, const struct moves_lack *lack)
{
    char text[LACK_TEXT];
    if (session->move->wait.is_far)
        return;
    session->move->wait.is_far = true;
    describe(session, lack, text);
    snprintf(session->move->wait.why, sizeof(session->move->wait.why),
             "it waits until others have ended: %s are missing", text);
}

void moves_forget_short(struct session *session)
{
    if (session->move->is_short)
        session->move->failure[0] = '\0';
    session->move->is_short = false;
}

void moves_tell_room(struct session *session, bool has_room)
{
    for (struct process *process = session->processes; process; process = process->next) {
        if (!process->move || !process->move->need.number)
            continue;
        struct wire_message message = {.header.type = WIRE_ROOM,
                                       .room = {.number = process->move->need.number, .has_room = has_room}};
        process->move->need.number = 0;
        process->move->rooms_told += has_room;
        process->move->use_when_told = moves_use_mark(process);
        agents_send(process, &message, -1);
    }
}
