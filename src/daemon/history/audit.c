#include "daemon/history/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/session/session.h"

struct audit {
    struct observer observer;
    int fd;
    bool has_failed; /* the last line could not be written, and that was logged */
};

/* What the file says of a kind of change; NULL: nothing. */
static const char *action_of(enum change_kind kind)
{
    switch (kind) {
    case CHANGE_SESSION_CREATED:
    case CHANGE_SESSION_ADMITTED:
        return "allocated";
    case CHANGE_SESSION_REFUSED:
    case CHANGE_MEMORY_REFUSED:
        return "denied";
    case CHANGE_SESSION_EXPIRED:
        return "expired";
    case CHANGE_SESSION_ENDED:
        return "ended";
    default:
        return NULL;
    }
}

static uint64_t limit_of(const struct session *session)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (__builtin_add_overflow(bytes, session->gpus[i].limit_bytes, &bytes))
            bytes = INT64_MAX;
    return bytes > INT64_MAX ? INT64_MAX : bytes;
}

static json_t *line_of(const struct change *change, const char *action)
{
    const struct session *session = change->session;
    char when[40];
    time_t now = time(NULL);
    struct tm parts;
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    json_t *line =
        json_pack("{s:s,s:s,s:I,s:s*}", "time", when, "action", action, "owner_uid",
                  (json_int_t)(session ? session->owner : change->uid), "message", change->message);
    if (line && session) {
        json_object_set_new(line, "session_id", json_string(session->id));
        json_object_set_new(line, "name", json_string(session->name));
        json_object_set_new(line, "vram_limit_bytes", json_integer((json_int_t)limit_of(session)));
    }
    return line;
}

/* Write the line in one write, so that it is there whole or not at all. */
static void add_line(struct audit *audit, const json_t *line)
{
    cleanup_free char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    size_t length = text ? strlen(text) : 0;
    if (!text)
        return;
    text[length] = '\n'; /* in place of the terminating zero */
    bool is_written = write(audit->fd, text, length + 1) == (ssize_t)length + 1;
    if (!is_written && !audit->has_failed)
        log_error("the audit file cannot be written: %s", strerror(errno));
    audit->has_failed = !is_written;
}

static void take(void *context, const struct change *change)
{
    const char *action = action_of(change->kind);
    if (!action || (change->kind == CHANGE_SESSION_CREATED && change->session->state == SESSION_QUEUED))
        return;
    json_t *line = line_of(change, action);
    add_line(context, line);
    json_decref(line);
}

int audit_start(struct daemon *daemon, struct error *error)
{
    const char *path = daemon->config.daemon.audit_file;
    if (!*path)
        return 0;
    struct audit *audit = calloc(1, sizeof(*audit));
    if (!audit)
        return error_set_errno(error, ENOMEM, "cannot keep an audit file");
    audit->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (audit->fd < 0) {
        int status = errno;
        free(audit);
        return error_set_errno(error, status, "cannot open the audit file %s", path);
    }
    audit->observer = (struct observer){.take = take, .context = audit};
    change_observe(daemon, &audit->observer);
    daemon->audit = audit;
    return 0;
}

void audit_stop(struct daemon *daemon)
{
    struct audit *audit = daemon->audit;
    if (!audit)
        return;
    change_observe_no_more(daemon, &audit->observer);
    close(audit->fd);
    free(audit);
    daemon->audit = NULL;
}
