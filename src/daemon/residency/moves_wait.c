/* A session that waits for room on a card: who keeps it waiting where that has no known end, whether its estimates have come true,
 * and when its user is told, or its programs fail. */
#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "daemon/agents/agents.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/process/release.h"
#include "daemon/residency/moves_state.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* How late an estimate may be before it counts as missed; and after how many of these there is none. */
#define LATE_USEC UINT64_C(1000000)
#define MISSES_MOST 2u
/* How often it is looked who keeps a session waiting, and for how many sessions at once: looking goes through all sessions. */
#define LOOK_USEC UINT64_C(1000000)
#define LOOKS_A_ROUND 32u
/* How long programs have for the line that says why they are ended. */
#define LAST_WORD_USEC UINT64_C(1000000)

/* --- Why ------------------------------------------------------------------------------------------- */

/* On which GPU of the daemon both have memory; -1: on none. */
static int shared_gpu(const struct session *session, const struct session *other)
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        for (unsigned j = 0; j < other->gpu_count; j++)
            if (session->gpus[i].gpu >= 0 && session->gpus[i].gpu == other->gpus[j].gpu)
                return session->gpus[i].gpu;
    return -1;
}

/* The process that does not carry out its order; one that is stopped, if there is one. NULL: there is none. */
static const struct process *find_culprit(const struct session *holder, bool *is_stopped)
{
    const struct process *culprit = NULL;
    *is_stopped = false;
    for (const struct process *process = holder->processes; process && !*is_stopped;
         process = process->next) {
        if (!process->move || !process->move->order)
            continue;
        culprit = process;
        *is_stopped = process_is_stopped(process->pid);
    }
    return culprit;
}

/* Another session was told to make room and does not. Users are not told the names of others' sessions. */
static bool find_holder(const struct session *session, char text[static MOVES_WAIT_TEXT])
{
    for (const struct session *at = session->daemon->sessions; at; at = at->next) {
        int gpu = at != session && at->move && (moves_stands_still(at) || moves_is_silent(at))
                      ? shared_gpu(session, at)
                      : -1;
        bool is_stopped, is_own = at->owner == session->owner;
        const struct process *culprit = gpu >= 0 ? find_culprit(at, &is_stopped) : NULL;
        if (!culprit)
            continue;
        snprintf(text, MOVES_WAIT_TEXT, "GPU %s is held by %s%s: its process %d (%s) %s",
                 session->daemon->gpus[gpu].label, is_own ? "session " : "a session of another user",
                 is_own ? at->name : "", (int)culprit->pid, culprit->command,
                 is_stopped ? "is stopped (SIGSTOP)" : "does not answer");
        return true;
    }
    return false;
}

static void find_why(struct session *session)
{
    struct move *move = session->move;
    bool has_holder = find_holder(session, move->wait.why);
    if (has_holder)
        move->wait.is_far = false;
    else if (!move->wait.is_far)
        snprintf(move->wait.why, sizeof(move->wait.why), "%s", move->is_short ? move->failure : "");
}

/* --- What follows ---------------------------------------------------------------------------------- */

/* Its programs say it on their stderr. */
static void tell_programs(struct session *session, const char *text)
{
    struct wire_message message = {.header.type = WIRE_TELL};
    snprintf(message.tell.text, sizeof(message.tell.text), "%.*s", WIRE_TELL_BYTES - 1, text);
    for (struct process *process = session->processes; process; process = process->next)
        agents_send(process, &message, -1);
}

static void tell(struct session *session, uint64_t waited_usec)
{
    struct moves_wait *wait = &session->move->wait;
    char text[MOVES_WAIT_TEXT + 160];
    wait->is_told = true;
    snprintf(text, sizeof(text), "session %s has waited for room on the card for %u s: %s", session->name,
             (unsigned)(waited_usec / 1000000), wait->why);
    log_info("session %s: %s", session->id, text);
    change_publish(
        session->daemon,
        &(struct change){CHANGE_SESSION_WAITS, .session = session, .seconds = (double)waited_usec / 1e6},
        "%s", text);
    tell_programs(session, text);
}

/* What its programs ask for is refused; programs whose memory is away cannot go on without it, and are ended a little later. */
static void fail(struct session *session, uint64_t now)
{
    char text[MOVES_WAIT_TEXT];
    session->move->wait.failed_usec = now;
    snprintf(text, sizeof(text),
             "session %s has waited for room on the card for as long as its wait-for-card says: %s",
             session->name,
             moves_wants_back(session) ? "its programs are ended" : "what its programs asked for is refused");
    tell_programs(session, text);
    change_publish(session->daemon, &(struct change){CHANGE_MEMORY_SHORT, .session = session}, "%s", text);
    if (!moves_wants_back(session))
        moves_tell_room(session, false);
}

static void end_programs(struct session *session)
{
    session->move->wait.is_ended = true;
    release_end_processes(session, "its wait-for-card is over, and it cannot come back to the card");
}

static void note_estimate(struct moves_wait *wait, uint64_t due_usec, uint64_t now)
{
    if (!due_usec)
        return;
    if (wait->hoped_usec && now <= wait->hoped_usec + LATE_USEC)
        return;
    wait->missed += wait->hoped_usec != 0;
    wait->hoped_usec = due_usec > now ? due_usec : now;
}

static void note_wait(struct session *session, uint64_t now, unsigned *looks_left)
{
    struct move *move = session->move;
    struct moves_wait *wait = &move->wait;
    uint64_t told_usec = session->daemon->config.daemon.wait_told_usec,
             fails_usec = session->properties.wait_for_card_seconds * UINT64_C(1000000);
    if (!wait->since_usec)
        wait->since_usec = now;
    note_estimate(wait, move->due_usec, now);
    if (*looks_left && now - wait->looked_usec >= LOOK_USEC) {
        (*looks_left)--;
        wait->looked_usec = now;
        find_why(session);
    }
    uint64_t waited = now - wait->since_usec;
    if (!wait->is_told && wait->why[0] && waited >= told_usec)
        tell(session, waited);
    if (!wait->failed_usec && fails_usec && waited >= fails_usec)
        fail(session, now);
    else if (wait->failed_usec && !wait->is_ended && now - wait->failed_usec >= LAST_WORD_USEC &&
             moves_wants_back(session))
        end_programs(session);
}

void moves_note_waits(struct daemon *daemon)
{
    uint64_t now = daemon_now_usec();
    unsigned looks_left = LOOKS_A_ROUND;
    for (struct session *at = daemon->sessions; at; at = at->next) {
        if (at->move && moves_waits_for_card(at))
            note_wait(at, now, &looks_left);
        else if (at->move && at->move->wait.since_usec)
            memset(&at->move->wait, 0, sizeof(at->move->wait));
    }
}

bool moves_waits_for_card(const struct session *session)
{
    return moves_wants_back(session) || moves_needs_since(session) != UINT64_MAX;
}

uint64_t moves_wait_due_usec(const struct session *session)
{
    return session->move->wait.missed < MISSES_MOST ? session->move->due_usec : 0;
}
