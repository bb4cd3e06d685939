/* cdi.h - files that tell container programs about devices (Container Device Interface 0.5): one file for each
 * session or slice. */
#pragma once

#include <jansson.h>

#include "base/error.h"

/* The files of sessions begin with this, and go on with the session's ID. */
#define CDI_SESSION_FILE "gpuslice-session-"

/* A specification of the kind `kind` ("gpuslice.io/session") with one device for each name. Each device gives a
 * container `parts` (container.h; not consumed). The caller drops the result. */
json_t *cdi_specification(const char *kind, const char *const *names, unsigned count, const json_t *parts);

/* The specification of one session: a device with its ID, and one with its name where CDI allows that name. */
json_t *cdi_session(const json_t *session, const json_t *parts);

/* Write `specification` to FOLDER/NAME.json, atomically and readable by its owner alone, as it holds the session's
 * token. Creates the folder if it does not exist. */
int cdi_write(const char *folder, const char *name, const json_t *specification, struct error *error);

/* Remove files of sessions from the folder that are in the way: those whose session has ended, and those that have a device
 * of a name that `specification` has too, as container programs take no device that is in two files. FOLDER/NAME.json stays.
 * Without a specification (NULL, `name` too): the former alone. What cannot be read or removed stays. */
void cdi_sweep(const char *folder, const char *name, const json_t *specification);

/* Remove FOLDER/NAME.json. It is not an error if it does not exist. */
int cdi_remove(const char *folder, const char *name, struct error *error);
