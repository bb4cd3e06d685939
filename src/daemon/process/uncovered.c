#include "daemon/process/uncovered.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"
#include "base/units.h"
#include "daemon/gpu/card.h"
#include "daemon/gpu/nvml.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/peer.h"
#include "daemon/process/device_held.h"
#include "daemon/process/terminal.h"
#include "daemon/session/process.h"

/* A program that is about to attach holds a context for a moment, so it is looked at again before it is reported. After the
 * notice it has as long as the configuration says, and after SIGTERM as long as processes of a session that is released. */
#define SETTLE_USEC UINT64_C(3000000)
#define PATIENCE_USEC UINT64_C(10000000)
#define COMMAND_BYTES 16

/* A program outside of every session. */
struct outsider {
    LIST_ENTRY(outsider) next;
    pid_t pid;
    uint64_t start_ticks;
    uid_t uid;
    char command[COMMAND_BYTES];
    uint64_t bytes;          /* on all healthy GPUs, in the sample at hand */
    uint64_t seen_usec;      /* when it was first seen */
    uint64_t warned_usec;    /* when the notice was given */
    uint64_t term_usec;      /* when SIGTERM was sent; 0: not yet */
    enum config_stop warned; /* what the notice said; CONFIG_STOP_NO: there was none yet */
    bool is_told, is_killed;
};

struct uncovered {
    struct daemon *daemon;
    struct observer observer;
    LIST_HEAD(, outsider) outsiders;
};

/* --- Programs outside of sessions ------------------------------------------------------------------ */

static bool lives(const struct outsider *outsider)
{
    uint64_t start_ticks;
    return process_start_time(outsider->pid, &start_ticks) == 0 && start_ticks == outsider->start_ticks;
}

static struct outsider *find_outsider(struct uncovered *uncovered, pid_t pid)
{
    uint64_t start_ticks;
    char path[64];
    struct stat status;
    struct outsider *at;
    if (process_start_time(pid, &start_ticks) < 0)
        return NULL;
    LIST_FOREACH (at, &uncovered->outsiders, next) {
        if (at->pid == pid && at->start_ticks == start_ticks)
            return at;
    }
    /* NVML may have listed it for a process that had the pid before. */
    if (!device_is_held(pid, uncovered->daemon->options.simulated))
        return NULL;
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    struct outsider *outsider = stat(path, &status) == 0 ? calloc(1, sizeof(*outsider)) : NULL;
    if (!outsider)
        return NULL;
    *outsider = (struct outsider){
        .pid = pid, .start_ticks = start_ticks, .uid = status.st_uid, .seen_usec = daemon_now_usec()};
    process_command(pid, outsider->command, sizeof(outsider->command));
    LIST_INSERT_HEAD(&uncovered->outsiders, outsider, next);
    return outsider;
}

/* --- Reporting and ending one ---------------------------------------------------------------------- */

static struct change change_about(enum change_kind kind, const struct outsider *outsider)
{
    return (struct change){.kind = kind,
                           .uid = outsider->uid,
                           .pid = outsider->pid,
                           .command = outsider->command,
                           .bytes = outsider->bytes};
}

static void report_outsider(struct uncovered *uncovered, struct outsider *outsider)
{
    char held[UNITS_BYTES_TEXT];
    const struct change change = change_about(CHANGE_PROCESS_UNCOVERED, outsider);
    outsider->is_told = true;
    change_publish(uncovered->daemon, &change,
                   "process %d (%s) of uid %u holds %s of GPU memory outside of every session",
                   (int)outsider->pid, outsider->command, (unsigned)outsider->uid,
                   units_format_bytes(outsider->bytes, held));
}

/* Tell the program's user what `stop` says will happen, or would. */
static void warn(struct uncovered *uncovered, struct outsider *outsider, enum config_stop stop, uint64_t now)
{
    char held[UNITS_BYTES_TEXT], text[320];
    const struct change change = change_about(CHANGE_PROCESS_WARNED, outsider);
    uint64_t grace = uncovered->daemon->config.daemon.stop_uncovered_grace_seconds;
    outsider->warned = stop;
    outsider->warned_usec = now;
    snprintf(text, sizeof(text),
             "%s (pid %d) holds %s of GPU memory outside of every session and %s ended in %" PRIu64
             " s%s; start it with 'gpuslice run'",
             outsider->command, (int)outsider->pid, units_format_bytes(outsider->bytes, held),
             stop == CONFIG_STOP_YES ? "will be" : "would be", grace,
             stop == CONFIG_STOP_YES ? "" : " if stop-uncovered were yes, not report");
    bool is_shown = lives(outsider) && terminal_tell(outsider->pid, text);
    change_publish(uncovered->daemon, &change, "%s (%s)", text,
                   is_shown ? "its terminal shows this too" : "it has no terminal that could show this");
}

/* The pid may belong to another process by now: signal only the one that was seen, and only while it has the device
 * open. Its terminal comes first, as the process may be gone right after the signal. */
static void send(struct uncovered *uncovered, const struct outsider *outsider, int number)
{
    const char *name = number == SIGTERM ? "SIGTERM" : "SIGKILL";
    const struct change change = change_about(CHANGE_PROCESS_STOPPED, outsider);
    char held[UNITS_BYTES_TEXT], text[256];
    cleanup_close int pidfd = peer_open(outsider->pid, outsider->start_ticks);
    if (pidfd >= 0 && !device_is_held(outsider->pid, uncovered->daemon->options.simulated))
        return;
    snprintf(text, sizeof(text), "%s (pid %d) is sent %s: it holds %s of GPU memory outside of every session",
             outsider->command, (int)outsider->pid, name, units_format_bytes(outsider->bytes, held));
    if (pidfd >= 0)
        terminal_tell(outsider->pid, text);
    if (pidfd < 0 || pidfd_send_signal(pidfd, number, NULL, 0) < 0) {
        if (pidfd != -ESRCH && errno != ESRCH)
            log_warning("process %d (%s), which is outside of every session, cannot be ended: %s",
                        (int)outsider->pid, outsider->command, strerror(pidfd < 0 ? -pidfd : errno));
        return;
    }
    change_publish(uncovered->daemon, &change, "%s", text);
}

static void handle_outsider(struct uncovered *uncovered, struct outsider *outsider)
{
    const struct config_daemon *config = &uncovered->daemon->config.daemon;
    bool is_spared = outsider->uid == 0 && !config->stop_uncovered_root;
    enum config_stop stop = is_spared ? CONFIG_STOP_NO : config->stop_uncovered;
    uint64_t now = daemon_now_usec(), grace_usec = config->stop_uncovered_grace_seconds * UINT64_C(1000000);
    if (now - outsider->seen_usec < SETTLE_USEC)
        return;
    if (!outsider->is_told)
        report_outsider(uncovered, outsider);
    if (stop != CONFIG_STOP_NO && outsider->warned != stop)
        warn(uncovered, outsider, stop, now);
    if (stop != CONFIG_STOP_YES || now - outsider->warned_usec < grace_usec)
        return;
    if (!outsider->term_usec) {
        outsider->term_usec = now;
        send(uncovered, outsider, SIGTERM);
    } else if (!outsider->is_killed && now - outsider->term_usec >= PATIENCE_USEC) {
        outsider->is_killed = true;
        send(uncovered, outsider, SIGKILL);
    }
}

/* --- In the loop ----------------------------------------------------------------------------------- */

static void look_for_outsiders(struct uncovered *uncovered)
{
    const struct daemon *daemon = uncovered->daemon;
    struct outsider *at;
    bool are_all_known = true;
    LIST_FOREACH (at, &uncovered->outsiders, next) {
        at->bytes = 0;
    }
    for (unsigned gpu = 0; gpu < daemon->gpu_count; gpu++) {
        const struct gpu *card = &daemon->gpus[gpu];
        if (!card->healthy) { /* its list is old: a pid in it may be another process's by now */
            are_all_known = false;
            continue;
        }
        for (unsigned i = 0; i < card->process_count; i++) {
            const struct nvml_process *shown = &card->processes[i];
            bool holds = shown->is_known && shown->used_bytes > 0;
            struct outsider *outsider = holds && !process_session_of(daemon, shown->pid)
                                            ? find_outsider(uncovered, shown->pid)
                                            : NULL;
            if (outsider)
                outsider->bytes += shown->used_bytes;
        }
    }
    for (struct outsider *next, *one = LIST_FIRST(&uncovered->outsiders); one; one = next) {
        next = LIST_NEXT(one, next);
        if (one->bytes) {
            handle_outsider(uncovered, one);
        } else if (are_all_known || !lives(one)) {
            /* It has gone, has freed its memory, or is in a session now. */
            LIST_REMOVE(one, next);
            free(one);
        }
    }
}

static void on_change(void *context, const struct change *change)
{
    if (change->kind == CHANGE_GPUS_SAMPLED)
        look_for_outsiders(context);
}

int uncovered_start(struct daemon *daemon, struct error *error)
{
    if (!daemon->options.system)
        return 0;
    struct uncovered *uncovered = calloc(1, sizeof(*uncovered));
    if (!uncovered)
        return error_set_errno(error, ENOMEM, "cannot look for programs outside of sessions");
    uncovered->daemon = daemon;
    LIST_INIT(&uncovered->outsiders);
    uncovered->observer = (struct observer){.take = on_change, .context = uncovered};
    change_observe(daemon, &uncovered->observer);
    daemon->uncovered = uncovered;
    return 0;
}

void uncovered_stop(struct daemon *daemon)
{
    struct uncovered *uncovered = daemon->uncovered;
    if (!uncovered)
        return;
    change_observe_no_more(daemon, &uncovered->observer);
    while (!LIST_EMPTY(&uncovered->outsiders)) {
        struct outsider *outsider = LIST_FIRST(&uncovered->outsiders);
        LIST_REMOVE(outsider, next);
        free(outsider);
    }
    free(uncovered);
    daemon->uncovered = NULL;
}
