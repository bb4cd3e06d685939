#include "daemon/process/release.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <systemd/sd-event.h>

#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/session/policy.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

#define PATIENCE_USEC UINT64_C(10000000)
#define DEATH_USEC UINT64_C(5000000)

/* One release; session->release points to it while it lasts. */
struct release {
    struct session *session;
    release_done done; /* NULL: has been called, or nobody asked */
    void *argument;
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

static int busy(const struct session *session, const char *why, struct error *error)
{
    return error_set(error, EBUSY, "ERR_SESSION_BUSY",
                     "%u process%s attached to session %s, the newest is %d (%s); %s", session->process_count,
                     session->process_count == 1 ? " is" : "es are", session->id,
                     session->processes ? (int)session->processes->pid : 0,
                     session->processes ? session->processes->command : "none", why);
}

static void answer(struct release *release, const struct error *why)
{
    release_done done = release->done;
    release->done = NULL;
    if (done)
        done(release->argument, why);
}

static int on_patience_over(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct release *release = userdata;
    struct session *session = release->session;
    struct error error;
    if (!release->has_killed) {
        release->has_killed = true;
        signal_all(session, SIGKILL);
        sd_event_source_set_time_relative(source, DEATH_USEC);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    }
    busy(session, "they have not died of SIGKILL; the session ends when they do", &error);
    log_warning("%s", error.message);
    answer(release, &error);
    return 0;
}

/* Let no process in from now on; the caller has to signal those that are in. */
static int start_release(struct session *session, release_done done, void *argument, struct error *error)
{
    struct release *release = calloc(1, sizeof(*release));
    int result = release ? sd_event_add_time_relative(session->daemon->loop, &release->timer, CLOCK_MONOTONIC,
                                                      PATIENCE_USEC, 0, on_patience_over, release)
                         : -ENOMEM;
    if (result < 0) {
        free(release);
        return error_set_errno(error, -result, "cannot end the processes of session %s", session->id);
    }
    release->session = session;
    release->done = done;
    release->argument = argument;
    session->release = release;
    policy_close(session);
    return 0;
}

int release_begin(struct session *session, release_done done, void *argument, struct error *error)
{
    if (session->release)
        return busy(session, "they are being ended already", error);
    int result = start_release(session, done, argument, error);
    if (result < 0)
        return result;
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_RELEASED, .session = session},
                   "released, with %u process%s", session->process_count,
                   session->process_count == 1 ? "" : "es");
    signal_all(session, SIGTERM);
    return 0;
}

void release_end_processes(struct session *session, const char *why)
{
    struct error error;
    if (!session->processes || session->release)
        return;
    if (start_release(session, NULL, NULL, &error) < 0) {
        log_error("session %s: %s, but the daemon cannot end its processes: %s", session->id, why,
                  error.message);
        return;
    }
    const char *get = session->process_count == 1 ? " gets" : "es get";
    log_info("session %s '%s': %s, and its %u process%s SIGTERM", session->id, session->name, why,
             session->process_count, get);
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_ENDING, .session = session},
                   "%s: its %u process%s SIGTERM, and after %u s SIGKILL", why, session->process_count, get,
                   (unsigned)(PATIENCE_USEC / 1000000));
    signal_all(session, SIGTERM);
}

/* --- Its time is over ------------------------------------------------------------------------------ */

static void end_expired(struct session *session)
{
    bool is_time_over = session->state == SESSION_EXPIRED && session->expires_at_ms;
    if (is_time_over && session->properties.ttl_action == TTL_ACTION_KILL)
        release_end_processes(session, "its time is over");
}

int release_go_on(struct daemon *daemon, struct error *error)
{
    for (struct session *session = daemon->sessions; session; session = session->next)
        end_expired(session);
    return 0;
}

/* --- The end --------------------------------------------------------------------------------------- */

static void on_change(void *context, const struct change *change)
{
    struct release *release = change->session ? change->session->release : NULL;
    struct error error;
    if (change->kind == CHANGE_SESSION_EXPIRED)
        end_expired(change->session);
    if (!release)
        return;
    if (change->kind == CHANGE_SESSION_ENDED)
        answer(release, NULL);
    if (change->kind != CHANGE_SESSION_GONE)
        return;
    busy(change->session, "the daemon is ending; ask the next daemon again", &error);
    answer(release, &error);
    sd_event_source_disable_unref(release->timer);
    free(release);
    change->session->release = NULL;
}

int release_start(struct daemon *daemon, struct error *error)
{
    daemon->release_observer = calloc(1, sizeof(*daemon->release_observer));
    if (!daemon->release_observer)
        return error_set_errno(error, ENOMEM, "cannot watch for the ends of sessions");
    *daemon->release_observer = (struct observer){.take = on_change};
    change_observe(daemon, daemon->release_observer);
    return 0;
}

void release_stop(struct daemon *daemon)
{
    if (!daemon->release_observer)
        return;
    change_observe_no_more(daemon, daemon->release_observer);
    free(daemon->release_observer);
    daemon->release_observer = NULL;
}
