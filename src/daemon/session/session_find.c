#include "daemon/session/session_find.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/peer.h"
#include "daemon/session/session.h"

/* A name that is the beginning of an ID, by so many letters at least, was hardly given by chance. */
#define ID_BEGINNING 4

bool session_is_visible(const struct session *session, uid_t uid)
{
    return uid == 0 || (uid == session->owner && uid != UID_OVERFLOW);
}

/* FNV-1a. */
static unsigned chain_of(const char *id)
{
    uint32_t hash = 2166136261u;
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return hash % DAEMON_ID_CHAINS;
}

struct session *session_find_id(const struct daemon *daemon, const char *id)
{
    struct session *session;
    LIST_FOREACH (session, &daemon->sessions_by_id[chain_of(id)], chained) {
        if (strcmp(session->id, id) == 0)
            return session;
    }
    return NULL;
}

struct session *session_behind(const struct daemon *daemon, const char *id, uint64_t number)
{
    struct session *session = number ? session_find_id(daemon, id) : NULL;
    if (session && session->number == number)
        return session->next;
    session = daemon->sessions;
    while (session && session->number <= number)
        session = session->next;
    return session;
}

/* Find by name: the caller's own session first; root may name another user's if only one has that name. */
static int find_by_name(const struct daemon *daemon, uid_t uid, const char *name, struct session **found,
                        struct error *error)
{
    unsigned count = 0;
    for (struct session *session = daemon->sessions; session; session = session->next) {
        if (!session_is_visible(session, uid) || strcmp(session->name, name) != 0)
            continue;
        *found = session;
        if (session->owner == uid)
            return 0;
        count++;
    }
    if (count > 1)
        return error_set(error, EBUSY, "ERR_AMBIGUOUS",
                         "%u sessions of different owners have the name '%s'; give an ID", count, name);
    return count ? 0 : -ENOENT;
}

int session_find(const struct daemon *daemon, uid_t uid, const char *text, struct session **session_out,
                 struct error *error)
{
    struct session *found = session_find_id(daemon, text);
    if (found && !session_is_visible(found, uid))
        return error_set(error, EACCES, "ERR_FORBIDDEN", "session %s belongs to another user", text);
    int result = found ? 0 : find_by_name(daemon, uid, text, &found, error);
    if (result == -ENOENT) {
        unsigned count = 0;
        for (struct session *session = daemon->sessions; session && *text; session = session->next) {
            if (!session_is_visible(session, uid) || strncmp(session->id, text, strlen(text)) != 0)
                continue;
            found = session;
            count++;
        }
        if (count > 1)
            return error_set(error, EBUSY, "ERR_AMBIGUOUS",
                             "the IDs of %u sessions begin with '%s'; give more of it", count, text);
        result = count ? 0 : -ENOENT;
    }
    if (result == -ENOENT)
        return error_set(error, ENOENT, "ERR_SESSION_NOT_FOUND",
                         "no session has the ID or name '%s'; GET /v1/sessions lists them", text);
    if (result == 0)
        *session_out = found;
    return result;
}

struct session *session_find_key(const struct daemon *daemon, uid_t uid, const char *key)
{
    for (struct session *session = daemon->sessions; session; session = session->next)
        if (session->owner == uid && strcmp(session->key, key) == 0)
            return session;
    return NULL;
}

int session_check_name(const struct daemon *daemon, uid_t owner, bool is_managed, const char *name,
                       const struct session *self, struct error *error)
{
    if (!identity_may_be_given(name))
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "'%.80s' is not a session's name; expected 1 to 63 of A-Z a-z 0-9 . _ -, but not a "
                         "- at the start",
                         name);
    for (const struct session *session = daemon->sessions; session; session = session->next)
        if (session != self && session_is_visible(session, owner) && strlen(name) >= ID_BEGINNING &&
            strncmp(session->id, name, strlen(name)) == 0)
            return error_set(
                error, EEXIST, "ERR_NAME_TAKEN",
                "the ID of session %s begins with '%s'; choose another name, as both find a session",
                session->id, name);
    for (const struct session *session = daemon->sessions; session; session = session->next)
        if (session != self && session->owner == owner && session->is_managed == is_managed &&
            strcmp(session->name, name) == 0)
            return error_set(error, EEXIST, "ERR_NAME_TAKEN",
                             "session %s has the name '%s' already; choose another name or release it",
                             session->id, name);
    return 0;
}

/* The least number that no other session has; 0 with more sessions than numbers. */
static unsigned take_number(struct daemon *daemon)
{
    for (unsigned word = 0; word < DAEMON_UNNAMED_WORDS; word++) {
        if (daemon->unnamed[word] == UINT64_MAX)
            continue;
        unsigned bit = (unsigned)__builtin_ctzll(~daemon->unnamed[word]);
        daemon->unnamed[word] |= UINT64_C(1) << bit;
        return word * 64 + bit + 1;
    }
    return 0;
}

static void return_number(struct daemon *daemon, unsigned number)
{
    if (number)
        daemon->unnamed[(number - 1) / 64] &= ~(UINT64_C(1) << (number - 1) % 64);
}

void session_link(struct daemon *daemon, struct session *session)
{
    struct session **last = daemon->last_session ? &daemon->last_session->next : &daemon->sessions;
    session->next = NULL;
    session->previous = daemon->last_session;
    *last = session;
    daemon->last_session = session;
    LIST_INSERT_HEAD(&daemon->sessions_by_id[chain_of(session->id)], session, chained);
    session->daemon = daemon;
    session->number = ++daemon->sessions_seen;
    session->unnamed = strcmp(session->name, session->id) == 0 ? take_number(daemon) : 0;
    daemon->session_count++;
    GS_CHECK(session_find_id(daemon, session->id) == session);
}

void session_unlink(struct session *session)
{
    struct daemon *daemon = session->daemon;
    GS_CHECK(daemon->session_count > 0 && !session->has_ended);
    *(session->previous ? &session->previous->next : &daemon->sessions) = session->next;
    *(session->next ? &session->next->previous : &daemon->last_session) = session->previous;
    LIST_REMOVE(session, chained);
    return_number(daemon, session->unnamed);
    daemon->session_count--;
    daemon->busy_usec = daemon_now_usec();
}
