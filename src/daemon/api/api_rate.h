/* api_rate.h - how many requests per second one user may make (requests-per-second in gpuslice.conf). */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct daemon;

/* Count a request of `uid`. -EBUSY with ERR_TOO_MANY when the user has made more in the last second than are allowed. */
int api_rate_take(struct daemon *daemon, uid_t uid, struct error *error);

void api_rate_free(struct daemon *daemon);
