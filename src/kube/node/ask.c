#include "kube/node/ask.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "base/cleanup.h"
#include "kube/node/tasks.h"

#define TOKEN_MAX 16384

/* One request. It is on the stack of the task that waits for it. */
struct asking {
    LIST_ENTRY(asking) next;
    const struct ask_question *question;
    CURL *curl; /* NULL: only a pause */
    struct task *task;
    CURLcode code;
    bool is_cancelled;
    bool is_line_wrong;
    char *bytes; /* of the answer; of a stream, the line that is not complete yet */
    size_t length;
    json_t *answer;
};

struct asker {
    sd_event *loop;
    CURLM *multi;
    sd_event_source *timer;
    LIST_HEAD(, asking) waiting;
    bool is_closed;
};

/* --- libcurl in the loop --------------------------------------------------------------------------- */

static void finish(struct asking *asking)
{
    LIST_REMOVE(asking, next);
    task_wake(asking->task);
}

/* Wake the tasks whose requests are done. A task that goes on may send another request, or close the asker. */
static void wake_done(struct asker *asker)
{
    CURLMsg *message;
    int left;
    while (!asker->is_closed && (message = curl_multi_info_read(asker->multi, &left))) {
        struct asking *asking = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&asking);
        asking->code = message->data.result;
        curl_multi_remove_handle(asker->multi, asking->curl);
        /* Parsed here, as the task's stack is small. */
        if (!asking->question->take && asking->code == CURLE_OK && asking->length)
            asking->answer = json_loadb(asking->bytes, asking->length, 0, NULL);
        finish(asking);
    }
}

static int on_socket_ready(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct asker *asker = userdata;
    int running, what = (events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                        (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                        (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
    curl_multi_socket_action(asker->multi, fd, what, &running);
    wake_done(asker);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct asker *asker = userdata;
    int running;
    curl_multi_socket_action(asker->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    wake_done(asker);
    return 0;
}

static int watch_socket(CURL *curl, curl_socket_t fd, int what, void *context, void *socket_context)
{
    struct asker *asker = context;
    sd_event_source *source = socket_context;
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (what == CURL_POLL_REMOVE)
        sd_event_source_disable_unref(source);
    else if (source)
        sd_event_source_set_io_events(source, events);
    else if (sd_event_add_io(asker->loop, &source, fd, events, on_socket_ready, asker) >= 0)
        curl_multi_assign(asker->multi, fd, source);
    return 0;
}

static int set_timer(CURLM *multi, long milliseconds, void *context)
{
    struct asker *asker = context;
    if (milliseconds < 0) {
        sd_event_source_set_enabled(asker->timer, SD_EVENT_OFF);
        return 0;
    }
    sd_event_source_set_time_relative(asker->timer, (uint64_t)milliseconds * 1000);
    sd_event_source_set_enabled(asker->timer, SD_EVENT_ONESHOT);
    return 0;
}

int asker_open(sd_event *loop, struct asker **asker_out, struct error *error)
{
    struct asker *asker = calloc(1, sizeof(*asker));
    if (asker)
        asker->multi = curl_multi_init();
    if (!asker || !asker->multi ||
        sd_event_add_time_relative(loop, &asker->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, asker) < 0 ||
        sd_event_source_set_enabled(asker->timer, SD_EVENT_OFF) < 0) {
        if (asker)
            curl_multi_cleanup(asker->multi);
        free(asker);
        return error_set_errno(error, ENOMEM, "cannot ask anybody");
    }
    asker->loop = loop;
    curl_multi_setopt(asker->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(asker->multi, CURLMOPT_SOCKETDATA, asker);
    curl_multi_setopt(asker->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(asker->multi, CURLMOPT_TIMERDATA, asker);
    *asker_out = asker;
    return 0;
}

void asker_close(struct asker *asker)
{
    if (!asker)
        return;
    asker->is_closed = true;
    while (!LIST_EMPTY(&asker->waiting)) {
        struct asking *asking = LIST_FIRST(&asker->waiting);
        asking->is_cancelled = true;
        if (asking->curl)
            curl_multi_remove_handle(asker->multi, asking->curl);
        finish(asking);
    }
    curl_multi_cleanup(asker->multi);
    sd_event_source_disable_unref(asker->timer);
    free(asker);
}

/* --- Asking ---------------------------------------------------------------------------------------- */

/* Hand on each complete line of a stream. False ends the stream. */
static bool take_lines(struct asking *asking)
{
    const struct ask_question *question = asking->question;
    char *begin = asking->bytes, *end;
    bool goes_on = true;
    long status = 0;
    curl_easy_getinfo(asking->curl, CURLINFO_RESPONSE_CODE, &status);
    while (goes_on && status == 200 && (end = memchr(begin, '\n', asking->length))) {
        json_t *line = json_loadb(begin, (size_t)(end - begin), 0, NULL);
        asking->is_line_wrong = !line;
        goes_on = line && question->take(question->context, line);
        json_decref(line);
        asking->length -= (size_t)(end + 1 - begin);
        begin = end + 1;
    }
    memmove(asking->bytes, begin, asking->length);
    return goes_on;
}

static size_t collect(char *bytes, size_t size, size_t count, void *context)
{
    struct asking *asking = context;
    size_t more = size * count;
    char *grown = asking->length + more <= asking->question->most_bytes
                      ? realloc(asking->bytes, asking->length + more + 1)
                      : NULL;
    if (!grown)
        return 0;
    memcpy(grown + asking->length, bytes, more);
    asking->bytes = grown;
    asking->length += more;
    return !asking->question->take || take_lines(asking) ? more : 0;
}

static struct curl_slist *make_headers(const struct ask_question *question)
{
    struct curl_slist *headers = curl_slist_append(NULL, "Accept: application/json");
    if (question->body)
        headers = curl_slist_append(headers, "Content-Type: application/json");
    if (question->token) {
        char line[TOKEN_MAX + 32];
        snprintf(line, sizeof(line), "Authorization: Bearer %.16383s", question->token);
        headers = curl_slist_append(headers, line);
    }
    return headers;
}

static void prepare(struct asking *asking, const char *sent, struct curl_slist *headers)
{
    const struct ask_question *question = asking->question;
    CURL *curl = asking->curl;
    curl_easy_setopt(curl, CURLOPT_URL, question->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, question->socket ? "http" : "https");
    if (question->socket)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, question->socket);
    /* A connection for each request at a time. With HTTP/2 all of them share one, and a request that has no answer
     * in time ends only its stream: if the server vanished silently, later requests would join that connection until
     * the kernel gives it up, which takes a quarter of an hour. */
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)question->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L); /* notice a server that went away silently */
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, 20L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, 10L);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, question->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, asking);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, (char *)asking);
    if (question->ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, question->ca_file);
    if (sent)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, sent);
}

/* The result of a request: the status, or why there is no answer. */
static int judge(const struct asking *asking, struct error *error)
{
    const struct ask_question *question = asking->question;
    const char *where = question->socket ? question->socket : question->url;
    long status = 0;
    curl_easy_getinfo(asking->curl, CURLINFO_RESPONSE_CODE, &status);
    if (asking->is_cancelled)
        return error_set(error, ECANCELED, NULL, "it ends");
    if (asking->is_line_wrong)
        return error_set(error, EPROTO, NULL, "the answer of %s at %.200s is not JSON", question->who, where);
    /* The write error of a stream that `take` ended is not a failure. */
    if (asking->code != CURLE_OK && !(question->take && asking->code == CURLE_WRITE_ERROR && status == 200))
        return error_set(error, asking->code == CURLE_COULDNT_CONNECT ? ENOTCONN : EIO, NULL,
                         "cannot ask %s at %.200s: %s", question->who, where,
                         curl_easy_strerror(asking->code));
    return (int)status;
}

static void wait_for_answer(struct asker *asker, struct asking *asking)
{
    asking->task = task_current();
    LIST_INSERT_HEAD(&asker->waiting, asking, next);
    if (!asking->curl || curl_multi_add_handle(asker->multi, asking->curl) == CURLM_OK) {
        task_wait();
        return;
    }
    asking->code = CURLE_OUT_OF_MEMORY;
    LIST_REMOVE(asking, next);
}

int ask(struct asker *asker, const struct ask_question *question, json_t **answer, struct error *error)
{
    struct asking asking = {.question = question};
    cleanup_free char *sent = question->body ? json_dumps(question->body, JSON_COMPACT) : NULL;
    *answer = NULL;
    if (asker->is_closed)
        return error_set(error, ECANCELED, NULL, "it ends");
    asking.curl = curl_easy_init();
    if (!asking.curl)
        return error_set_errno(error, ENOMEM, "cannot ask %s", question->who);
    struct curl_slist *headers = make_headers(question);
    prepare(&asking, sent, headers);
    wait_for_answer(asker, &asking);
    int result = judge(&asking, error);
    curl_slist_free_all(headers);
    curl_easy_cleanup(asking.curl);
    free(asking.bytes);
    if (result >= 0)
        *answer = asking.answer;
    else
        json_decref(asking.answer);
    return result;
}

/* --- Pausing --------------------------------------------------------------------------------------- */

static int on_pause_over(sd_event_source *source, uint64_t usec, void *userdata)
{
    finish(userdata);
    return 0;
}

bool ask_pause(struct asker *asker, unsigned milliseconds)
{
    struct asking asking = {0};
    sd_event_source *timer = NULL;
    if (asker->is_closed ||
        sd_event_add_time_relative(asker->loop, &timer, CLOCK_MONOTONIC, UINT64_C(1000) * milliseconds, 0,
                                   on_pause_over, &asking) < 0)
        return false;
    wait_for_answer(asker, &asking);
    sd_event_source_disable_unref(timer);
    return !asking.is_cancelled;
}
