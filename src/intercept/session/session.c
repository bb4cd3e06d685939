#include "intercept/session/session.h"
#include "intercept/resolve/guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "intercept/resolve/report.h"
#include "intercept/resolve/unknown.h"
#include "intercept/session/attach.h"
#include "intercept/session/foreign.h"
#include "intercept/session/standalone.h"

#define SYSTEM_SOCKET "/run/gpuslice/attach.sock"
#define FIRST_ATTACH_MS 10000 /* a program that was told to run in a session waits for its daemon */
#define REATTACH_MS 1000      /* a process that has a ledger can do without the daemon */
#define TRY_AGAIN_NS UINT64_C(1000000000)
#define COME_AGAIN_NS UINT64_C(10000000) /* less than from the end of one daemon until the next one serves */
#define CONTEXT_COST_MS 200
#define NO_EPOCH UINT64_MAX                    /* no ledger has it */
#define NO_MEMORY_LIMIT "18446744073709551615" /* LEDGER_UNLIMITED, as limits are written */
/* Shorter than the daemon waits after a notice, so that the same sample sees what happens in between. */
#define NOTICE_PAUSE_NS UINT64_C(20000000)

atomic_bool session_outside;
_Atomic uint64_t session_memory;

static struct session_settings settings;
static bool settings_read;
static bool settings_ask;        /* the environment says nothing: the system daemon's rules decide */
static const char *settings_bad; /* a variable that is too long, or cannot be read; then it fails closed */

const struct session_settings *session_settings(void)
{
    return &settings;
}

void session_forget(void)
{
    atomic_fetch_add_explicit(&session_memory, 1,
                              memory_order_release); /* charge.c reads it before it remembers */
}

/* An unset variable is an empty one. Returns whether it is set to something. */
static bool read_variable(const char *name, char *value, size_t bytes)
{
    const char *text = secure_getenv(name);
    size_t length = text ? strlen(text) : 0;
    if (length >= bytes) {
        settings_bad = name;
        length = 0;
    }
    memcpy(value, text ? text : "", length);
    value[length] = '\0';
    return text && *text;
}

/* Read other systems' variables, where ours are not set. They never take a process out of a session. */
static void read_foreign(void)
{
    if (*settings.session_id)
        return;
    if (!*settings.limit && !foreign_hami_limits("CUDA_DEVICE_MEMORY_LIMIT", NO_MEMORY_LIMIT, settings.limit,
                                                 sizeof(settings.limit)))
        settings_bad = "CUDA_DEVICE_MEMORY_LIMIT";
    if (!*settings.compute &&
        !foreign_hami_limits("CUDA_DEVICE_SM_LIMIT", "100", settings.compute, sizeof(settings.compute)))
        settings_bad = "CUDA_DEVICE_SM_LIMIT";
    if (foreign_limits_are_off()) { /* a rule of the daemon may still name the process */
        settings.limit[0] = settings.compute[0] = '\0';
        settings_bad = NULL;
    }
    settings.shows_whole_nvml = foreign_nvml_is_off();
}

static void read_settings(void)
{
    settings_read = true;
    read_variable("GPUSLICE_SESSION", settings.session_id, sizeof(settings.session_id));
    read_variable("GPUSLICE_IPC_TOKEN", settings.token, sizeof(settings.token));
    read_variable("GPUSLICE_IPC_SOCK", settings.socket_path, sizeof(settings.socket_path));
    if (!read_variable("GPUSLICE_MEMORY_LIMIT", settings.limit, sizeof(settings.limit)))
        read_variable("TENSOR_FUSION_CUDA_MEM_LIMIT", settings.limit, sizeof(settings.limit));
    if (!read_variable("GPUSLICE_COMPUTE_LIMIT", settings.compute, sizeof(settings.compute)))
        read_variable("TENSOR_FUSION_CUDA_UP_LIMIT", settings.compute, sizeof(settings.compute));
    read_foreign();
    read_variable("GPUSLICE_OVERSUBSCRIBE", settings.oversubscribe, sizeof(settings.oversubscribe));
    settings.may_pass_card = foreign_says_single_oversubscription();
    settings_ask = !settings_bad && !*settings.session_id && !*settings.limit && !*settings.compute;
    if (settings_ask && getauxval(AT_SECURE))
        atomic_store_explicit(&session_outside, true, memory_order_relaxed);
    if (settings_ask && !*settings.socket_path)
        strcpy(settings.socket_path, SYSTEM_SOCKET);
}

/* Set up `attachment` as the settings say. 0 or a negative errno. */
static int open_ledger(const struct attachment *previous, struct lock *lock, struct attachment *attachment,
                       struct error *error)
{
    if (settings_bad)
        return error_set(
            error, EINVAL, NULL,
            "%s in the environment is too long, or cannot be read; set it as `gpuslice run` does",
            settings_bad);
    if (!*settings.session_id && !settings_ask)
        return standalone_open(&settings, lock, attachment, error);
    if (!*settings.socket_path)
        return error_set(error, EINVAL, NULL,
                         "GPUSLICE_IPC_SOCK is not set; start the program by `gpuslice run`");
    int result =
        attach_open(&settings, previous, previous ? REATTACH_MS : FIRST_ATTACH_MS, attachment, error);
    attachment->slot.lock = lock;
    if (result == 0 && settings_ask) {
        memcpy(settings.session_id, attachment->slot.ledger.policy->session_id, sizeof(settings.session_id));
        settings.session_id[sizeof(settings.session_id) - 1] = '\0';
        settings_ask = false;
    }
    return result;
}

static void say_refused(struct private_area *area, const struct error *error)
{
    bool has_answered = error->status == EACCES; /* else there may be no daemon */
    if (*settings.session_id)
        report_once(&area->said_refused, "session %s: %s. All GPU memory is refused to this process%s",
                    settings.session_id, error->message,
                    has_answered ? "; start it again by 'gpuslice run', in a session that exists"
                                 : " until it can attach; start the daemon, or run the program without "
                                   "GPUSLICE_SESSION");
    else
        report_once(&area->said_refused, "%s. All GPU memory is refused to this process", error->message);
}

/* The process is in no session and has no limit that we read. */
static void say_unlimited(void)
{
    const char *name = foreign_unread_limit();
    if (name && !foreign_limits_are_off())
        report_line(
            "%s is set, but does not limit this program; GPUSLICE_MEMORY_LIMIT does, and 'gpuslice run "
            "--memory SIZE'",
            name);
}

/* Charges a new slot for what the process holds; the room that charges (memory/) registers it. */
static _Atomic(void (*)(struct ledger_slot *)) move_charges;

void session_when_slot_changes(void (*charge)(struct ledger_slot *slot))
{
    atomic_store_explicit(&move_charges, charge, memory_order_relaxed);
}

static void change_slot(struct ledger_slot *slot)
{
    void (*charge)(struct ledger_slot *) = atomic_load_explicit(&move_charges, memory_order_relaxed);
    if (charge)
        charge(slot);
}

/* Whether indices in records mean the same GPUs under both policies. */
static bool same_gpus(const struct ledger_policy *one, const struct ledger_policy *other)
{
    if (one->gpu_count != other->gpu_count)
        return false;
    for (uint32_t i = 0; i < one->gpu_count && i < LEDGER_GPUS; i++)
        if (memcmp(one->gpus[i].uuid, other->gpus[i].uuid, sizeof(one->gpus[i].uuid)) != 0)
            return false;
    return true;
}

/* --- Functions that nobody here knows -------------------------------------------------------------- */

/* A thread could not tell of them, since another one spoke with the daemon. That one does it. */
static atomic_bool has_untold;

static void tell_unknown(void);

static void stop_deciding(struct private_area *area)
{
    guard_unlock(&area->deciding);
    if (atomic_exchange_explicit(&has_untold, false, memory_order_relaxed))
        tell_unknown();
}

static void tell_unknown(void)
{
    struct private_area *area = atomic_load_explicit(&private_area, memory_order_acquire);
    struct attachment *attachment =
        area ? atomic_load_explicit(&area->attachment, memory_order_acquire) : NULL;
    if (!attachment || attachment->standalone)
        return;
    int saved_errno = errno;
    atomic_store_explicit(&has_untold, true, memory_order_relaxed);
    if (guard_trylock(&area->deciding)) {
        atomic_store_explicit(&has_untold, false, memory_order_relaxed);
        attach_tell_unknown();
        guard_unlock(&area->deciding);
    }
    errno = saved_errno;
}

/* --- Attaching -------------------------------------------------------------------------------------- */

/* A copy that stays for ever, since threads read attachments without a lock. NULL: no memory (errno). */
static struct attachment *keep(const struct attachment *made)
{
    struct attachment *kept =
        mmap(NULL, sizeof(*kept), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (kept == MAP_FAILED)
        return NULL;
    *kept = *made;
    return kept;
}

static void publish(struct private_area *area, struct attachment *kept)
{
    atomic_store_explicit(&area->attachment, kept, memory_order_release); /* session_mode(), session_slot() */
}

/* Attach, or attach again. Under `deciding`. */
static enum session_mode attach(struct private_area *area, const struct attachment *previous)
{
    struct error error = {0};
    struct attachment made = {0};
    int result = open_ledger(previous, &area->slot_lock, &made, &error);
    if (result == 0 && previous && !same_gpus(previous->slot.ledger.policy, made.slot.ledger.policy))
        result = error_set(&error, EPROTO, NULL, "the session's GPUs have changed");
    struct attachment *kept = result == 0 ? keep(&made) : NULL;
    if (result == 0 && !kept)
        result = error_set_errno(&error, errno, "no memory");
    if (result == -ENOENT && settings_ask) {
        atomic_store_explicit(&session_outside, true, memory_order_relaxed);
        say_unlimited();
        return SESSION_OUTSIDE;
    }
    if (result < 0) {
        atomic_store_explicit(&area->next_try_ns, monotonic_ns() + TRY_AGAIN_NS, memory_order_relaxed);
        if (previous) {
            report_debug("cannot attach again: %s", error.message);
            return SESSION_INSIDE;
        }
        say_refused(area, &error);
        atomic_store_explicit(&area->mode, SESSION_REFUSED, memory_order_relaxed);
        return SESSION_REFUSED;
    }
    if (previous &&
        (made.slot.ledger.usage != previous->slot.ledger.usage || made.slot.index != previous->slot.index ||
         made.slot.generation != previous->slot.generation))
        change_slot(&kept->slot);
    publish(area, kept);
    atomic_store_explicit(&area->mode, SESSION_INSIDE, memory_order_relaxed);
    /* If the epoch still differs, do not try again at once. */
    atomic_store_explicit(&area->next_try_ns, previous ? monotonic_ns() + COME_AGAIN_NS : 0,
                          memory_order_relaxed);
    session_forget();
    unknown_when_asked(tell_unknown);
    atomic_store_explicit(&has_untold, true, memory_order_relaxed); /* what was asked for before */
    return SESSION_INSIDE;
}

enum session_mode session_mode_slow(void)
{
    int saved_errno = errno;
    struct private_area *area = private_get();
    if (!area)
        return SESSION_REFUSED;

    uint64_t next_try_ns = atomic_load_explicit(&area->next_try_ns, memory_order_relaxed);
    enum session_mode mode = atomic_load_explicit(&area->mode, memory_order_relaxed);
    if (mode != SESSION_UNDECIDED && next_try_ns && monotonic_ns() < next_try_ns)
        return mode;

    guard_lock(&area->deciding);
    if (!settings_read)
        read_settings();
    mode = atomic_load_explicit(&area->mode, memory_order_relaxed);
    const struct attachment *attachment = atomic_load_explicit(&area->attachment, memory_order_relaxed);
    next_try_ns = atomic_load_explicit(&area->next_try_ns, memory_order_relaxed);
    if (atomic_load_explicit(&session_outside, memory_order_relaxed)) {
        mode = SESSION_OUTSIDE;
    } else if (mode == SESSION_UNDECIDED || !next_try_ns || monotonic_ns() >= next_try_ns) {
        /* Another thread may have done it while we waited. */
        if (attachment && ledger_epoch(attachment->slot.ledger.usage) == attachment->epoch)
            mode = SESSION_INSIDE;
        else
            mode = attach(area, attachment);
    }
    stop_deciding(area);
    errno = saved_errno;
    return mode;
}

void session_doubt(void)
{
    struct private_area *area = private_get();
    guard_lock(&area->deciding);
    const struct attachment *held = atomic_load_explicit(&area->attachment, memory_order_relaxed);
    struct attachment *doubted = held->epoch != NO_EPOCH ? keep(held) : NULL;
    if (doubted) {
        doubted->epoch = NO_EPOCH;
        publish(area, doubted);
        atomic_store_explicit(&area->next_try_ns, 0, memory_order_relaxed);
    }
    stop_deciding(area);
}

int session_gpu(const uint8_t uuid[static 16], int ordinal)
{
    struct private_area *area = private_get();
    struct attachment *attachment = atomic_load_explicit(&area->attachment, memory_order_acquire);
    int gpu = ledger_gpu_find(attachment->slot.ledger.policy, uuid);
    if (gpu >= 0 || !attachment->standalone)
        return gpu;
    guard_lock(&area->deciding);
    gpu = ledger_gpu_find(attachment->slot.ledger.policy, uuid);
    if (gpu < 0)
        gpu = standalone_add_gpu(&attachment->slot.ledger, uuid, ordinal);
    stop_deciding(area);
    return gpu;
}

bool session_is_standalone(void)
{
    struct private_area *area = private_get();
    return atomic_load_explicit(&area->attachment, memory_order_acquire)->standalone;
}

bool session_is_simulated(void)
{
    const char *simulated = getenv("GPUSLICE_SIMULATED");
    return simulated && *simulated && strcmp(simulated, "0") != 0;
}

uint64_t session_context_cost(uint32_t gpu)
{
    struct private_area *area = private_get();
    int saved_errno = errno;
    uint64_t bytes;
    if (session_is_standalone()) {
        bytes = standalone_context_cost(session_slot(), gpu);
    } else {
        guard_lock(&area->deciding);
        bytes = attach_context_cost(gpu, CONTEXT_COST_MS);
        stop_deciding(area);
    }
    errno = saved_errno;
    return bytes;
}

/* Post a notice, unless one was posted a moment before `*last_ns` tells. */
static void post_notice(struct private_area *area, _Atomic uint64_t *last_ns,
                        const struct wire_notice *notice)
{
    uint64_t now = monotonic_ns(), last = atomic_load_explicit(last_ns, memory_order_relaxed);
    if (now - last < NOTICE_PAUSE_NS || !atomic_compare_exchange_strong_explicit(
                                            last_ns, &last, now, memory_order_relaxed, memory_order_relaxed))
        return;
    /* The thread that holds the lock waits for the daemon. If it waits for the cost of a context, it sends a notice
     * itself afterwards. */
    int saved_errno = errno;
    if (guard_trylock(&area->deciding)) {
        attach_notice(notice);
        stop_deciding(area);
    } else {
        atomic_store_explicit(last_ns, 0, memory_order_relaxed);
    }
    errno = saved_errno;
}

/* The area of a process that has a daemon to tell; NULL: it has none. */
static struct private_area *area_with_daemon(void)
{
    struct private_area *area = atomic_load_explicit(&private_area, memory_order_acquire);
    struct attachment *attachment =
        area ? atomic_load_explicit(&area->attachment, memory_order_acquire) : NULL;
    return attachment && !attachment->standalone ? area : NULL;
}

void session_notice(enum wire_notice_kind kind)
{
    struct private_area *area = area_with_daemon();
    if (area)
        post_notice(area, &area->noticed_ns, &(struct wire_notice){.kind = kind});
}

void session_tell_refusal(const struct wire_refusal_told *refusal)
{
    struct private_area *area = area_with_daemon();
    if (area)
        post_notice(area, &area->refusal_told_ns,
                    &(struct wire_notice){.kind = WIRE_NOTICE_DENIED, .refusal = *refusal});
}
