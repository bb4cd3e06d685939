/* resolve.h - the answer of cuGetProcAddress in all its forms. Needs no cuInit. */
#pragma once

#include "cuda/driver.h"

CUresult resolve_entry(const char *name, void **address, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status);
