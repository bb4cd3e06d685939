/* claims.h - run the claims, for the programs that test them: fidelity, and gpu-check. */
#pragma once

#include "gpucheck/claims/claim.h"

struct claim_record {
    char group[24], name[120], claimed[64], observed[64];
    bool ok;
    bool ends_group; /* not a claim: what kept the group from testing the claims that follow */
};

/* The groups of each source file; ends with NULL. */
extern const struct group *const claim_rooms[];

/* Run the group in a forked child and hand each of its claims to `keep`. If a call that the group needs
 * fails, or the child does not end well, that is one more record, which is not ok. Returns false, with errno, if there is no child. The caller must not have used the driver. */
bool claims_run(const struct group *group, void (*keep)(const struct claim_record *record));
