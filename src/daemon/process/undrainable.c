#include "daemon/process/undrainable.h"

#include <stdlib.h>

#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/process/release.h"
#include "daemon/session/session.h"

#define SECOND_USEC UINT64_C(1000000)

static void end_undrainable(struct daemon *daemon)
{
    uint64_t bound = daemon->config.scheduler.stop_undrainable_seconds, now = daemon_now_usec();
    for (struct session *session = daemon->sessions; bound && session; session = session->next)
        if (session->undrained_usec && now - session->undrained_usec >= bound * SECOND_USEC)
            release_end_processes(session,
                                  "its work has not left the GPU for longer than stop-undrainable allows");
}

/* Work that has drained at last is as any other. */
static void on_change(void *context, const struct change *change)
{
    if (change->kind == CHANGE_LEASE_UNDRAINED && !change->session->undrained_usec)
        change->session->undrained_usec = daemon_now_usec();
    else if (change->kind == CHANGE_LEASE_DRAINED)
        change->session->undrained_usec = 0;
    else if (change->kind == CHANGE_GPUS_SAMPLED)
        end_undrainable(context);
}

int undrainable_start(struct daemon *daemon, struct error *error)
{
    daemon->undrainable = calloc(1, sizeof(*daemon->undrainable));
    if (!daemon->undrainable)
        return error_set_errno(error, ENOMEM, "cannot watch for work that does not drain");
    *daemon->undrainable = (struct observer){.take = on_change, .context = daemon};
    change_observe(daemon, daemon->undrainable);
    return 0;
}

void undrainable_stop(struct daemon *daemon)
{
    if (!daemon->undrainable)
        return;
    change_observe_no_more(daemon, daemon->undrainable);
    free(daemon->undrainable);
    daemon->undrainable = NULL;
}
