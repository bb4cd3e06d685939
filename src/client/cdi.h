/* cdi.h - files that tell container programs about devices (Container Device Interface 0.5): one file for each
 * session or slice. */
#pragma once

#include <jansson.h>

#include "base/error.h"

/* A specification of the kind `kind` ("gpuslice.io/session") with one device for each name. Each device gives a
 * container `parts` (container.h; not consumed). The caller drops the result. */
json_t *cdi_specification(const char *kind, const char *const *names, unsigned count, const json_t *parts);

/* The specification of one session: a device with its ID, and one with its name where CDI allows that name. */
json_t *cdi_session(const json_t *session, const json_t *parts);

/* Write `specification` to FOLDER/NAME.json, atomically and readable by its owner alone, as it holds the session's
 * token. Creates the folder if it does not exist. */
int cdi_write(const char *folder, const char *name, const json_t *specification, struct error *error);

/* Remove FOLDER/NAME.json. It is not an error if it does not exist. */
int cdi_remove(const char *folder, const char *name, struct error *error);
