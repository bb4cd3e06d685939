/* declared.h - the sessions that sessions.conf declares.
 *
 * They are the file's: the API can neither change nor release them. One that is new in the file is made,
 * waiting in line where there is no room; one that changed is changed; one that is no more in it takes no new
 * process and gives no new memory, and ends with the last process. A mistake in the file changes nothing.
 * What cannot be done for one of them (its name is taken, its GPU absent) is told, and tried again with the
 * next reading. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "config/config.h"

struct daemon;
struct session;

/* 0, or -EPERM with ERR_DECLARED for a session that the API has no say in. */
int declared_check_free(const struct session *session, struct error *error);

/* The declared session whose rules are about `program`, the first in the file; NULL: none. `session` is set
 * with it: NULL where it could not be made. */
const struct config_session *declared_match(const struct daemon *daemon, const struct config_program *program,
                                            struct session **session);
/* Whether rules let `program`, perhaps of another user, into `session`. */
bool declared_admits(const struct session *session, const struct config_program *program);

/* The file as it was last good, and why what it says now is not in force; NULL: it is. */
const struct config_sessions *declared_file(const struct daemon *daemon, const char **problem);
/* What its session `at` has become, NULL: none, and what cannot be done for it; NULL: nothing. */
const struct session *declared_session(const struct daemon *daemon, size_t at, const char **problem);

/* Make the sessions of the file, and follow the settings. Those of the state file are there. */
int declared_start(struct daemon *daemon, struct error *error);
void declared_stop(struct daemon *daemon);
