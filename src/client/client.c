#include "client/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

#define ANSWER_MAX (64u << 20) /* 1,000 sessions of 1,000 processes are some 200 MB less */

struct answer_text {
    char *bytes;
    size_t length;
    /* Where it is a stream: what is told of each line, which then goes. Else NULL. */
    void (*take_line)(const char *line, size_t length, void *context);
    void *context;
};

static void take_lines(struct answer_text *text)
{
    char *begin = text->bytes, *end;
    while ((end = memchr(begin, '\n', text->length))) {
        size_t length = (size_t)(end - begin);
        text->take_line(begin, length, text->context);
        begin += length + 1;
        text->length -= length + 1;
    }
    memmove(text->bytes, begin, text->length);
}

static size_t collect(char *bytes, size_t size, size_t count, void *context)
{
    struct answer_text *text = context;
    size_t length = size * count;
    if (text->length + length > ANSWER_MAX)
        return 0;
    char *grown = realloc(text->bytes, text->length + length + 1);
    if (!grown)
        return 0;
    memcpy(grown + text->length, bytes, length);
    text->bytes = grown;
    text->length += length;
    grown[text->length] = '\0';
    if (text->take_line)
        take_lines(text);
    return length;
}

/* --- Connecting ------------------------------------------------------------------------------------ */

/* A folder in /tmp could have been made by anyone: only our own daemon and root's are believed. */
static int check_peer(int fd, const struct paths *paths, struct error *error)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return error_set_errno(error, errno, "cannot see who answers at %s", paths->control_socket);
    if (peer.uid == 0 || peer.uid == geteuid())
        return 0;
    return error_set(
        error, EPERM, NULL,
        "user %u answers at %s; expected user %u or root; set GPUSLICE_RUNTIME_DIR to a folder of yours",
        (unsigned)peer.uid, paths->control_socket, (unsigned)geteuid());
}

/* curl's own socket, but known to us. */
static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct client *client = context;
    client->fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return client->fd;
}

/* Between connecting and the first byte of a request. */
static int check_before_request(void *context, char *peer, char *local, int peer_port, int local_port)
{
    struct client *client = context;
    return check_peer(client->fd, &client->paths, &client->imposter) == 0 ? CURL_PREREQFUNC_OK
                                                                          : CURL_PREREQFUNC_ABORT;
}

int client_open(struct client *client, bool simulated, struct error *error)
{
    *client = (struct client){0};
    int result = paths_find(&client->paths, PATHS_CLIENT, simulated, error);
    if (result < 0)
        return result;
    curl_global_init(CURL_GLOBAL_NOTHING);
    CURL *curl = client->curl = curl_easy_init();
    if (!curl)
        return error_set(error, ENOMEM, NULL, "cannot set up an HTTP client");
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, client->paths.control_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, client);
    curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, check_before_request);
    curl_easy_setopt(curl, CURLOPT_PREREQDATA, client);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* a session may be named ".." */
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    return 0;
}

void client_close(struct client *client)
{
    if (client->curl)
        curl_easy_cleanup(client->curl);
    client->curl = NULL;
}

/* --- Asking ---------------------------------------------------------------------------------------- */

/* A daemon of the other kind, where none of the kind asked for runs, is worth a hint. */
static const char *other_daemon_hint(bool simulated)
{
    struct client other;
    const char *hint = "";
    if (client_open(&other, !simulated, NULL) == 0 && client_ready(&other, NULL) == 0)
        hint = simulated ? "; one for real GPUs is running: leave --simulated out"
                         : "; a simulated one is running: add --simulated";
    client_close(&other);
    return hint;
}

static int cannot_connect(struct client *client, struct error *error)
{
    const struct paths *paths = &client->paths;
    long status = 0;
    curl_easy_getinfo(client->curl, CURLINFO_OS_ERRNO, &status);
    if (status == EACCES || status == EPERM)
        return error_set(error, EACCES, "ERR_FORBIDDEN",
                         "no permission to use %s; expected its owner or a member of its group; set "
                         "GPUSLICE_RUNTIME_DIR to a folder of yours",
                         paths->control_socket);
    if (status != ENOENT && status != ECONNREFUSED && status != ENOTDIR)
        return error_set_errno(error, status ? (int)status : EIO, "cannot connect to %s",
                               paths->control_socket);
    if (!error) /* spares the look for the other daemon */
        return -ENOTCONN;
    return error_set(
        error, ENOTCONN, NULL,
        "no daemon is running; expected one at %s; 'gpuslice run' and 'gpuslice create' start one%s",
        paths->control_socket, other_daemon_hint(paths->simulated));
}

/* The daemon's own words about a refusal. */
static int refused(long status, const char *method, const char *path, const json_t *answer,
                   struct error *error)
{
    static const char *const codes[] = {"ERR_BAD_REQUEST",        "ERR_UNAUTHORIZED",  "ERR_FORBIDDEN",
                                        "ERR_SESSION_NOT_FOUND",  "ERR_GPU_NOT_FOUND", "ERR_NOT_FOUND",
                                        "ERR_AMBIGUOUS",          "ERR_NAME_TAKEN",    "ERR_SESSION_BUSY",
                                        "ERR_ADMISSION",          "ERR_CEILING",       "ERR_DECLARED",
                                        "ERR_SESSION_QUEUED",     "ERR_TOO_LARGE",     "ERR_TOO_MANY",
                                        "ERR_METHOD_NOT_ALLOWED", "ERR_INTERNAL"};
    const json_t *description = json_object_get(answer, "error");
    const char *message = json_string_value(json_object_get(description, "message"));
    const char *code = json_string_value(json_object_get(description, "code")), *known = NULL;
    for (size_t i = 0; code && i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(codes[i], code) == 0)
            known = codes[i];
    if (message)
        return error_set(error, EREMOTEIO, known, "%s", message);
    return error_set(error, EREMOTEIO, known,
                     "the daemon answered %s %s with status %ld and no reason; expected 200", method, path,
                     status);
}

static int decode(long status, const struct answer_text *text, const char *method, const char *path,
                  json_t **answer, struct error *error)
{
    json_t *decoded = text->length ? json_loadb(text->bytes, text->length, 0, NULL) : NULL;
    int result = 0;
    if (status < 200 || status >= 300)
        result = refused(status, method, path, decoded, error);
    else if (text->length && !decoded)
        result = error_set(
            error, EPROTO, NULL,
            "the daemon answered %s %s with something else than JSON; expected a gpusliced of version "
            "%s; restart it",
            method, path, GPUSLICE_VERSION);
    if (result == 0 && answer)
        *answer = steal_pointer(decoded);
    json_decref(decoded);
    return result;
}

/* A daemon may require its GPUSLICE_IPC_TOKEN. Inside a session that variable holds the session's token
 * instead, which is for attaching alone. */
static struct curl_slist *make_headers(bool has_body)
{
    struct curl_slist *headers = has_body ? curl_slist_append(NULL, "Content-Type: application/json") : NULL;
    const char *token = getenv("GPUSLICE_SESSION") ? NULL : getenv("GPUSLICE_IPC_TOKEN");
    cleanup_free char *line = NULL;
    if (token && *token && asprintf(&line, "Authorization: Bearer %s", token) >= 0)
        headers = curl_slist_append(headers, line);
    return headers;
}

/* Returns the HTTP status, or a negative errno. */
static int perform(struct client *client, const char *method, const char *path, const json_t *body,
                   struct answer_text *text, struct error *error)
{
    char url[512];
    struct curl_slist *headers = make_headers(body != NULL);
    cleanup_free char *sent = body ? json_dumps(body, JSON_COMPACT) : NULL;
    long status = 0;

    snprintf(url, sizeof(url), "http://localhost%s", path);
    curl_easy_setopt(client->curl, CURLOPT_URL, url);
    curl_easy_setopt(client->curl, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, method);
    if (sent) {
        curl_easy_setopt(client->curl, CURLOPT_POSTFIELDSIZE, (long)strlen(sent));
        curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, sent);
    }
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, text);
    CURLcode result = curl_easy_perform(client->curl);
    curl_slist_free_all(headers);
    if (client->imposter.status) {
        if (error)
            *error = client->imposter;
        return -client->imposter.status;
    }
    if (result == CURLE_COULDNT_CONNECT)
        return cannot_connect(client, error);
    if (result != CURLE_OK)
        return error_set(error, EIO, NULL, "cannot ask the daemon at %s: %s", client->paths.control_socket,
                         curl_easy_strerror(result));
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

int client_request(struct client *client, const char *method, const char *path, const json_t *body,
                   json_t **answer, struct error *error)
{
    struct answer_text text = {0};
    int status = perform(client, method, path, body, &text, error);
    int result = status < 0 ? status : decode(status, &text, method, path, answer, error);
    free(text.bytes);
    return result;
}

int client_request_session(struct client *client, const char *method, const char *session, const char *behind,
                           const json_t *body, json_t **answer, struct error *error)
{
    char path[256];
    snprintf(path, sizeof(path), "/v1/sessions/%s%s", session, behind);
    int result = client_request(client, method, path, body, answer, error);
    if (result < 0 && error && error->code && strcmp(error->code, "ERR_SESSION_NOT_FOUND") == 0)
        return error_set(
            error, error->status, error->code,
            "no session '%s'; expected an ID, the beginning of one, or a name; 'gpuslice list' shows them",
            session);
    return result;
}

struct listening {
    void (*take)(const json_t *event, void *context);
    void *context;
    struct answer_text other; /* what is no event: an error, say, whose JSON has lines too */
};

static void take_stream_line(const char *line, size_t length, void *context)
{
    static const char data[] = "data: ";
    struct listening *listening = context;
    if (length < strlen(data) || memcmp(line, data, strlen(data)) != 0) {
        collect((char *)line, 1, length, &listening->other);
        return;
    }
    json_t *event = json_loadb(line + strlen(data), length - strlen(data), 0, NULL);
    if (event)
        listening->take(event, listening->context);
    json_decref(event);
}

int client_listen(struct client *client, const char *path, void (*take)(const json_t *event, void *context),
                  void *context, struct error *error)
{
    struct listening listening = {.take = take, .context = context};
    struct answer_text text = {.take_line = take_stream_line, .context = &listening};
    int status = perform(client, "GET", path, NULL, &text, error);
    int result = status < 0 ? status : 0;
    if (status >= 0 && status != 200)
        result = decode(status, &listening.other, "GET", path, NULL, error);
    free(text.bytes);
    free(listening.other.bytes);
    return result;
}

int client_ready(struct client *client, struct error *error)
{
    struct answer_text text = {0};
    int status = perform(client, "GET", "/readyz", NULL, &text, error);
    int result = status < 0 ? status : 0;
    if (status >= 0 && status != 200)
        result = error_set(error, EAGAIN, NULL, "the daemon is not ready: %.*s",
                           text.bytes ? (int)strcspn(text.bytes, "\r\n") : 0, text.bytes ? text.bytes : "");
    free(text.bytes);
    return result;
}
