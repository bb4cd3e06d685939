#include "daemon/process/enter.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/peer.h"
#include "daemon/process/reaper.h"
#include "daemon/session/declared.h"
#include "daemon/session/own_socket.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_ledger.h"
#include "daemon/session/session_life.h"
#include "daemon/users/descriptor_bounds.h"

/* What a decision needs, gathered step by step. */
struct entry {
    struct daemon *daemon;
    const struct enter_request *request;
    struct refusal *refusal;
    const char *session_id;
    bool is_by_rule; /* the program named no session, and a rule names this one */
    struct session *session;
    struct peer peer;
    int pidfd;
    uint64_t start_ticks;
};

__attribute__((format(printf, 3, 4))) static int refuse(struct entry *entry, enum wire_refusal reason,
                                                        const char *format, ...)
{
    va_list arguments;
    entry->refusal->reason = reason;
    va_start(arguments, format);
    vsnprintf(entry->refusal->message, sizeof(entry->refusal->message), format, arguments);
    va_end(arguments);
    return -EACCES;
}

/* A program that named no session takes NO_SESSION to mean that no rule is about it. So where a rule named the session,
 * the reason must be another. */
static enum wire_refusal no_session(const struct entry *entry)
{
    return entry->is_by_rule ? WIRE_REFUSED_RULE : WIRE_REFUSED_NO_SESSION;
}

/* --- Which process, which session ------------------------------------------------------------------ */

static int identify(struct entry *entry)
{
    int result = peer_identity(entry->request->socket, &entry->peer, &entry->pidfd, &entry->start_ticks);
    if (result < 0)
        return refuse(entry, WIRE_REFUSED_INTERNAL,
                      "gpusliced cannot see the process (%s); is it in another pid namespace?",
                      strerror(-result));
    return 0;
}

static int agree_on_version(struct entry *entry, uint16_t *version)
{
    const struct enter_request *asked = entry->request;
    bool is_older = asked->version_newest < WIRE_VERSION_OLDEST || asked->layout_newest < LEDGER_LAYOUT;
    bool is_newer = asked->version_oldest > WIRE_VERSION || asked->layout_oldest > LEDGER_LAYOUT;
    *version = wire_common_version(asked->version_oldest, asked->version_newest);
    if (is_older)
        return refuse(entry, WIRE_REFUSED_VERSION,
                      "the program runs with a libgpuslice.so that is too old for gpusliced %s; start the "
                      "program again with the library of that release",
                      GPUSLICE_VERSION);
    if (is_newer || !*version)
        return refuse(entry, WIRE_REFUSED_VERSION,
                      "the program runs with a libgpuslice.so that is newer than gpusliced %s and does not "
                      "speak with it; restart gpusliced from the library's release",
                      GPUSLICE_VERSION);
    return 0;
}

/* Find the session that the rules name for a process that named none. */
static int find_by_rule(struct entry *entry)
{
    struct config_program program;
    struct session *session;
    peer_program(entry->request->socket, entry->peer.pid, &program);
    const struct config_session *rule = declared_match(entry->daemon, &program, &session);
    if (!rule) {
        entry->refusal->is_quiet = true;
        return refuse(entry, WIRE_REFUSED_NO_SESSION, "no rule names a session for this process");
    }
    if (!session)
        return refuse(entry, WIRE_REFUSED_RULE,
                      "sessions.conf puts this process into session '%s', which the daemon could not make; "
                      "'gpuslice config' says why",
                      rule->name);
    entry->session_id = session->id;
    entry->is_by_rule = true;
    return 0;
}

/* The process may have named no session when it first connected, and got this one by a rule. */
static bool is_admitted_by_rule(const struct entry *entry, const struct session *session)
{
    struct config_program program;
    if (!session->is_declared)
        return false;
    peer_program(entry->request->socket, entry->peer.pid, &program);
    return declared_admits(session, &program);
}

/* A process is admitted by its user, its token, or a rule. The users of a container are not the machine's: there the
 * token counts. */
static int check_rights(struct entry *entry, const struct session *session)
{
    const char *token = entry->request->token;
    bool has_token = token[0], is_owner = session_is_visible(session, entry->peer.uid);
    bool is_in_container = entry->request->own_session[0];
    bool is_admitted =
        entry->is_by_rule || ((!is_owner || !has_token) && is_admitted_by_rule(entry, session));
    if (!is_owner && !is_admitted && !is_in_container)
        return refuse(entry, WIRE_REFUSED_NOT_OWNER, "session %s belongs to another user", session->id);
    bool needs_token = entry->daemon->config.daemon.ipc_token_required || (is_in_container && !is_owner);
    if ((has_token || (needs_token && !is_admitted)) && !identity_token_matches(session->token, token))
        return refuse(entry, WIRE_REFUSED_TOKEN,
                      "GPUSLICE_IPC_TOKEN is not the token of session %s; start the program with 'gpuslice "
                      "run --session'",
                      session->id);
    return 0;
}

/* A process that is attached may come back whatever the state: under a new daemon it needs the new policy region, which
 * says what has changed. */
static int check_state(struct entry *entry, struct session *session)
{
    bool is_attached = process_find(session, entry->peer.pid, entry->start_ticks, entry->request->slot,
                                    entry->request->generation) != NULL;
    if (session->release && !is_attached)
        return refuse(entry, no_session(entry), "session %s is being released; create another", session->id);
    if (session->state == SESSION_QUEUED && !is_attached)
        return refuse(entry, no_session(entry), "session %s waits in the queue; try again when it is active",
                      session->id);
    if (session->state == SESSION_EXPIRED && !is_attached) {
        char why[96] = "was removed from sessions.conf";
        if (!session_is_removed(session))
            snprintf(why, sizeof(why), "has expired (--ttl %llus): its programs get no more GPU memory",
                     (unsigned long long)session->properties.ttl_seconds);
        return refuse(entry, no_session(entry), "session %s %s; create another", session->name, why);
    }
    if (session_ledger_is_broken(session))
        return refuse(entry, WIRE_REFUSED_BROKEN,
                      "a process damaged the ledger of session %s; release it and create another",
                      session->id);
    return 0;
}

static int find_session(struct entry *entry)
{
    struct session *session = session_find_id(entry->daemon, entry->session_id);
    if (!session)
        return refuse(entry, no_session(entry), "there is no session '%s'; it was released or has ended",
                      identity_is_id(entry->session_id) ? entry->session_id : "?");
    int result = check_rights(entry, session);
    if (result == 0)
        result = check_state(entry, session);
    entry->session = session;
    return result;
}

/* --- Which slot ------------------------------------------------------------------------------------ */

/* The slot that the program held under an earlier connection or daemon, if it still holds it. */
static struct process *find_held(const struct entry *entry)
{
    return process_find(entry->session, entry->peer.pid, entry->start_ticks, entry->request->slot,
                        entry->request->generation);
}

/* Free the slots that this very process had before it exec'd. If it still maps the ledger, it has not exec'd, and runs
 * a second copy of our library. */
static void free_execed_slots(const struct entry *entry)
{
    struct process *process = process_find_other(entry->session, entry->peer.pid, entry->start_ticks, NULL);
    while (process) {
        struct process *next =
            process_find_other(entry->session, entry->peer.pid, entry->start_ticks, process);
        if (!reaper_remove_if_execed(process))
            return;
        process = next;
    }
}

/* Claim a free slot of the ledger; refuse where all are taken. */
static int claim_slot(struct entry *entry, int *slot, uint64_t *generation)
{
    struct session *session = entry->session;
    struct ledger_owner owner = {.pid = entry->peer.pid, .start_ticks = entry->start_ticks};
    *slot = ledger_slot_claim(session->ledger.usage, owner, generation);
    for (const struct process *at = session->processes; at && *slot >= 0; at = at->next)
        if (at->slot == (uint32_t)*slot)
            session->ledger.broken = true; /* a process wrote over the slots' owners */
    if (session_ledger_is_broken(session))
        return refuse(entry, WIRE_REFUSED_BROKEN,
                      "a process damaged the ledger of session %s; release it and create another",
                      session->id);
    if (*slot < 0)
        return refuse(entry, WIRE_REFUSED_FULL,
                      "all %u places of session %s are taken; wait for a process to end, or create another "
                      "session",
                      LEDGER_SLOTS, session->id);
    return 0;
}

static int take_slot(struct entry *entry, struct process **process)
{
    struct session *session = entry->session;
    struct error error;
    uint64_t generation;
    int slot;
    free_execed_slots(entry);
    if (session_ledger_open(session, &error) < 0)
        return refuse(entry, WIRE_REFUSED_INTERNAL, "%s", error.message);
    int result = claim_slot(entry, &slot, &generation);
    if (result < 0)
        return result;
    if (entry->request->own_session[0])
        entry->peer.uid = session->owner; /* who is charged for it */
    result = user_check(session->daemon, entry->peer.uid, USER_PROCESS, &error);
    if (result == 0)
        result = reaper_add(session, &entry->peer, entry->start_ticks, steal_fd(&entry->pidfd),
                            (uint32_t)slot, generation, process, &error);
    if (result < 0) {
        ledger_slot_clear(session->ledger.usage, (uint32_t)slot, NULL);
        return refuse(entry, WIRE_REFUSED_INTERNAL, "%s", error.message);
    }
    change_publish(session->daemon,
                   &(struct change){CHANGE_PROCESS_ATTACHED, .session = session, .process = *process,
                                    .pid = (*process)->pid, .command = (*process)->command},
                   "process %d attached", (int)(*process)->pid);
    return 0;
}

/* --- The verdicts ---------------------------------------------------------------------------------- */

static struct entry start_entry(struct daemon *daemon, const struct enter_request *request,
                                struct refusal *refusal)
{
    *refusal = (struct refusal){.is_quiet = false};
    return (struct entry){.daemon = daemon,
                          .request = request,
                          .refusal = refusal,
                          .session_id = request->session_id,
                          .pidfd = -1};
}

/* Choose the session: by the socket, else by the message, else by a rule. */
static int name_session(struct entry *entry)
{
    const char *own = entry->request->own_session;
    if (own[0] && *entry->session_id && strcmp(entry->session_id, own) != 0 &&
        strcmp(entry->session_id, OWN_SOCKETS_SESSION) != 0)
        return refuse(entry, WIRE_REFUSED_NOT_OWNER,
                      "this socket serves session %s alone; set GPUSLICE_SESSION to that session", own);
    if (own[0])
        entry->session_id = own;
    return *entry->session_id ? 0 : find_by_rule(entry);
}

static int enter(struct entry *entry, uint16_t *version, struct process **process)
{
    int result = identify(entry);
    if (result == 0)
        result = name_session(entry);
    if (result == 0)
        result = agree_on_version(entry, version);
    if (result == 0)
        result = find_session(entry);
    if (result < 0)
        return result;
    *process = find_held(entry);
    return *process ? 0 : take_slot(entry, process);
}

int enter_session(struct daemon *daemon, const struct enter_request *request, uint16_t *version,
                  struct process **process, struct refusal *refusal)
{
    struct entry entry = start_entry(daemon, request, refusal);
    int result = enter(&entry, version, process);
    if (entry.pidfd >= 0)
        close(entry.pidfd);
    return result;
}

int enter_as_agent(struct daemon *daemon, const struct enter_request *request, uint16_t *version,
                   struct process **process, struct refusal *refusal)
{
    struct entry entry = start_entry(daemon, request, refusal);
    int result = identify(&entry);
    if (result == 0)
        result = name_session(&entry);
    if (result == 0)
        result = agree_on_version(&entry, version);
    if (result == 0)
        result = find_session(&entry);
    if (result == 0 && !(*process = find_held(&entry)))
        result = refuse(&entry, WIRE_REFUSED_NO_SESSION, "the process has no such slot in session %s",
                        entry.session->id);
    if (entry.pidfd >= 0)
        close(entry.pidfd);
    return result;
}
