#include "client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/session_pod.h"

#define ANSWER_MAX (64u << 20) /* a longer answer fails with -EFBIG */

struct answer_text {
    char *bytes;
    size_t length;
};

static bool collect(void *context, const char *bytes, size_t length)
{
    struct answer_text *text = context;
    char *grown =
        text->length + length <= ANSWER_MAX ? realloc(text->bytes, text->length + length + 1) : NULL;
    if (!grown)
        return false;
    memcpy(grown + text->length, bytes, length);
    text->bytes = grown;
    text->length += length;
    grown[text->length] = '\0';
    return true;
}

/* --- Connecting ------------------------------------------------------------------------------------ */

/* Anyone could have made a folder in /tmp, so only a daemon of this user or of root is believed. */
static int check_peer(int fd, const struct paths *paths, struct error *error)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return error_set_errno(error, errno, "cannot find out which process answers at %s",
                               paths->control_socket);
    if (peer.uid == 0 || peer.uid == geteuid())
        return 0;
    return error_set(
        error, EPERM, NULL,
        "user %u answers at %s; expected user %u or root; set GPUSLICE_RUNTIME_DIR to a folder of yours",
        (unsigned)peer.uid, paths->control_socket, (unsigned)geteuid());
}

int client_open(struct client *client, bool simulated, struct error *error)
{
    *client = (struct client){.connection.fd = -1};
    int result = paths_find(&client->paths, PATHS_CLIENT, simulated, error);
    if (result == 0)
        http_open(&client->connection, client->paths.control_socket);
    return result;
}

void client_close(struct client *client)
{
    http_close(&client->connection);
}

/* --- Asking ---------------------------------------------------------------------------------------- */

/* Where no daemon of the wanted kind runs but one of the other kind does, a hint says so. */
static const char *other_daemon_hint(bool simulated)
{
    struct client other;
    const char *hint = "";
    if (client_open(&other, !simulated, NULL) == 0 && client_ready(&other, NULL) == 0)
        hint = simulated ? "; a daemon for real GPUs is running: leave --simulated out"
                         : "; a daemon for simulated GPUs is running: add --simulated";
    client_close(&other);
    return hint;
}

/* Explain to a person why a connection failed with `status`. */
static int cannot_connect(const struct client *client, int status, struct error *error)
{
    const struct paths *paths = &client->paths;
    if (status == EACCES || status == EPERM)
        return error_set(error, EACCES, "ERR_FORBIDDEN",
                         "no permission to use %s; expected its owner or a member of its group; set "
                         "GPUSLICE_RUNTIME_DIR to a folder of yours",
                         paths->control_socket);
    if (status != ENOENT && status != ECONNREFUSED && status != ENOTDIR)
        return error_set_errno(error, status, "cannot connect to %s", paths->control_socket);
    if (!error) /* saves asking the other daemon */
        return -ENOTCONN;
    if (paths->system)
        return error_set(
            error, ENOTCONN, NULL,
            "the system daemon does not answer at %s; 'systemctl start gpusliced' starts it, and "
            "'journalctl -u gpusliced' says why it ended",
            paths->control_socket);
    if (status == ECONNREFUSED) /* a daemon that ends in good order removes its socket */
        return error_set(
            error, ENOTCONN, NULL,
            "the daemon of %s has died; its log is %s; 'gpuslice run' starts another, which finds "
            "the sessions again",
            paths->control_socket, paths->log_file);
    return error_set(
        error, ENOTCONN, NULL,
        "no daemon is running; expected one at %s; 'gpuslice run' and 'gpuslice create' start one%s",
        paths->control_socket, other_daemon_hint(paths->simulated));
}

int client_refused(int status, const json_t *answer, struct error *error)
{
    static const char *const codes[] = {
        "ERR_BAD_REQUEST",    "ERR_UNAUTHORIZED", "ERR_FORBIDDEN", "ERR_SESSION_NOT_FOUND",
        "ERR_GPU_NOT_FOUND",  "ERR_NOT_FOUND",    "ERR_AMBIGUOUS", "ERR_NAME_TAKEN",
        "ERR_SESSION_BUSY",   "ERR_ADMISSION",    "ERR_CEILING",   "ERR_DECLARED",
        "ERR_SESSION_QUEUED", "ERR_TOO_LARGE",    "ERR_TOO_MANY",  "ERR_METHOD_NOT_ALLOWED",
        "ERR_NOT_MOVABLE",    "ERR_HOST_MEMORY",  "ERR_INTERNAL"};
    const json_t *description = json_object_get(answer, "error");
    const char *message = json_string_value(json_object_get(description, "message"));
    const char *code = json_string_value(json_object_get(description, "code")), *known = NULL;
    for (size_t i = 0; code && i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(codes[i], code) == 0)
            known = codes[i];
    if (message)
        return error_set(error, EREMOTEIO, known, "%s", message);
    return error_set(error, EREMOTEIO, known,
                     "the daemon refused with status %d and gave no reason; see its log", status);
}

static int decode(int status, const struct answer_text *text, json_t **answer, struct error *error)
{
    json_t *decoded = text->length ? json_loadb(text->bytes, text->length, 0, NULL) : NULL;
    int result = 0;
    if (status < 200 || status >= 300)
        result = client_refused(status, decoded, error);
    else if (text->length && !decoded)
        result = error_set(
            error, EPROTO, NULL,
            "cannot read the daemon's answer; expected gpusliced %s; restart the daemon, its sessions stay",
            GPUSLICE_VERSION);
    if (result == 0 && answer)
        *answer = steal_pointer(decoded);
    json_decref(decoded);
    return result;
}

const char *client_token(void)
{
    const char *token = getenv("GPUSLICE_SESSION") ? NULL : getenv("GPUSLICE_IPC_TOKEN");
    return token && *token && !strpbrk(token, "\r\n") ? token : NULL;
}

static int connect_to_daemon(struct client *client, struct error *error)
{
    int result = http_connect(&client->connection);
    if (result < 0)
        return cannot_connect(client, -result, error);
    result = check_peer(client->connection.fd, &client->paths, error);
    if (result < 0)
        http_close(&client->connection);
    return result;
}

/* Returns the HTTP status, or a negative errno. */
static int perform(struct client *client, const char *method, const char *path, const json_t *body,
                   const struct http_sink *sink, struct error *error)
{
    cleanup_free char *sent = body ? json_dumps(body, JSON_COMPACT) : NULL;
    const struct http_request request = {
        .method = method, .path = path, .token = client_token(), .body = sent};
    /* The daemon may close a connection that it has kept idle. Then it did not read the request, which is sent
     * again. */
    bool was_idle = client->connection.fd >= 0;
    int result = was_idle ? 0 : connect_to_daemon(client, error);
    if (result == 0)
        result = http_perform(&client->connection, &request, sink, error);
    if (result == -ECONNRESET && was_idle && (result = connect_to_daemon(client, error)) == 0)
        result = http_perform(&client->connection, &request, sink, error);
    return result;
}

int client_request(struct client *client, const char *method, const char *path, const json_t *body,
                   json_t **answer, struct error *error)
{
    struct answer_text text = {0};
    const struct http_sink sink = {.take = collect, .context = &text};
    int status = perform(client, method, path, body, &sink, error);
    int result = status < 0 ? status : decode(status, &text, answer, error);
    free(text.bytes);
    return result;
}

static int find_pod(struct client *client, const char *pod, char id[static SESSION_POD_ID_TEXT],
                    struct error *error)
{
    json_t *sessions = NULL;
    int result = client_request(client, "GET", "/v1/sessions", NULL, &sessions, error);
    if (result == 0)
        result = session_pod_find(sessions, pod, id, error);
    json_decref(sessions);
    return result;
}

int client_request_session(struct client *client, const char *method, const char *session, const char *behind,
                           const json_t *body, json_t **answer, struct error *error)
{
    char path[256], id[SESSION_POD_ID_TEXT];
    int result = session_pod_is_meant(session) ? find_pod(client, session, id, error) : 0;
    if (result < 0)
        return result;
    snprintf(path, sizeof(path), "/v1/sessions/%s%s", session_pod_is_meant(session) ? id : session, behind);
    result = client_request(client, method, path, body, answer, error);
    if (result < 0 && error && error->code && strcmp(error->code, "ERR_SESSION_NOT_FOUND") == 0)
        return error_set(
            error, error->status, error->code,
            "no session '%s'; expected an ID, the beginning of an ID, or a name; 'gpuslice list' shows them",
            session);
    return result;
}

struct listening {
    void (*take)(const json_t *event, void *context);
    void *context;
    struct answer_text pending; /* the line that is not complete yet */
    struct answer_text other;   /* lines that are not events: an error's JSON */
};

static bool take_stream_line(struct listening *listening, const char *line, size_t length)
{
    static const char data[] = "data: ";
    if (length < strlen(data) || memcmp(line, data, strlen(data)) != 0)
        return collect(&listening->other, line, length);
    json_t *event = json_loadb(line + strlen(data), length - strlen(data), 0, NULL);
    if (event)
        listening->take(event, listening->context);
    json_decref(event);
    return true;
}

static bool take_stream(void *context, const char *bytes, size_t length)
{
    struct listening *listening = context;
    struct answer_text *pending = &listening->pending;
    if (!collect(pending, bytes, length))
        return false;
    char *begin = pending->bytes, *end;
    bool goes_on = true;
    while (goes_on && (end = memchr(begin, '\n', pending->length))) {
        goes_on = take_stream_line(listening, begin, (size_t)(end - begin));
        pending->length -= (size_t)(end + 1 - begin);
        begin = end + 1;
    }
    memmove(pending->bytes, begin, pending->length);
    return goes_on;
}

int client_listen(struct client *client, const char *path, void (*take)(const json_t *event, void *context),
                  void *context, struct error *error)
{
    struct listening listening = {.take = take, .context = context};
    const struct http_sink sink = {.take = take_stream, .context = &listening};
    int status = perform(client, "GET", path, NULL, &sink, error);
    int result = status < 0 ? status : 0;
    if (status >= 0 && status != 200)
        result = decode(status, &listening.other, NULL, error);
    free(listening.pending.bytes);
    free(listening.other.bytes);
    return result;
}

int client_ready(struct client *client, struct error *error)
{
    struct answer_text text = {0};
    const struct http_sink sink = {.take = collect, .context = &text};
    int status = perform(client, "GET", "/healthz", NULL, &sink, error);
    int result = status < 0 ? status : 0;
    if (status >= 0 && status != 200)
        result = error_set(error, EAGAIN, NULL, "the daemon is not ready: %.*s",
                           text.bytes ? (int)strcspn(text.bytes, "\r\n") : 0, text.bytes ? text.bytes : "");
    free(text.bytes);
    return result;
}
