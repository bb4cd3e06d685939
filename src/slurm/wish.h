/* wish.h - what `--gpuslice=memory=4GiB,compute=25%,priority=high,gpu=0` asks for. */
#pragma once

#include <jansson.h>

#include "base/error.h"

/* The body of a POST for such an option, with no name and no owner yet; the caller drops it. `memory` must be there. */
int wish_parse(const char *text, json_t **body, struct error *error);
