/* Sessions and GPUs as answers show them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"
#include "daemon/api/api.h"
#include "daemon/api/session_status.h"
#include "daemon/api/user_names.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gpu/nvml.h"
#include "daemon/gpu/traits.h"
#include "daemon/history/nvml_time.h"
#include "daemon/loop/clocks.h"
#include "daemon/loop/daemon.h"
#include "daemon/process/driver_line.h"
#include "daemon/residency/moves.h"
#include "daemon/residency/stays.h"
#include "daemon/schedule/standing.h"
#include "daemon/session/admission.h"
#include "daemon/session/own_socket.h"
#include "daemon/session/process.h"
#include "daemon/session/promises.h"
#include "daemon/session/queue.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_show.h"

/* A hostile process may have written any number into its slot; JSON's integers end at 63 bits. */
static json_t *bytes_json(uint64_t bytes)
{
    return json_integer(bytes > INT64_MAX ? INT64_MAX : (json_int_t)bytes);
}

static uint64_t add_bytes(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static json_t *time_json(int64_t seconds)
{
    char text[TIME_TEXT];
    return seconds ? json_string(identity_format_time(seconds, text)) : json_null();
}

/* A program may have given itself any name, and the kernel cuts names in the middle of a character. */
static json_t *text_json(const char *text)
{
    size_t length = strlen(text);
    json_t *json = json_string(text);
    for (size_t cut = 1; !json && cut <= 3 && cut < length; cut++)
        json = json_stringn(text, length - cut);
    return json ? json : json_string("?");
}

/* Null for a whole card, or if there is no card. */
static json_t *mig_index_json(const struct gpu *gpu)
{
    return gpu && gpu->mig_index >= 0 ? json_integer(gpu->mig_index) : json_null();
}

static json_t *session_gpu_json(const struct session *session, unsigned policy_gpu)
{
    const struct session_gpu *gpu = &session->gpus[policy_gpu];
    const struct gpu *card = gpu->gpu >= 0 ? &session->daemon->gpus[gpu->gpu] : NULL;
    const bool is_by_nvml = nvml_time_counts(session, policy_gpu);
    char uuid[GPU_UUID_TEXT];
    return json_pack(
        "{s:o,s:o,s:s,s:o,s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:f,s:b,s:f,s:f,s:f}", "index",
        card ? json_integer(card->index) : json_null(), "mig_index", mig_index_json(card), "uuid",
        session_gpu_uuid(gpu, uuid), "name", card ? text_json(card->name) : json_null(), "limit_bytes",
        bytes_json(gpu->limit_bytes), "reserved", gpu->reserved, "used_bytes",
        bytes_json(session_used(session, policy_gpu)), "driver_bytes", bytes_json(gpu->driver_bytes),
        "orphan_bytes", bytes_json(gpu->orphan_bytes), "total_bytes",
        card ? bytes_json(card->total_bytes) : json_null(), "context_bytes",
        card ? bytes_json(card->context_bytes) : json_null(), "compute_achieved_ratio",
        is_by_nvml ? nvml_time_ratio(session, policy_gpu) : standing_achieved_ratio(session, policy_gpu),
        "achieved_by_nvml", is_by_nvml, "gpu_seconds",
        (double)(standing_used_ns(session, policy_gpu) + gpu->nvml_ns) / 1e9, "gpu_seconds_by_nvml",
        (double)gpu->nvml_ns / 1e9, "gpu_held_seconds", (double)standing_held_ns(session, policy_gpu) / 1e9);
}

json_t *api_process_json(const struct process *process)
{
    const struct session *session = process->session;
    json_t *gpus = json_array();
    uint64_t used = 0, driver = 0, refused = 0;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        char uuid[GPU_UUID_TEXT];
        uint64_t share = driver_line_process_bytes(process, i);
        uint64_t bytes = add_bytes(ledger_slot_shown_bytes(session->ledger.usage, process->slot, i), share);
        used = add_bytes(used, bytes);
        driver = add_bytes(driver, share);
        refused += ledger_slot_counts(session->ledger.usage, process->slot, i).refused;
        json_array_append_new(gpus,
                              json_pack("{s:s,s:o,s:o}", "uuid", session_gpu_uuid(&session->gpus[i], uuid),
                                        "used_bytes", bytes_json(bytes), "driver_bytes", bytes_json(share)));
    }
    return json_pack("{s:i,s:o,s:o,s:o,s:o,s:o,s:I,s:s,s:o}", "pid", (int)process->pid, "command",
                     text_json(process->command), "attached_at", time_json(process->attached_at),
                     "used_bytes", bytes_json(used), "driver_bytes", bytes_json(driver), "denied_allocations",
                     bytes_json(refused), "unknown_pointers", (json_int_t)process->unknown_pointers,
                     "unknown_functions", process->unknown_functions ? process->unknown_functions : "",
                     "gpus", gpus);
}

static json_t *waits_json(const struct standing *standing)
{
    uint64_t count = 0;
    for (unsigned i = 0; standing->waits_by_length && i < WAITS_BUCKETS; i++)
        count += standing->waits_by_length[i];
    if (count == 0)
        return json_pack("{s:i,s:n,s:n}", "count", 0, "p50_seconds", "p99_seconds");
    return json_pack("{s:I,s:f,s:f}", "count", (json_int_t)count, "p50_seconds",
                     waits_quantile_ns(standing->waits_by_length, 0.5) / 1e9, "p99_seconds",
                     waits_quantile_ns(standing->waits_by_length, 0.99) / 1e9);
}

static json_t *progress_json(const struct standing *standing)
{
    bool is_measured = standing->waits || (standing->lease != LEASE_NONE && standing->lease != LEASE_FREE);
    return is_measured ? json_real(standing->progress) : json_null();
}

json_t *api_status_json(const struct session *session)
{
    enum session_status status = session_status(session);
    return json_pack("{s:s,s:s,s:s}", "status", session_status_word(status), "status_tone",
                     session_status_tone(status), "status_text", session_status_text(status));
}

json_t *api_lease_json(const struct session *session)
{
    struct standing standing = standing_of(session);
    char why[STANDING_WHY];
    return json_pack("{s:s,s:b,s:b,s:s,s:b,s:b,s:o,s:f,s:o,s:I}", "lease",
                     standing_lease_name(standing.lease), "waiting", standing.waits, "takes_turns",
                     standing.takes_turns, "turns_why", standing_why(session, why), "understates_use",
                     standing.understates, "undrainable", standing.is_undrainable, "compute_progress_ratio",
                     progress_json(&standing), "gate_wait_seconds", (double)standing.waited_ns / 1e9,
                     "gate_waits", waits_json(&standing), "overruns", (json_int_t)standing.overruns);
}

/* The GPUs that a queued session asked for, each with the limit that the session would have there; empty where the
 * daemon is to choose a GPU. */
static json_t *asked_gpus_json(const struct session *session)
{
    const struct session_request *request = queue_request(session);
    json_t *gpus = json_array();
    for (unsigned i = 0; request && i < request->limit_count; i++) {
        const struct session_limit *limit = &request->limits[i];
        const struct gpu *card = &session->daemon->gpus[limit->gpu];
        struct session_gpu gpu = {.is_mig = card->mig_index >= 0};
        char uuid[GPU_UUID_TEXT];
        memcpy(gpu.uuid, card->uuid, sizeof(gpu.uuid));
        json_array_append_new(
            gpus, json_pack("{s:i,s:o,s:s,s:o}", "index", card->index, "mig_index", mig_index_json(card),
                            "uuid", session_gpu_uuid(&gpu, uuid), "limit_bytes",
                            bytes_json(limit->has_bytes || request->has_bytes
                                           ? admission_asked_bytes(request, limit, card->total_bytes)
                                           : card->total_bytes)));
    }
    return gpus;
}

static json_t *path_json(const char *path)
{
    return path ? text_json(path) : json_null();
}

/* What stays on the card, and why; only reasons that there are, the largest first. */
static json_t *stays_json(const uint64_t bytes[static WIRE_STAYS_COUNT])
{
    enum wire_stays order[WIRE_STAYS_COUNT];
    json_t *stays = json_array();
    for (unsigned i = 0, count = stays_order(bytes, order); i < count; i++)
        json_array_append_new(stays,
                              json_pack("{s:s,s:o,s:s}", "why", wire_stays_word(order[i]), "bytes",
                                        bytes_json(bytes[order[i]]), "text", wire_stays_text(order[i])));
    return stays;
}

/* What answers say about memory that can leave the card, of a session that uses so much. */
static json_t *move_json(const struct session *session, uint64_t used_bytes)
{
    struct moves_standing standing = moves_standing(session);
    const struct moves_memory *memory = &standing.memory;
    moves_fit(&standing.memory, used_bytes);
    bool moves = standing.state == MOVE_LEAVING || standing.state == MOVE_COMING;
    bool has_cause =
        standing.state == MOVE_LEAVING || standing.state == MOVE_AWAY || standing.state == MOVE_PARTLY_AWAY;
    bool is_queued = session->state == SESSION_QUEUED;
    double wait = is_queued ? queue_seconds_left(session) : standing.wait_seconds_left;
    json_t *move = json_null();
    if (moves)
        move = json_pack("{s:o,s:o,s:o}", "done_bytes", bytes_json(standing.done_bytes), "total_bytes",
                         bytes_json(standing.total_bytes), "seconds_left",
                         standing.seconds_left < 0 ? json_null() : json_real(standing.seconds_left));
    return json_pack("{s:o,s:o,s:o,s:s,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "waits_for",
                     is_queued        ? json_string("queue")
                     : standing.waits ? json_string("room")
                                      : json_null(),
                     "wait_seconds_left", wait < 0 ? json_null() : json_real(wait), "wait_why",
                     *standing.wait_why ? json_string(standing.wait_why) : json_null(), "residency",
                     moves_state_name(standing.state), "waits_for_room", standing.waits, "suspended_by",
                     has_cause ? json_string(moves_cause_name(standing.cause)) : json_null(), "movable_bytes",
                     bytes_json(memory->movable_bytes), "evicted_bytes", bytes_json(memory->evicted_bytes),
                     "unmovable_bytes", bytes_json(wire_stays_sum(memory->stays_bytes)), "stays",
                     stays_json(memory->stays_bytes), "host_memory_bytes", bytes_json(standing.arena_bytes),
                     "move", move, "move_failure",
                     *standing.failure ? json_string(standing.failure) : json_null());
}

json_t *api_session_head_json(const struct session *session)
{
    json_t *gpus = json_array();
    bool is_queued = session->state == SESSION_QUEUED;
    uint64_t used = 0, driver = 0, orphaned = 0, limit = is_queued ? session->queued_bytes : 0;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        json_array_append_new(gpus, session_gpu_json(session, i));
        used = add_bytes(used, session_used(session, i));
        driver = add_bytes(driver, session->gpus[i].driver_bytes);
        orphaned = add_bytes(orphaned, session->gpus[i].orphan_bytes);
        limit = add_bytes(limit, session->gpus[i].limit_bytes);
    }
    json_t *json = json_pack(
        "{s:s,s:s,s:I,s:s,s:f,s:f,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "session_id", session->id, "name",
        session->name, "owner_uid", (json_int_t)session->owner, "state", session_state_name(session),
        "compute_min_ratio", (double)session->properties.compute.min / SHARE_WHOLE, "compute_max_ratio",
        (double)session->properties.compute.max / SHARE_WHOLE, "vram_limit_bytes", bytes_json(limit),
        "used_bytes", bytes_json(used), "driver_bytes", bytes_json(driver), "orphan_bytes",
        bytes_json(orphaned), "created_at", time_json(session->created_at), "queue_position",
        is_queued ? json_integer(queue_position(session)) : json_null(), "updated_at",
        time_json(session->updated_at), "expires_at",
        time_json(session->expires_at_ms ? (session->expires_at_ms + clock_wall_ahead_ms()) / 1000 : 0),
        "gpus", gpus);
    json_object_set_new(json, "owner", text_json(user_name_of(session->daemon, session->owner)));
    json_object_set_new(json, "declared", json_boolean(session->is_declared));
    json_object_set_new(json, "managed", json_boolean(session->is_managed));
    json_object_set_new(json, "asked_gpus", is_queued ? asked_gpus_json(session) : json_null());
    json_object_set_new(json, "own_socket", path_json(own_socket_path(session)));
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (row->answer)
            json_object_set_new(json, row->answer, property_json(row, &session->properties));
    char stays[SESSION_STAYS_TEXT];
    json_object_set_new(json, "stays_why",
                        session_shown_stays(session, stays) ? json_string(stays) : json_null());
    uint64_t most = moves_host_memory_most(session);
    json_object_set_new(json, "host_memory_most_bytes", most == UINT64_MAX ? json_null() : bytes_json(most));
    json_object_update_new(json, api_status_json(session));
    json_object_update_new(json, api_lease_json(session));
    json_object_update_new(json, move_json(session, used));
    return json;
}

json_t *api_session_json(const struct session *session)
{
    json_t *json = api_session_head_json(session), *processes = json_array();
    for (const struct process *process = session->oldest_process; process; process = process->newer)
        json_array_append_new(processes, api_process_json(process));
    json_object_set_new(json, "processes", processes);
    return json;
}

void api_write_as_gslice(json_t *json)
{
    char state[16];
    snprintf(state, sizeof(state), "%s", json_string_value(json_object_get(json, "state")));
    for (char *at = state; *at; at++)
        *at = (char)toupper((unsigned char)*at);
    json_object_set_new(json, "state", json_string(state));
}

json_t *api_environment_json(const struct session *session)
{
    char uuids[LEDGER_GPUS * GPU_UUID_TEXT] = "";
    for (unsigned i = 0; i < session->gpu_count; i++) {
        char uuid[GPU_UUID_TEXT];
        if (i)
            strcat(uuids, ",");
        strcat(uuids, session_gpu_uuid(&session->gpus[i], uuid));
    }
    json_t *environment = json_pack("{s:s,s:s,s:s,s:s}", "GPUSLICE_SESSION", session->id, "GPUSLICE_IPC_SOCK",
                                    session->daemon->paths.attach_socket, "GPUSLICE_IPC_TOKEN",
                                    session->token, "CUDA_VISIBLE_DEVICES", uuids);
    static const char prefix[] = "FAKECUDA_";
    for (char **at = environ; session->daemon->options.simulated && *at; at++) {
        const char *equals = strchr(*at, '=');
        if (!equals || strncmp(*at, prefix, strlen(prefix)) != 0)
            continue;
        char name[64];
        size_t length = (size_t)(equals - *at);
        if (length >= sizeof(name))
            continue;
        memcpy(name, *at, length);
        name[length] = '\0';
        json_object_set_new(environment, name, text_json(equals + 1));
    }
    return environment;
}

/* Add the command and the user of a process that NVML shows, as /proc says; they stay null if it has gone. */
static void add_program(json_t *process, struct daemon *daemon, pid_t pid)
{
    char path[64], command[64] = "";
    struct stat status;
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    if (stat(path, &status) < 0)
        return;
    process_command(pid, command, sizeof(command));
    json_object_set_new(process, "command", text_json(command));
    json_object_set_new(process, "user", text_json(user_name_of(daemon, status.st_uid)));
}

/* NVML's percentage of a GPU's time, as a ratio; null where NVML does not say. */
static json_t *busy_json(int percent)
{
    return percent < 0 ? json_null() : json_real(percent / 100.0);
}

static json_t *traits_json(const struct gpu *gpu)
{
    json_t *traits = json_array();
    for (unsigned trait = 0; trait < GPU_TRAITS; trait++)
        if (gpu_has(gpu, (enum gpu_trait)trait))
            json_array_append_new(traits,
                                  json_pack("{s:s,s:s}", "trait", gpu_trait_word((enum gpu_trait)trait),
                                            "text", gpu_trait_text((enum gpu_trait)trait)));
    return traits;
}

json_t *api_gpu_head_json(const struct daemon *daemon, const struct gpu *gpu)
{
    unsigned at = (unsigned)(gpu - daemon->gpus), sessions = 0;
    uint64_t reserved = promises_reserved_bytes(daemon, at), others = promises_outside_bytes(daemon, at);
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            sessions += session->gpus[i].gpu == (int)at;
    return json_pack(
        "{s:i,s:o,s:s,s:o,s:s?,s:s?,s:s?,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:i,s:o,s:o,s:o}",
        "index", (int)gpu->index, "mig_index", mig_index_json(gpu), "uuid", gpu->uuid_text, "name",
        text_json(gpu->name), "driver_version", *daemon->driver_version ? daemon->driver_version : NULL,
        "compute_capability", *gpu->compute_capability ? gpu->compute_capability : NULL, "pci_address",
        *gpu->pci_address ? gpu->pci_address : NULL, "simulated", daemon->options.simulated, "healthy",
        gpu->healthy, "total_bytes", bytes_json(gpu->total_bytes), "used_bytes", bytes_json(gpu->used_bytes),
        "free_bytes", bytes_json(gpu->free_bytes), "kept_bytes", bytes_json(gpu->kept_bytes),
        "reserved_bytes", bytes_json(reserved), "unreserved_bytes",
        bytes_json(admission_unreserved(gpu->total_bytes, reserved, others)), "uncovered_bytes",
        bytes_json(others), "busy_ratio", busy_json(gpu->busy_percent), "context_bytes",
        bytes_json(gpu->context_bytes), "sessions", (int)sessions, "traits", traits_json(gpu),
        "temperature_celsius",
        gpu->heat.celsius == GPU_HEAT_UNKNOWN ? json_null() : json_integer(gpu->heat.celsius), "power_watts",
        gpu->heat.milliwatts == GPU_HEAT_UNKNOWN ? json_null() : json_real(gpu->heat.milliwatts / 1000.0));
}

json_t *api_gpu_process_json(struct daemon *daemon, const struct nvml_process *shown, uid_t viewer)
{
    const struct session *session = process_session_of(daemon, shown->pid);
    if (session && !session_is_visible(session, viewer))
        return NULL;
    json_t *process = json_pack("{s:i,s:o,s:o,s:s?,s:n,s:n}", "pid", (int)shown->pid, "used_bytes",
                                shown->is_known ? bytes_json(shown->used_bytes) : json_null(), "busy_ratio",
                                busy_json(shown->busy_percent), "session_id", session ? session->id : NULL,
                                "command", "user");
    add_program(process, daemon, shown->pid);
    return process;
}
