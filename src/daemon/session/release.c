#include "daemon/session/release.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <systemd/sd-event.h>

#include "daemon/http/http.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/process/reaper.h"
#include "daemon/session/session.h"
#include "daemon/store/store.h"

#define PATIENCE_USEC UINT64_C(10000000)
#define DEATH_USEC UINT64_C(5000000)

struct release {
    struct session *session;
    struct http_request *request;
    sd_event_source *timer;
    bool has_killed;
};

static void signal_all(const struct session *session, int number)
{
    for (const struct process *process = session->processes; process; process = process->next)
        if (pidfd_send_signal(process->pidfd, number, NULL, 0) < 0 && errno != ESRCH)
            log_warning("session %s: cannot end process %d (%s): %s", session->id, (int)process->pid,
                        process->command, strerror(errno));
}

static void refuse(struct http_request *request, const struct session *session, const char *why)
{
    struct error error;
    error_set(&error, EBUSY, "ERR_SESSION_BUSY",
              "%u process%s attached to session %s, the newest is %d (%s); %s", session->process_count,
              session->process_count == 1 ? " is" : "es are", session->id,
              session->processes ? (int)session->processes->pid : 0,
              session->processes ? session->processes->command : "none", why);
    http_reply_error(request, &error);
}

static int on_patience_over(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct release *release = userdata;
    struct session *session = release->session;
    if (!release->has_killed) {
        release->has_killed = true;
        signal_all(session, SIGKILL);
        sd_event_source_set_time_relative(source, DEATH_USEC);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    }
    refuse(release->request, session, "they have not died of SIGKILL; the session ends when they do");
    release->request = NULL;
    return 0;
}

void release_begin(struct session *session, struct http_request *request)
{
    if (session->release) {
        refuse(request, session, "they are being ended already");
        return;
    }
    struct release *release = calloc(1, sizeof(*release));
    int result = release ? sd_event_add_time_relative(session->daemon->loop, &release->timer, CLOCK_MONOTONIC,
                                                      PATIENCE_USEC, 0, on_patience_over, release)
                         : -ENOMEM;
    if (result < 0) {
        struct error error;
        free(release);
        error_set_errno(&error, -result, "cannot end the processes of session %s", session->id);
        http_reply_error(request, &error);
        return;
    }
    release->session = session;
    release->request = request;
    session->release = release;
    strcpy(request->session_id, session->id);
    session_close_policy(session);
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_RELEASED, .session = session},
                   "released by uid %u, with %u processes", (unsigned)request->peer.uid,
                   session->process_count);
    signal_all(session, SIGTERM);
}

static void on_deleted(void *argument, int result, const char *message)
{
    struct http_request *request = argument;
    struct error error;
    if (result == 0) {
        http_reply_json(request, 204, NULL);
        return;
    }
    error_set(&error, EIO, "ERR_INTERNAL",
              "the session is released, but is still in the state file and returns with the next daemon: %s",
              message);
    http_reply_error(request, &error);
}

void release_finish(struct session *session)
{
    struct http_request *request = session->release->request;
    session->release->request = NULL;
    log_info("session %s '%s' released, its processes were ended", session->id, session->name);
    store_delete_session(session->daemon, session->id, request ? on_deleted : NULL, request);
    session_end(session, "released, and its processes were ended");
}

void release_forget(struct session *session)
{
    struct release *release = session->release;
    if (!release)
        return;
    if (release->request)
        refuse(release->request, session, "the daemon stops; ask the next one again");
    sd_event_source_disable_unref(release->timer);
    free(release);
    session->release = NULL;
}
