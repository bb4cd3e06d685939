/* Answers with sessions and GPUs, written a few processes or one session at a time: there may be thousands of each. */
#include <stdlib.h>
#include <string.h>

#include "daemon/api/api.h"
#include "daemon/api/api_pieces.h"
#include "daemon/gpu/card.h"
#include "daemon/gpu/nvml.h"
#include "daemon/gpu/sampler.h"
#include "daemon/http/http.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"

/* A part is one process on one GPU. This many parts are written in one go. */
#define PARTS_AT_ONCE 64

/* --- One session ----------------------------------------------------------------------------------- */

/* How far a session has been written. What ends meanwhile is left out. */
struct session_text {
    char id[SESSION_ID_TEXT];
    uint64_t number; /* session.number: the ID may belong to another session by then */
    bool is_begun, has_process;
    uint64_t process; /* the number of the last one that was written */
};

static struct session_text begin_session(const struct session *session)
{
    struct session_text text = {.number = session->number};
    strcpy(text.id, session->id);
    return text;
}

/* Found by number, because the process that was written last may have gone. */
static const struct process *next_process(const struct session *session, uint64_t number)
{
    const struct process *process = session->oldest_process;
    while (process && process->number <= number)
        process = process->newer;
    return process;
}

static enum pieces_next write_processes(const struct session *session, struct session_text *text, FILE *out)
{
    const struct process *process = next_process(session, text->process);
    for (unsigned parts = 0; process && parts < PARTS_AT_ONCE; parts += 1 + session->gpu_count) {
        if (text->has_process)
            fputc(',', out);
        if (!api_dump(api_process_json(process), out))
            return PIECES_FAILED;
        text->has_process = true;
        text->process = process->number;
        process = process->newer;
    }
    if (!process)
        fputs("]}", out);
    return process ? PIECES_MORE : PIECES_END;
}

static enum pieces_next write_session(const struct daemon *daemon, struct session_text *text, bool as_gslice,
                                      FILE *out)
{
    const struct session *session = session_find_id(daemon, text->id);
    if (!session || session->number != text->number) {
        fputs(text->is_begun ? "]}" : "", out);
        return text->is_begun ? PIECES_END : PIECES_FAILED;
    }
    if (text->is_begun)
        return write_processes(session, text, out);
    text->is_begun = true;
    json_t *head = api_session_head_json(session);
    if (as_gslice)
        api_write_as_gslice(head);
    if (!api_dump_open(head, "processes", out))
        return PIECES_FAILED;
    return write_processes(session, text, out);
}

struct showing {
    const struct daemon *daemon;
    bool as_gslice;
    struct session_text text;
};

static enum pieces_next write_shown(void *context, FILE *out)
{
    struct showing *showing = context;
    enum pieces_next next = write_session(showing->daemon, &showing->text, showing->as_gslice, out);
    if (next == PIECES_END)
        fputc('\n', out);
    return next;
}

void api_reply_session(struct http_request *request, unsigned status, const struct session *session)
{
    if (session->process_count * session->gpu_count > PARTS_AT_ONCE) {
        struct showing *showing = malloc(sizeof(*showing));
        if (showing)
            *showing = (struct showing){.daemon = request->daemon,
                                        .as_gslice = api_is_gslice(request),
                                        .text = begin_session(session)};
        api_reply_pieces(request, status, "application/json", write_shown, showing);
        return;
    }
    json_t *json = api_session_json(session);
    if (api_is_gslice(request))
        api_write_as_gslice(json);
    http_reply_json(request, status, json);
}

/* --- All sessions ---------------------------------------------------------------------------------- */

struct listing {
    const struct daemon *daemon;
    uid_t uid;
    bool as_gslice;
    uint64_t last; /* the number of the newest session when the request came */
    bool is_begun, is_in_session;
    struct session_text text; /* the session that is being written, or was written last */
};

static const struct session *next_session(const struct listing *listing)
{
    const struct session *session = session_behind(listing->daemon, listing->text.id, listing->text.number);
    while (session && !session_is_visible(session, listing->uid))
        session = session->next;
    return session && session->number <= listing->last ? session : NULL;
}

static enum pieces_next write_listing(void *context, FILE *out)
{
    struct listing *listing = context;
    if (!listing->is_in_session) {
        const struct session *session = next_session(listing);
        fputs(!listing->is_begun ? "[" : session ? "," : "", out);
        fputs(session ? "\n" : listing->is_begun ? "\n]\n" : "]\n", out);
        if (!session)
            return PIECES_END;
        listing->text = begin_session(session);
        listing->is_begun = listing->is_in_session = true;
    }
    enum pieces_next next = write_session(listing->daemon, &listing->text, listing->as_gslice, out);
    listing->is_in_session = next == PIECES_MORE;
    return next == PIECES_FAILED ? PIECES_FAILED : PIECES_MORE;
}

void api_list_sessions(struct http_request *request, const char *id)
{
    const struct daemon *daemon = request->daemon;
    struct listing *listing = malloc(sizeof(*listing));
    if (listing)
        *listing = (struct listing){
            .daemon = daemon,
            .uid = request->peer.uid,
            .as_gslice = api_is_gslice(request),
            .last = daemon->last_session ? daemon->last_session->number : 0,
        };
    api_reply_pieces(request, 200, "application/json", write_listing, listing);
}

/* --- All GPUs -------------------------------------------------------------------------------------- */

struct gpu_listing {
    struct daemon *daemon;
    uid_t viewer;
    unsigned gpu;
    bool is_begun, is_in_gpu, has_process;
    unsigned process; /* the next one; a sample in between may list other processes */
};

static enum pieces_next write_gpu_processes(struct gpu_listing *listing, const struct gpu *gpu, FILE *out)
{
    unsigned end = listing->process + PARTS_AT_ONCE / 4; /* each costs look-ups in /proc */
    for (; listing->process < gpu->process_count && listing->process < end; listing->process++) {
        json_t *process =
            api_gpu_process_json(listing->daemon, &gpu->processes[listing->process], listing->viewer);
        if (!process)
            continue;
        if (listing->has_process)
            fputc(',', out);
        listing->has_process = true;
        if (!api_dump(process, out))
            return PIECES_FAILED;
    }
    return listing->process < gpu->process_count ? PIECES_MORE : PIECES_END;
}

static enum pieces_next write_gpus(void *context, FILE *out)
{
    struct gpu_listing *listing = context;
    const struct gpu *gpu = &listing->daemon->gpus[listing->gpu];
    if (listing->gpu == listing->daemon->gpu_count) {
        fputs(listing->is_begun ? "\n]\n" : "[]\n", out);
        return PIECES_END;
    }
    if (!listing->is_in_gpu) {
        fputs(listing->is_begun ? ",\n" : "[\n", out);
        if (!api_dump_open(api_gpu_head_json(listing->daemon, gpu), "processes", out))
            return PIECES_FAILED;
        listing->is_begun = listing->is_in_gpu = true;
        listing->has_process = false;
        listing->process = 0;
    }
    enum pieces_next next = write_gpu_processes(listing, gpu, out);
    if (next == PIECES_END) {
        fputs("]}", out);
        listing->is_in_gpu = false;
        listing->gpu++;
    }
    return next == PIECES_FAILED ? PIECES_FAILED : PIECES_MORE;
}

static void send_gpus(void *argument)
{
    struct http_request *request = argument;
    struct gpu_listing *listing = malloc(sizeof(*listing));
    if (listing)
        *listing = (struct gpu_listing){.daemon = request->daemon, .viewer = request->peer.uid};
    api_reply_pieces(request, 200, "application/json", write_gpus, listing);
}

void api_list_gpus(struct http_request *request, const char *id)
{
    gpu_refresh(request->daemon, send_gpus, request);
}
