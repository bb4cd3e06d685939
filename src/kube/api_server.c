#include "kube/api_server.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/session_fields.h"

#define TIMEOUT_MS 5000L
#define ANSWER_MAX (8u << 20)
#define TOKEN_MAX 16384

struct text {
    char *bytes;
    size_t length;
};

static size_t collect(char *bytes, size_t size, size_t count, void *context)
{
    struct text *text = context;
    size_t more = size * count;
    if (text->length + more > ANSWER_MAX)
        return 0;
    char *grown = realloc(text->bytes, text->length + more + 1);
    if (!grown)
        return 0;
    memcpy(grown + text->length, bytes, more);
    text->bytes = grown;
    text->length += more;
    return more;
}

static int make_headers(const struct api_place *place, bool has_body, struct curl_slist **headers,
                        struct error *error)
{
    char token[TOKEN_MAX] = "", line[TOKEN_MAX + 32];
    *headers = curl_slist_append(NULL, "Accept: application/json");
    if (has_body)
        *headers = curl_slist_append(*headers, "Content-Type: application/json");
    if (!place->token_file)
        return 0;
    cleanup_file FILE *file = fopen(place->token_file, "re");
    size_t length = file ? fread(token, 1, sizeof(token) - 1, file) : 0;
    token[length] = '\0';
    token[strcspn(token, "\r\n")] = '\0';
    if (!*token)
        return error_set(
            error, EACCES, NULL,
            "the file %s holds no token; expected the service account's; see the DaemonSet's volumes",
            place->token_file);
    snprintf(line, sizeof(line), "Authorization: Bearer %s", token);
    *headers = curl_slist_append(*headers, line);
    return 0;
}

static CURLcode perform(CURL *curl, const struct api_place *place, const char *method, const char *path,
                        const char *sent, struct curl_slist *headers, struct text *text)
{
    char url[2048];
    snprintf(url, sizeof(url), "%s%s", place->url, path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, text);
    if (place->ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, place->ca_file);
    if (sent)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, sent);
    return curl_easy_perform(curl);
}

int api_request(const struct api_place *place, const char *method, const char *path, const json_t *body,
                json_t **answer, struct error *error)
{
    struct text text = {0};
    struct curl_slist *headers = NULL;
    cleanup_free char *sent = body ? json_dumps(body, JSON_COMPACT) : NULL;
    CURL *curl = curl_easy_init();
    int result = curl ? make_headers(place, body != NULL, &headers, error)
                      : error_set_errno(error, ENOMEM, "cannot ask the API server");
    if (result == 0) {
        CURLcode code = perform(curl, place, method, path, sent, headers, &text);
        long status = 0;
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        *answer = text.length ? json_loadb(text.bytes, text.length, 0, NULL) : NULL;
        result = (int)status;
        if (code != CURLE_OK)
            result = error_set(error, EIO, NULL, "cannot ask the API server at %s: %s", place->url,
                               curl_easy_strerror(code));
        else if (status >= 200 && status < 300 && !*answer)
            result =
                error_set(error, EPROTO, NULL,
                          "the API server answered %s %.200s with something else than JSON", method, path);
        if (result < 0) {
            json_decref(*answer);
            *answer = NULL;
        }
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    free(text.bytes);
    return result;
}

int api_refused(int status, const char *what, const json_t *answer, struct error *error)
{
    const char *message = session_text(answer, "message");
    return error_set(error, EREMOTEIO, NULL, "the API server answered %d to %s%s%.300s", status, what,
                     *message ? ": " : "", message);
}
