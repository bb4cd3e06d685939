#include "kube/node/api_server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/session_fields.h"
#include "kube/kubelet.h"

#define TIMEOUT_MS 5000
#define TOKEN_MAX 16384
#define ANSWER_MAX (8u << 20)

/* Read the token anew; an empty file is an error. */
static int read_token(const struct api_place *place, char token[static TOKEN_MAX], struct error *error)
{
    cleanup_file FILE *file = fopen(place->token_file, "re");
    size_t length = file ? fread(token, 1, TOKEN_MAX - 1, file) : 0;
    token[length] = '\0';
    token[strcspn(token, "\r\n")] = '\0';
    if (*token)
        return 0;
    return error_set(
        error, EACCES, NULL,
        "the file %s holds no token; expected the service account's; see the DaemonSet's volumes",
        place->token_file);
}

static int ask_server(const struct kubelet *kubelet, const char *path, struct ask_question *question,
                      json_t **answer, struct error *error)
{
    const struct api_place *place = &kubelet->options.api;
    char url[2048], token[TOKEN_MAX];
    int result = place->token_file ? read_token(place, token, error) : 0;
    if (result < 0)
        return result;
    snprintf(url, sizeof(url), "%s%s", place->url, path);
    question->who = "the API server";
    question->url = url;
    question->most_bytes = ANSWER_MAX;
    question->ca_file = place->ca_file;
    question->token = place->token_file ? token : NULL;
    return ask(kubelet->asker, question, answer, error);
}

int api_request(const struct kubelet *kubelet, const char *method, const char *path, const json_t *body,
                json_t **answer, struct error *error)
{
    struct ask_question question = {.method = method, .body = body, .timeout_ms = TIMEOUT_MS};
    int status = ask_server(kubelet, path, &question, answer, error);
    if (status >= 200 && status < 300 && !*answer)
        return error_set(error, EPROTO, NULL, "the API server's answer to %s %.200s is not JSON", method,
                         path);
    return status;
}

int api_watch(const struct kubelet *kubelet, const char *path, bool (*take)(void *context, json_t *event),
              void *context, struct error *error)
{
    struct ask_question question = {
        .method = "GET", .timeout_ms = API_WATCH_MS + TIMEOUT_MS, .take = take, .context = context};
    json_t *answer = NULL;
    int status = ask_server(kubelet, path, &question, &answer, error);
    json_decref(answer);
    return status;
}

int api_refused(int status, const char *what, const json_t *answer, struct error *error)
{
    const char *message = session_text(answer, "message");
    return error_set(error, EREMOTEIO, NULL, "the API server answered %d to %s%s%.300s", status, what,
                     *message ? ": " : "", message);
}
