/* wish.h - parses `--gpuslice=memory=4GiB,compute=25%,priority=high,gpu=0`. */
#pragma once

#include <jansson.h>

#include "base/error.h"

/* The body of a POST for such an option, without name and owner; the caller drops it. -EINVAL or -ERANGE, also when
 * `memory` is missing. */
int wish_parse(const char *text, json_t **body, struct error *error);
