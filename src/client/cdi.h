/* cdi.h - files that tell container programs of devices (Container Device Interface 0.5): one file a session or slice. */
#pragma once

#include <jansson.h>

#include "base/error.h"

/* A specification of the kind `kind` ("gpuslice.io/session") with one device a name. `parts` (container.h; not consumed) are
 * what each of them gives. The caller drops it. */
json_t *cdi_specification(const char *kind, const char *const *names, unsigned count, const json_t *parts);

/* A session as such: by its ID, and by its name where a CDI device may be called so. */
json_t *cdi_session(const json_t *session, const json_t *parts);

/* Put `specification` into FOLDER/NAME.json as a whole, readable by root or its owner alone: it holds the session's token.
 * The folder is made if need be. */
int cdi_write(const char *folder, const char *name, const json_t *specification, struct error *error);

/* Remove FOLDER/NAME.json; none is no error. */
int cdi_remove(const char *folder, const char *name, struct error *error);
