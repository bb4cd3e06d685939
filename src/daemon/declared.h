/* declared.h - the sessions that sessions.conf declares.
 *
 * They are the file's: the API can neither change nor release them. One that is new in the file is made,
 * waiting in line where there is no room; one that changed is changed; one that is no more in it takes no new
 * process and gives no new memory, and ends with the last process. A mistake in the file changes nothing.
 * What cannot be done for one of them (its name is taken, its GPU absent) is told, and tried again with the
 * next reading. */
#pragma once

#include <jansson.h>

#include "base/error.h"

struct daemon;
struct session;

/* Read the file, and make what is there and what it says the same. */
void declared_apply(struct daemon *daemon);
void declared_stop(struct daemon *daemon);

/* 0, or -EPERM with ERR_DECLARED for a session that the API has no say in. */
int declared_check_free(const struct session *session, struct error *error);

/* For GET /v1/config: the file, and its sessions with their state or problem. */
json_t *declared_file_json(const struct daemon *daemon);
json_t *declared_json(const struct daemon *daemon);
