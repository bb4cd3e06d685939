/* fidelity.c - tests on this driver what the simulated GPU claims about the driver (claims/). A claim that does not
 * hold is a fault of the simulation: it is reported, but does not fail the check. */
#include "gpucheck/checks.h"
#include "gpucheck/claims/claims.h"

static struct {
    unsigned all, failed;
} seen;

static void keep(const struct claim_record *record)
{
    seen.all++;
    if (record->ok) {
        detail(record->name, "holds");
        return;
    }
    detail(record->name, "claimed %s, found %s", record->claimed, record->observed);
    seen.failed++;
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
    figure("claims", seen.all, "count");
    figure("do_not_hold", seen.failed, "count");
}
