#include "daemon/history/refusal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/units.h"
#include "daemon/gpu/card.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"

/* A text that grows, and is cut where it does not fit. */
struct text {
    char *at;
    size_t left;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    size_t used = length < 0 ? 0 : (size_t)length < text->left ? (size_t)length : text->left - 1;
    text->at += used;
    text->left -= used;
}

/* --- Who holds the card ---------------------------------------------------------------------------- */

/* What each session shows on a card, by NVML. */
static uint64_t shown_on(const struct session *session, int card)
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu == card)
            return session->gpus[i].shown_bytes;
    return 0;
}

/* "'lab' has 12GiB, other users' sessions 3GiB, programs outside of sessions 2GiB", as far as there are such. */
static void add_holders(struct text *text, const struct session *asker, int card)
{
    const struct daemon *daemon = asker->daemon;
    const struct session *largest = NULL;
    uint64_t own = 0, others = 0, outside = promises_outside_bytes(daemon, (unsigned)card);
    char bytes[UNITS_BYTES_TEXT];
    for (const struct session *at = daemon->sessions; at; at = at->next) {
        uint64_t shown = at == asker ? 0 : shown_on(at, card);
        if (at->owner != asker->owner) {
            others += shown;
            continue;
        }
        own += shown;
        if (shown && (!largest || shown > shown_on(largest, card)))
            largest = at;
    }
    const char *separator = "";
    if (largest) {
        uint64_t most = shown_on(largest, card);
        add(text, "session '%s' has %s", *largest->name ? largest->name : largest->id,
            units_format_bytes(most, bytes));
        if (own > most)
            add(text, ", your other sessions %s", units_format_bytes(own - most, bytes));
        separator = ", ";
    }
    if (others) {
        add(text, "%sother users' sessions %s%s", separator, largest ? "" : "have ",
            units_format_bytes(others, bytes));
        separator = ", ";
    }
    if (outside)
        add(text, "%sprograms outside of sessions %s%s", separator, *separator ? "" : "have ",
            units_format_bytes(outside, bytes));
    if (!largest && !others && !outside)
        add(text, "'gpuslice gpus' shows what is on it");
}

/* --- What is told ---------------------------------------------------------------------------------- */

static const char *label_of(const struct session *session, unsigned gpu)
{
    int card = session->gpus[gpu].gpu;
    return card >= 0 ? session->daemon->gpus[card].label : "?";
}

static void add_cause(struct text *text, const struct session *session)
{
    const struct session_refusal *refusal = &session->refusal;
    char used[UNITS_BYTES_TEXT], limit[UNITS_BYTES_TEXT];
    int card = session->gpus[refusal->gpu].gpu;
    units_format_bytes(refusal->used_bytes, used);
    units_format_bytes(refusal->limit_bytes, limit);
    if (!refusal->is_by_card) {
        add(text, "the session uses %s of its limit %s", used, limit);
        return;
    }
    add(text, "the card is full");
    if (card >= 0) {
        add(text, " (");
        add_holders(text, session, card);
        add(text, ")");
    }
    add(text, "; the session uses %s of its limit %s", used, limit);
}

const char *refusal_text(const struct session *session, uint64_t count, char text[static REFUSAL_TEXT])
{
    const struct session_refusal *refusal = &session->refusal;
    struct text left = {.at = text, .left = REFUSAL_TEXT};
    char asked[UNITS_BYTES_TEXT];
    if (!refusal->pid) {
        add(&left, "%" PRIu64 " request%s for GPU memory %s refused", count, count == 1 ? "" : "s",
            count == 1 ? "was" : "were");
        return text;
    }
    add(&left, "%s (%d) was refused %s on GPU %s: ", refusal->command, (int)refusal->pid,
        refusal->asked_bytes ? units_format_bytes(refusal->asked_bytes, asked) : "memory for its code",
        label_of(session, refusal->gpu));
    add_cause(&left, session);
    if (count > 1)
        add(&left, "; %" PRIu64 " requests were refused since the last such event", count);
    return text;
}

/* A program may tell any number. */
static json_int_t told_bytes(uint64_t bytes)
{
    return bytes < INT64_MAX ? (json_int_t)bytes : INT64_MAX;
}

json_t *refusal_json(const struct session *session, uint64_t count)
{
    const struct session_refusal *refusal = &session->refusal;
    json_t *json = json_pack("{s:I}", "denied_allocations", (json_int_t)count);
    int card = refusal->pid ? session->gpus[refusal->gpu].gpu : -1;
    if (!refusal->pid)
        return json;
    json_t *more = json_pack(
        "{s:i,s:s,s:s,s:s*,s:o,s:I,s:I}", "pid", (int)refusal->pid, "command", refusal->command, "cause",
        refusal->is_by_card ? "card" : "limit", "uuid",
        card >= 0 ? session->daemon->gpus[card].uuid_text : NULL, "asked_bytes",
        refusal->asked_bytes ? json_integer(told_bytes(refusal->asked_bytes)) : json_null(), "used_bytes",
        told_bytes(refusal->used_bytes), "limit_bytes", told_bytes(refusal->limit_bytes));
    json_object_update_missing(json, more);
    json_decref(more);
    return json;
}
