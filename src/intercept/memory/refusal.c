#include "intercept/memory/refusal.h"

#include <errno.h>
#include <stdio.h>

#include "base/units.h"
#include "cuda/uuid.h"
#include "intercept/resolve/report.h"
#include "intercept/session/private.h"
#include "intercept/session/session.h"

/* What a line is made of. */
struct told {
    const struct ledger_policy *policy;
    char uuid[GPU_UUID_TEXT], asked[UNITS_BYTES_TEXT], used[UNITS_BYTES_TEXT], limit[UNITS_BYTES_TEXT];
    const char *what, *simulated;
};

static bool was_said(void)
{
    return atomic_load_explicit(&private_get()->said_denied, memory_order_relaxed);
}

static struct wire_refusal_told refusal_now(uint32_t gpu, uint64_t bytes, enum wire_refusal_cause cause)
{
    const struct ledger *ledger = &session_slot()->ledger;
    return (struct wire_refusal_told){
        .cause = cause,
        .gpu = gpu,
        .asked_bytes = bytes,
        .used_bytes = ledger_used(ledger, gpu) + ledger_unseen(ledger->policy, gpu),
        .limit_bytes = atomic_load_explicit(&ledger->policy->gpus[gpu].limit_bytes, memory_order_relaxed)};
}

static struct told tell(const struct wire_refusal_told *refusal)
{
    const struct ledger_policy *policy = session_slot()->ledger.policy;
    const struct ledger_policy_gpu *gpu = &policy->gpus[refusal->gpu];
    struct told told = {.policy = policy, .simulated = session_is_simulated() ? " --simulated" : ""};
    gpu_uuid_format(gpu->uuid, told.uuid);
    if (gpu->is_mig)
        gpu_uuid_set_mig(told.uuid);
    units_format_bytes(refusal->asked_bytes, told.asked);
    units_format_bytes(refusal->used_bytes, told.used);
    units_format_bytes(refusal->limit_bytes, told.limit);
    uint64_t context_bytes = atomic_load_explicit(&gpu->context_bytes, memory_order_relaxed);
    told.what =
        refusal->asked_bytes && refusal->asked_bytes == context_bytes ? ", what a CUDA context takes," : "";
    return told;
}

/* --- By the limit ---------------------------------------------------------------------------------- */

#define ENOUGH_TEXT 32 /* for a number in bytes, and a unit */

/* The most that a limit may be; UINT64_MAX: nobody says. */
static uint64_t most_of_card(const struct wire_refusal_told *refusal, const struct ledger_policy *policy)
{
    uint64_t bytes = atomic_load_explicit(&policy->gpus[refusal->gpu].total_bytes, memory_order_relaxed);
    return bytes && !policy->may_pass_card ? bytes : UINT64_MAX;
}

/* A limit that would be enough, in the coarsest unit that does not go beyond the card; whole GiB only for more than one. False: the
 * card has not so much. */
static bool find_enough(const struct wire_refusal_told *refusal, uint64_t most, char text[static ENOUGH_TEXT])
{
    static const struct {
        uint64_t bytes;
        const char *name;
    } units[] = {{UINT64_C(1) << 30, "GiB"}, {UINT64_C(1) << 20, "MiB"}, {1, ""}};
    uint64_t bytes;
    if (__builtin_add_overflow(refusal->used_bytes, refusal->asked_bytes, &bytes) || bytes > most)
        return false;
    unsigned unit = bytes > units[0].bytes ? 0 : 1;
    while (most / units[unit].bytes < bytes / units[unit].bytes + (bytes % units[unit].bytes != 0))
        unit++;
    uint64_t count = bytes / units[unit].bytes + (bytes % units[unit].bytes != 0);
    snprintf(text, ENOUGH_TEXT, "%llu%s", (unsigned long long)count, units[unit].name);
    return true;
}

/* What the user can do depends on where the session's limit comes from. */
static void advise(char *text, size_t size, const struct told *told, const struct wire_refusal_told *refusal)
{
    char enough[ENOUGH_TEXT], card[UNITS_BYTES_TEXT];
    const char *id = told->policy->session_id;
    uint64_t most = most_of_card(refusal, told->policy);
    if (!find_enough(refusal, most, enough)) {
        snprintf(text, size,
                 most == UINT64_MAX ? "No limit allows it" : "No limit allows it: the card has %s",
                 units_format_bytes(most, card));
        return;
    }
    if (session_is_standalone()) {
        snprintf(text, size, "To allow it: GPUSLICE_MEMORY_LIMIT=%s", enough);
        return;
    }
    switch ((enum ledger_limit_from)told->policy->limit_from) {
    case LEDGER_LIMIT_FROM_RUN:
        snprintf(text, size, "Run it again with --memory %s", enough);
        return;
    case LEDGER_LIMIT_FROM_FILE:
        snprintf(text, size, "To allow it: memory = %s for this session in sessions.conf", enough);
        return;
    case LEDGER_LIMIT_FROM_POD:
        snprintf(text, size, "To allow it: more slices for the pod, or more memory in its claim (%s)",
                 enough);
        return;
    case LEDGER_LIMIT_FROM_JOB:
        snprintf(text, size, "To allow it: ask for %s when the job is submitted", enough);
        return;
    case LEDGER_LIMIT_FROM_SESSION:
        break;
    }
    snprintf(text, size, "To allow it: gpuslice set%s %.*s --memory %s", told->simulated,
             LEDGER_SESSION_ID_BYTES, id, enough);
}

static void say_limit(const struct wire_refusal_told *refusal)
{
    struct told told = tell(refusal);
    char advice[160], where[sizeof(" in session ") + LEDGER_SESSION_ID_BYTES] = "";
    advise(advice, sizeof(advice), &told, refusal);
    if (!session_is_standalone())
        snprintf(where, sizeof(where), " in session %.*s", LEDGER_SESSION_ID_BYTES, told.policy->session_id);
    report_once(&private_get()->said_denied,
                "out of memory%s: asked for %s (%llu bytes)%s on %s; used %s of the limit %s. %s", where,
                told.asked, (unsigned long long)refusal->asked_bytes, told.what, told.uuid, told.used,
                told.limit, advice);
}

void refusal_by_limit(uint32_t gpu, uint64_t bytes)
{
    if (session_mode() != SESSION_INSIDE)
        return; /* a process that could not attach has said why already */
    int saved_errno = errno;
    const struct ledger_policy *policy = session_slot()->ledger.policy;
    struct wire_refusal_told refusal = refusal_now(gpu, bytes, WIRE_REFUSAL_BY_LIMIT);
    session_tell_refusal(&refusal);
    if (!session_is_standalone() && atomic_load_explicit(&policy->closed, memory_order_relaxed))
        report_once(&private_get()->said_denied, "out of memory: session %.*s was released or has expired",
                    LEDGER_SESSION_ID_BYTES, policy->session_id);
    else if (!was_said())
        say_limit(&refusal);
    errno = saved_errno;
}

/* --- By the card ----------------------------------------------------------------------------------- */

static const char *left_text(const struct refusal_by_card *what, char *text, size_t size)
{
    char free_text[UNITS_BYTES_TEXT], total_text[UNITS_BYTES_TEXT];
    snprintf(
        text, size, what->total_bytes ? "the card has only %s of %s left" : "the card has too little left",
        units_format_bytes(what->free_bytes, free_text), units_format_bytes(what->total_bytes, total_text));
    return text;
}

static void say_card(const struct wire_refusal_told *refusal, const char *left)
{
    struct told told = tell(refusal);
    char asked[UNITS_BYTES_TEXT + 72] = "the program's code needs more on";
    if (refusal->asked_bytes)
        snprintf(asked, sizeof(asked), "asked for %s (%llu bytes)%s on", told.asked,
                 (unsigned long long)refusal->asked_bytes, told.what);
    if (session_is_standalone())
        report_once(&private_get()->said_denied, "out of memory: %s %s; used %s of the limit %s, but %s",
                    asked, told.uuid, told.used, told.limit, left);
    else
        report_once(
            &private_get()->said_denied,
            "out of memory in session %.*s: %s %s; used %s of the limit %s, but %s. 'gpuslice gpus%s' "
            "shows who has the rest",
            LEDGER_SESSION_ID_BYTES, told.policy->session_id, asked, told.uuid, told.used, told.limit, left,
            told.simulated);
}

void refusal_by_card(const struct refusal_by_card *what)
{
    if (session_mode() != SESSION_INSIDE)
        return;
    int saved_errno = errno;
    char left[120];
    struct wire_refusal_told refusal = refusal_now(what->gpu, what->asked_bytes, WIRE_REFUSAL_BY_CARD);
    refusal.used_bytes -= refusal.used_bytes < what->charged_bytes ? refusal.used_bytes : what->charged_bytes;
    ledger_count_refused(session_slot(), what->gpu);
    session_tell_refusal(&refusal);
    if (!was_said())
        say_card(&refusal, left_text(what, left, sizeof(left)));
    errno = saved_errno;
}

/* --- Of a GPU -------------------------------------------------------------------------------------- */

void refusal_of_gpu(void)
{
    if (session_mode() != SESSION_INSIDE || was_said())
        return;
    int saved_errno = errno;
    if (session_is_standalone())
        report_once(&private_get()->said_denied,
                    "out of memory: GPUSLICE_MEMORY_LIMIT does not name this GPU");
    else
        report_once(&private_get()->said_denied,
                    "out of memory: session %.*s does not have this GPU; use one of CUDA_VISIBLE_DEVICES as "
                    "`gpuslice run` sets it",
                    LEDGER_SESSION_ID_BYTES, session_slot()->ledger.policy->session_id);
    errno = saved_errno;
}

void refusal_at(bool is_named, uint32_t gpu, uint64_t bytes)
{
    if (is_named)
        refusal_by_limit(gpu, bytes);
    else
        refusal_of_gpu();
}
