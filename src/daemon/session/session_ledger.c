#include "daemon/session/session_ledger.h"

#include <errno.h>

#include "base/check.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/session/ledger_room.h"
#include "daemon/session/policy.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_valid.h"
#include "daemon/users/descriptor_bounds.h"

/* How often the daemon tries to make room for a ledger, while other sessions' programs take it again. */
#define ROOM_TRIES 8

void session_ledger_close(struct session *session, bool remove)
{
    if (remove)
        policy_close(session);
    policy_unmake(session);
    ledgers_usage_close(&session->ledger, remove);
    if (session->ledger_counts)
        user_remove(session->daemon, session->owner, USER_LEDGER);
    session->ledger_counts = false;
}

static int open_ledger(struct session *session, bool existing, struct error *error)
{
    struct daemon *daemon = session->daemon;
    session->ledger_counts = true;
    user_add(daemon, session->owner, USER_LEDGER);
    int result = policy_make(session, error);
    if (result == 0)
        result = ledgers_usage_open(&session->ledger, daemon->paths.ledgers_dir, session->id,
                                    existing ? LEDGERS_EPOCH_KEPT : daemon->epoch, existing, error);
    if (result == 0 && !existing)
        result = ledgers_usage_reserve(&session->ledger, session->gpu_count, error);
    /* On a full file system the first touch of the file raises SIGBUS, as if a process had cut it. No process has this
     * file yet, so it is a lack of room. */
    if (!existing && session->ledger.broken) {
        session->ledger.broken = false;
        if (result == 0)
            result = error_set_errno(error, ENOSPC, "no room for the ledger %s", session->ledger.usage_path);
    }
    return result;
}

/* Make a ledger. If there is no room, take back what other sessions' programs added to theirs, and try again. */
static int open_new_ledger(struct session *session, struct error *error)
{
    int result = -ENOSPC;
    for (unsigned tries = 0; result == -ENOSPC && tries < ROOM_TRIES; tries++) {
        if (tries > 0 && !ledger_room_make(session->daemon))
            break;
        result = open_ledger(session, false, error);
        if (result < 0)
            session_ledger_close(session, true);
    }
    return result;
}

void session_ledger_announce_all(struct daemon *daemon)
{
    for (struct session *session = daemon->sessions; session; session = session->next)
        if (session->ledger.usage)
            ledger_epoch_set(session->ledger.usage, daemon->epoch);
}

int session_ledger_restore(struct session *session, struct error *error)
{
    return ledgers_usage_exists(session->daemon->paths.ledgers_dir, session->id)
               ? open_ledger(session, true, error)
               : 0;
}

int session_ledger_open(struct session *session, struct error *error)
{
    GS_CHECK(session_is_valid(session) && session->state != SESSION_QUEUED);
    if (session->ledger.policy)
        return 0;
    int result = user_check(session->daemon, session->owner, USER_LEDGER, error);
    if (result == 0)
        result = ledger_room_check(session, error);
    return result < 0 ? result : open_new_ledger(session, error);
}

void session_ledger_drop_idle(struct session *session)
{
    GS_CHECK(session_is_valid(session));
    if (session->processes || session->ledger.broken)
        return;
    /* A process may have been given the ledger and not have mapped it yet. It sees then that it must attach again. */
    if (session->ledger.usage)
        ledger_epoch_set(session->ledger.usage, session->daemon->epoch);
    session_ledger_close(session, true);
}

bool session_ledger_is_broken(struct session *session)
{
    if (!session->ledger.broken || session->broken_is_logged)
        return session->ledger.broken;
    session->broken_is_logged = true;
    session->daemon->broken_ledgers++;
    policy_close(session);
    log_error("session %s: a process cut or damaged its ledger; it gets no new memory and no new process; "
              "release it",
              session->id);
    change_publish(
        session->daemon, &(struct change){CHANGE_LEDGER_BROKEN, .session = session},
        "a process cut or damaged its ledger; it gets no new memory and no new process; release it");
    return true;
}

void session_ledger_check_file(struct daemon *daemon, const char *name)
{
    struct session *session = session_find_id(daemon, name);
    if (!session || !session->ledger.usage)
        return;
    if (!ledgers_check_length(&session->ledger))
        session_ledger_is_broken(session);
    ledger_room_look(session);
}
