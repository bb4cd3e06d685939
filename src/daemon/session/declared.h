/* declared.h - the sessions that sessions.conf declares.
 *
 * They belong to the file: the API can neither change nor release them. When the file is read, a session that is new in it
 * is made, and waits in the queue where there is no room; one that changed in it is changed; one that is gone from it takes
 * no new process and no new memory, and ends with its last process. A mistake in the file changes nothing. If a session
 * cannot be made or changed (its name is taken, its GPU absent), the daemon says so, and tries again at the next
 * reading. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "config/config.h"

struct daemon;
struct session;

/* 0; or -EPERM with ERR_DECLARED for a declared session, which the API may not touch. */
int declared_check_free(const struct session *session, struct error *error);

/* The first declared session in the file whose rules match `program`; NULL: there is none. Sets `session` to the
 * session that was made for it; NULL where none could be made. */
const struct config_session *declared_match(const struct daemon *daemon, const struct config_program *program,
                                            struct session **session);
/* Whether the session's rules admit `program`, which may be another user's. */
bool declared_admits(const struct session *session, const struct config_program *program);

/* The last good version of the file. `problem`: why the current one is not in force; NULL: it is in force. */
const struct config_sessions *declared_file(const struct daemon *daemon, const char **problem);
/* The session that was made for the file's entry `at`; NULL: none. `problem`: what cannot be done for it; NULL:
 * nothing. */
const struct session *declared_session(const struct daemon *daemon, size_t at, const char **problem);

/* Make the sessions of the file, and follow the settings. Call when the sessions of the state file have been loaded. */
int declared_start(struct daemon *daemon, struct error *error);
void declared_stop(struct daemon *daemon);
