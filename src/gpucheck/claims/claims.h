/* claims.h - running the claims, for the programs that ask them: fidelity, and gpu-check. */
#pragma once

#include "gpucheck/claims/claim.h"

struct claim_record {
    char group[24], name[120], claimed[64], observed[64];
    bool ok;
};

/* All groups, a room each; ends with NULL. */
extern const struct group *const claim_rooms[];

/* Run the group in a forked child and hand each of its claims to `keep`; that it came to its end is one of
 * them where it did not. False, with errno, if there is no child. The caller has not used the driver. */
bool claims_run(const struct group *group, void (*keep)(const struct claim_record *record));
