/* release.h - ends a session together with its processes: when somebody releases it, or when its time is over and its
 * ttl-action is kill.
 *
 * From then on no process gets in and no memory is given. All attached processes are sent SIGTERM, and those that are left
 * after 10 s SIGKILL; the session ends with the last of them. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct daemon;
struct session;

/* `why` is NULL when the session has ended; else it says why the session has not: ERR_SESSION_BUSY. */
typedef void (*release_done)(void *argument, const struct error *why);

/* Start releasing the session. `done` is called once: when the session has ended, when processes have
 * withstood SIGKILL for 5 s, or when the daemon stops before that. On failure it is never called. */
int release_begin(struct session *session, release_done done, void *argument, struct error *error);

/* The same because of the session itself, which nobody has released; `why` goes into the log and the event. */
void release_end_processes(struct session *session, const char *why);

/* End the processes of restored sessions that have expired. Call once, when the state file has been read. */
int release_go_on(struct daemon *daemon, struct error *error);

int release_start(struct daemon *daemon, struct error *error);
void release_stop(struct daemon *daemon); /* when no session is left */
