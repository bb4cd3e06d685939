/* fidelity.c - tests on this driver what the simulated GPU claims about the driver (claims/). A claim that does not
 * hold is a fault of the simulation: it is reported, but does not fail the check. */
#include "gpucheck/checks.h"
#include "gpucheck/claims/claims.h"

static struct {
    unsigned claims, failed, cut_short;
} seen;

static void keep(const struct claim_record *record)
{
    if (record->ok)
        detail(record->name, "holds");
    else
        detail(record->name, "claimed %s, found %s", record->claimed, record->observed);
    seen.claims += !record->ends_group;
    seen.failed += !record->ends_group && !record->ok;
    seen.cut_short += record->ends_group;
}

void check_fidelity(const struct check *check)
{
    const char *reason = driver_open(DRIVER_BY_DLSYM);
    if (reason)
        fail_and_end("no driver: %s", reason);
    for (unsigned room = 0; claim_rooms[room]; room++)
        for (const struct group *group = claim_rooms[room]; group->name; group++)
            if (!claims_run(group, keep))
                fail_and_end("no process for the group '%s'", group->name);
    figure("claims", seen.claims, "count");
    figure("do_not_hold", seen.failed, "count");
    figure("groups_cut_short", seen.cut_short, "count");
}
