/* release.h - ending a session together with the processes in it.
 *
 * From the moment it is asked for, no process gets in and no memory is given. All attached processes are sent
 * SIGTERM, those that are left after 10 s SIGKILL; the session ends with the last of them. */
#pragma once

#include "base/error.h"

struct http_request;
struct session;

/* Begin, and answer `request` with 204 once the session has ended and the state file says so;
 * ERR_SESSION_BUSY when processes withstand SIGKILL for 5 s. The session may end before this returns. */
void release_begin(struct session *session, struct http_request *request);

/* The last process has gone: end the session. */
void release_finish(struct session *session);

/* The session goes for another reason; answers who waits. */
void release_forget(struct session *session);
