/* cuda_release.h - which CUDA version this process's driver is of. Each process reads FAKECUDA_CUDA_VERSION for itself and
 * at every question, as programs ask a driver for its version before they start it. */
#pragma once

#include "base/error.h"

struct cuda_release {
    int number;          /* cuDriverGetVersion: 1000 * major + 10 * minor */
    unsigned branch;     /* of the driver: 580 */
    unsigned ptx_newest; /* 10 * major + minor of the PTX ISA */
};

/* The release that the environment names; CUDA 13.0's where it names none, or something else. */
const struct cuda_release *cuda_release(void);

/* Whether the environment names a release, and one that knows the card: -EINVAL, with the reason, where not. */
int cuda_release_check(const char *card, int card_since, struct error *error);
