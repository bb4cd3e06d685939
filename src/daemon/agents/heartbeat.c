#include "daemon/agents/heartbeat.h"

#include <systemd/sd-event.h>

#include "daemon/loop/daemon.h"
#include "daemon/session/policy.h"
#include "daemon/session/session.h"

/* Agents wait for four of these (intercept/agent/silence.c). */
#define BEAT_USEC UINT64_C(500000)

static void beat(struct daemon *daemon)
{
    for (struct session *at = daemon->sessions; at; at = at->next)
        if (at->arbitrated)
            policy_beat(at);
}

static int on_beat(sd_event_source *source, uint64_t usec, void *userdata)
{
    beat(userdata);
    sd_event_source_set_time(source, usec + BEAT_USEC);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int heartbeat_start(struct daemon *daemon, struct error *error)
{
    int result = sd_event_add_time_relative(daemon->loop, &daemon->heartbeat, CLOCK_MONOTONIC, BEAT_USEC, 0,
                                            on_beat, daemon);
    return result < 0 ? error_set_errno(error, -result, "cannot show programs that the daemon goes on") : 0;
}

void heartbeat_stop(struct daemon *daemon)
{
    daemon->heartbeat = sd_event_source_disable_unref(daemon->heartbeat);
}
