/* session_pod.h - the session of a pod, by the names that a cluster has for it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

#define SESSION_POD_ID_TEXT 32

/* Whether `text` is NAMESPACE/POD or NAMESPACE/POD/CONTAINER, each of [A-Za-z0-9._-] and without a dot or dash
 * at its start, rather than a session's ID or name. */
bool session_pod_is_meant(const char *text);

/* Whether a session, or an event of one, is of that pod. */
bool session_pod_is_of(const json_t *object, const char *text);

/* The ID of the session in the list that is for that pod. Fails where none is, and where sessions of several containers are. */
int session_pod_find(const json_t *sessions, const char *text, char id[static SESSION_POD_ID_TEXT],
                     struct error *error);
