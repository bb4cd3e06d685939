/* session_find.h - finds the daemon's sessions: by age, by ID, and by what users call them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct daemon;
struct session;

struct session *session_find_id(const struct daemon *daemon, const char *id);

/* The session that `uid` calls `text` (ID, name, unique prefix of an ID). ERR_SESSION_NOT_FOUND, ERR_FORBIDDEN,
 * ERR_AMBIGUOUS. */
int session_find(const struct daemon *daemon, uid_t uid, const char *text, struct session **session,
                 struct error *error);
/* The session that a request of `uid` with this key has made; NULL: none has, or the session has ended. */
struct session *session_find_key(const struct daemon *daemon, uid_t uid, const char *key);
bool session_is_visible(const struct session *session, uid_t uid);

/* Whether `owner` may call a session `name`: it must have a name's form, be unique among the owner's sessions
 * (`self` may keep its own), and not be the beginning of an ID that the owner can see. Those that are managed have names of their own, which no owner can
 * take. ERR_BAD_REQUEST, ERR_NAME_TAKEN. */
int session_check_name(const struct daemon *daemon, uid_t owner, bool is_managed, const char *name,
                       const struct session *self, struct error *error);

/* Add a session to the lists, as the newest; and take it out of them. */
void session_link(struct daemon *daemon, struct session *session);
void session_unlink(struct session *session);

/* The first session after the one that had this number and ID, which may have gone; number 0: the first of all. */
struct session *session_behind(const struct daemon *daemon, const char *id, uint64_t number);
