#include "client/session_create.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"
#include "client/session_fields.h"
#include "client/start.h"

/* Hardly any program starts with less memory than this beside its context. */
#define CONTEXT_ROOM_BYTES (UINT64_C(256) << 20)

/* How often a request is made in all, while daemons die under it. */
#define TRIES_MOST 10u
/* How long the daemon may hold back one answer about the place in the queue. */
#define LINE_ASK_SECONDS 10

__attribute__((format(printf, 2, 3))) static void tell(const struct session_progress *progress,
                                                       const char *format, ...)
{
    char sentence[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    progress->tell(progress->context, sentence);
}

/* On a real GPU the context alone can fill a small limit. Warns about GPUs whose context was measured. */
static void warn_of_small_limits(const json_t *session, const struct session_progress *progress)
{
    const json_t *gpu;
    size_t i;
    json_array_foreach(json_object_get(session, "gpus"), i, gpu)
    {
        uint64_t context = session_number(gpu, "context_bytes"), limit = session_number(gpu, "limit_bytes");
        char limit_text[UNITS_BYTES_TEXT], context_text[UNITS_BYTES_TEXT], least[UNITS_BYTES_TEXT];
        if (context == 0 || limit >= context + CONTEXT_ROOM_BYTES)
            continue;
        tell(progress,
             "warning: a CUDA context takes %s of the limit of %s on GPU %llu, which leaves little for the "
             "program; expected at least %s; give more with 'gpuslice set %s --memory SIZE'",
             units_format_bytes(context, context_text), units_format_bytes(limit, limit_text),
             (unsigned long long)session_number(gpu, "index"),
             units_format_bytes(context + CONTEXT_ROOM_BYTES, least), session_text(session, "session_id"));
    }
}

/* The defaults say that its memory may leave the card, and its GPU keeps it. */
static void tell_of_staying(const json_t *session, const struct session_progress *progress)
{
    const char *why = session_text(session, "stays_why");
    if (*why && strcmp(session_text(session, "when_full"), "oversubscribe") == 0 &&
        strcmp(session_text(session, "oversubscribe"), "none") == 0)
        tell(progress, "the session's memory stays on the card: memory cannot leave %s", why);
}

/* Its memory may leave the card, and cannot where the host has no room for it. */
static void warn_of_small_host(const json_t *session, const struct session_progress *progress)
{
    char limit[UNITS_BYTES_TEXT], most[UNITS_BYTES_TEXT], least[UNITS_BYTES_TEXT];
    if (!session_outgrows_host(session))
        return;
    uint64_t bytes = session_number(session, "host_memory_most_bytes");
    tell(progress,
         "warning: session %s may use %s of GPU memory and at most %s of host memory: once it uses more than "
         "that, its memory cannot leave the card, and other sessions do not get its room; give it "
         "--memory %s or less, or more host memory (host-memory in gpuslice.conf, --host-memory)",
         session_text(session, "name"),
         units_format_bytes(session_number(session, "vram_limit_bytes"), limit),
         units_format_bytes(bytes, most), units_format_bytes(bytes, least));
}

/* The daemon's environment decides what a simulated machine looks like; different settings here have no effect. */
static void warn_of_other_machine(const json_t *session, const struct session_progress *progress)
{
    static const char *const settings[] = {"FAKECUDA_NAME", "FAKECUDA_GPUS",      "FAKECUDA_DEVICE",
                                           "FAKECUDA_MIG",  "FAKECUDA_TOTAL_MEM", "FAKECUDA_CONSTANTS"};
    const json_t *environment = json_object_get(session, "environment");
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        const char *ours = getenv(settings[i]), *theirs = session_text(environment, settings[i]);
        if (!ours || strcmp(ours, theirs) == 0)
            continue;
        tell(progress,
             "warning: %s=%.100s has no effect: a daemon of simulated GPUs runs already, with %s%.100s; end "
             "it first (it ends by itself some time after its last session), or set GPUSLICE_RUNTIME_DIR to "
             "a folder for another daemon",
             settings[i], ours, *theirs ? "" : "the default", theirs);
        return;
    }
}

static uint64_t now_usec(void)
{
    return monotonic_ns() / 1000;
}

static const char *ordinal(uint64_t place)
{
    uint64_t last = place % 10;
    return place / 10 % 10 == 1 ? "th" : last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th";
}

/* The GPU among `gpus` that the session asks for; if it takes any, the one with the most room. */
static const json_t *find_asked(const json_t *gpus, const json_t *session)
{
    const char *uuid = session_text(json_array_get(json_object_get(session, "asked_gpus"), 0), "uuid");
    const json_t *gpu, *found = NULL;
    size_t i;
    json_array_foreach((json_t *)gpus, i, gpu)
    {
        if (*uuid && strcmp(uuid, session_text(gpu, "uuid")) == 0)
            return gpu;
        if (!found || session_number(gpu, "unreserved_bytes") > session_number(found, "unreserved_bytes"))
            found = gpu;
    }
    return found;
}

/* "waiting for 8GiB: GPU 0 has 4GiB of 16GiB that is not reserved; 1st in the queue; Ctrl-C gives up". */
static void tell_of_place(struct client *client, const json_t *session, uint64_t place,
                          const struct session_progress *progress)
{
    json_t *gpus = NULL;
    const json_t *first = json_array_get(json_object_get(session, "asked_gpus"), 0);
    uint64_t wanted = session_number(session, "vram_limit_bytes");
    char asked[UNITS_BYTES_TEXT], left[UNITS_BYTES_TEXT], total[UNITS_BYTES_TEXT], room[160] = "";
    const json_t *gpu =
        client_request(client, "GET", "/v1/gpus", NULL, &gpus, NULL) == 0 ? find_asked(gpus, session) : NULL;
    if (gpu)
        snprintf(room, sizeof(room), ": GPU %llu has %s of %s that no session has reserved",
                 (unsigned long long)session_number(gpu, "index"),
                 units_format_bytes(session_number(gpu, "unreserved_bytes"), left),
                 units_format_bytes(session_number(gpu, "total_bytes"), total));
    json_decref(gpus);
    tell(progress, "waiting for %s%s; %llu%s in the queue; Ctrl-C gives up",
         units_format_bytes(wanted ? wanted : session_number(first, "limit_bytes"), asked), room,
         (unsigned long long)place, ordinal(place));
}

/* Ask about a queued session until it is active, for at most `patience_usec`; after that release it. */
static int wait_in_line(struct client *client, uint64_t patience_usec,
                        const struct session_progress *progress, json_t **session, struct error *error)
{
    uint64_t start = now_usec(), told = 0;
    char id[32], path[160];
    int result = 0;
    snprintf(id, sizeof(id), "%s", session_text(*session, "session_id"));
    while (result == 0 && strcmp(session_text(*session, "state"), "queued") == 0) {
        uint64_t place = session_number(*session, "queue_position"), waited = now_usec() - start;
        if (place != told)
            tell_of_place(client, *session, place, progress);
        told = place;
        if (waited >= patience_usec) {
            client_request_session(client, "DELETE", id, "", NULL, NULL, NULL);
            return error_set(error, ETIMEDOUT, NULL,
                             "the time of --wait is over, and there is no room yet: the session was at place "
                             "%llu in the queue; give --wait more time, or ask for less",
                             (unsigned long long)place);
        }
        uint64_t left_seconds = (patience_usec - waited) / 1000000;
        snprintf(path, sizeof(path), "/v1/sessions/%s?queue_position=%llu&wait_seconds=%llu", id,
                 (unsigned long long)place,
                 (unsigned long long)(left_seconds < LINE_ASK_SECONDS ? left_seconds : LINE_ASK_SECONDS));
        if (left_seconds == 0)
            usleep((useconds_t)(patience_usec - waited));
        json_decref(*session);
        *session = NULL;
        /* If the session has gone in the meantime, the daemon's own message says why. */
        result = client_request(client, "GET", path, NULL, session, error);
    }
    json_t *environment = NULL;
    if (result == 0)
        result = client_request_session(client, "GET", id, "/environment", NULL, &environment, error);
    if (result == 0)
        json_object_set_new(*session, "environment", environment);
    return result;
}

/* The body for `wish`. If the wish names no GPU, the environment may. */
static int wish_body(const struct session_wish *wish, json_t **body, struct error *error)
{
    struct session_wish meant = *wish;
    if (meant.gpus.count == 0 && meant.memory.gpus.count == 0) {
        int result = gpu_names_from_environment(&meant.gpus, error);
        if (result < 0)
            return result;
    }
    return session_wish_body(&meant, NULL, body, error);
}

/* A key that makes the request safe to repeat: the daemon gives one session for it, however often it is asked. */
static int add_key(json_t *body, struct error *error)
{
    unsigned char bytes[16];
    char text[2 * sizeof(bytes) + 1];
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return error_set_errno(error, errno, "cannot make a request's key");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return json_object_set_new(body, "request_key", json_string(text)) == 0
               ? 0
               : error_set_errno(error, ENOMEM, "cannot ask for a session");
}

/* Ask, and ask again where the daemon died under the request or was restarted. */
static int ask(struct client *client, const json_t *body, json_t **session, struct error *error)
{
    int result = start_daemon(client, error);
    if (result == -ENOTCONN) /* nobody has begun to restart it */
        return result;
    if (result == 0)
        result = client_request(client, "POST", "/v1/sessions", body, session, error);
    for (unsigned tries = 1; start_may_help(result) && tries < TRIES_MOST; tries++) {
        if ((result = start_reach(client, error)) < 0)
            return result;
        result = client_request(client, "POST", "/v1/sessions", body, session, error);
    }
    return result;
}

int session_create(struct client *client, const struct session_wish *wish, bool run,
                   const struct session_progress *progress, json_t **session, struct error *error)
{
    json_t *body = NULL;
    int result = start_check_driver(client->paths.simulated, error);
    if (result == 0)
        result = wish_body(wish, &body, error);
    if (result == 0)
        result = add_key(body, error);
    if (result == 0 && run)
        json_object_set_new(body, "run", json_true());
    if (result == 0 && wish->wait_usec)
        json_object_set_new(body, "wait", json_true());
    if (result == 0)
        result = ask(client, body, session, error);
    json_decref(body);
    if (result == 0 && strcmp(session_text(*session, "state"), "queued") == 0)
        result =
            wait_in_line(client, wish->wait_usec ? wish->wait_usec : UINT64_MAX, progress, session, error);
    if (result == 0) {
        tell_of_staying(*session, progress);
        warn_of_small_host(*session, progress);
    }
    if (result == 0 && client->paths.simulated)
        warn_of_other_machine(*session, progress);
    else if (result == 0)
        warn_of_small_limits(*session, progress);
    return result;
}
