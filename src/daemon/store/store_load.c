#include "daemon/store/store_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpu/gpu.h"
#include "daemon/loop/clocks.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/session/session.h"
#include "daemon/store/store_columns.h"

#define TIME_MS_MAX (INT64_C(1) << 53)

static void copy_column(sqlite3_stmt *row, int column, char *text, size_t bytes)
{
    const unsigned char *value = sqlite3_column_text(row, column);
    snprintf(text, bytes, "%s", value ? (const char *)value : "");
}

static int load_gpus(sqlite3 *database, struct session *session)
{
    sqlite3_stmt *row;
    int result = sqlite3_prepare_v2(
        database, "SELECT uuid, limit_bytes, reserved FROM session_gpus WHERE session_id=? ORDER BY position",
        -1, &row, NULL);
    if (result != SQLITE_OK)
        return result;
    sqlite3_bind_text(row, 1, session->id, -1, SQLITE_STATIC);
    while (sqlite3_step(row) == SQLITE_ROW && session->gpu_count < LEDGER_GPUS) {
        char uuid[GPU_UUID_TEXT];
        struct session_gpu *gpu = &session->gpus[session->gpu_count];
        copy_column(row, 0, uuid, sizeof(uuid));
        if (!gpu_uuid_parse(uuid, gpu->uuid))
            continue;
        gpu->is_mig = strncmp(uuid, "MIG-", 4) == 0;
        int64_t limit_bytes = sqlite3_column_int64(row, 1);
        gpu->limit_bytes = limit_bytes > 0 ? (uint64_t)limit_bytes : 0;
        gpu->reserved = sqlite3_column_int(row, 2);
        session->gpu_count++;
    }
    return sqlite3_finalize(row);
}

static int load_processes(sqlite3 *database, const char *session_id, struct loaded_session *loaded)
{
    sqlite3_stmt *row;
    int result = sqlite3_prepare_v2(database,
                                    "SELECT slot, pid, start_ticks, generation, attached_at "
                                    "FROM processes WHERE session_id=?",
                                    -1, &row, NULL);
    if (result != SQLITE_OK)
        return result;
    sqlite3_bind_text(row, 1, session_id, -1, SQLITE_STATIC);
    while (sqlite3_step(row) == SQLITE_ROW) {
        int64_t slot = sqlite3_column_int64(row, 0);
        if (slot < 0 || slot >= LEDGER_SLOTS)
            continue;
        struct recorded_process *more =
            reallocarray(loaded->processes, loaded->process_count + 1, sizeof(*more));
        if (!more) {
            sqlite3_finalize(row);
            return SQLITE_NOMEM;
        }
        loaded->processes = more;
        more[loaded->process_count++] = (struct recorded_process){
            .slot = (uint32_t)slot,
            .pid = sqlite3_column_int(row, 1),
            .start_ticks = (uint64_t)sqlite3_column_int64(row, 2),
            .generation = (uint64_t)sqlite3_column_int64(row, 3),
            .attached_at = sqlite3_column_int64(row, 4),
        };
    }
    return sqlite3_finalize(row);
}

/* Whether the text can be shown to people and programs: in a damaged file it may be anything. */
static bool is_plain_text(const char *text)
{
    while (*text > ' ' && *text < 0x7f)
        text++;
    return *text == '\0';
}

/* The expiry by the machine's time; the file has it by the wall clock. Within one start of the machine the file also
 * says how far the wall clock was ahead; else that is 0, and the present difference has to do. A damaged file may have
 * any number. */
static int64_t expiry_of(int64_t wall_ms, int64_t ahead_ms)
{
    if (wall_ms == 0)
        return 0;
    if (ahead_ms == 0 || llabs(ahead_ms / 2) > TIME_MS_MAX / 2)
        ahead_ms = clock_wall_ahead_ms();
    wall_ms = wall_ms < 0 ? 0 : wall_ms < TIME_MS_MAX ? wall_ms : TIME_MS_MAX;
    return wall_ms > ahead_ms ? wall_ms - ahead_ms : 1;
}

/* What is said together must be so: a damaged file may say anything. */
static void settle_properties(struct session_properties *properties)
{
    properties->given = 0;
    if (properties->engine != LEDGER_ENGINE_PLAIN)
        properties->when_full = WHEN_FULL_OVERSUBSCRIBE;
    properties->may_pass_card &= properties->engine == LEDGER_ENGINE_MANAGED;
}

static bool read_session(sqlite3_stmt *row, struct session *session)
{
    store_column_text(row, "id", session->id, sizeof(session->id));
    store_column_text(row, "name", session->name, sizeof(session->name));
    session->owner = (uid_t)store_column_number(row, "owner_uid");
    store_column_text(row, "token", session->token, sizeof(session->token));
    store_column_text(row, "request_key", session->key, sizeof(session->key));
    session->state = store_column_number(row, "expired") ? SESSION_EXPIRED : SESSION_ACTIVE;
    session->created_at = store_column_number(row, "created_at");
    session->updated_at = store_column_number(row, "updated_at");
    session->expires_at_ms =
        expiry_of(store_column_number(row, "expires_at_ms"), store_column_number(row, "wall_ahead_ms"));
    session->runner.pid = (pid_t)store_column_number(row, "run_pid");
    session->runner.start_ticks = (uint64_t)store_column_number(row, "run_start_ticks");
    session->is_declared = store_column_number(row, "declared");
    session->is_managed = store_column_number(row, "managed");
    session->has_own_socket = store_column_number(row, "own_socket");
    session->is_suspended = store_column_number(row, "suspended");
    session->is_checkpointing = store_column_number(row, "checkpointing");
    session->properties = (struct session_properties){.compute = SHARE_ANY, .priority = PRIORITY_NORMAL};
    store_columns_read(row, &session->properties);
    settle_properties(&session->properties);
    if (identity_is_id(session->id) && identity_is_valid(session->name) && *session->token &&
        is_plain_text(session->token))
        return true;
    log_warning("state file: session '%s' has an invalid ID, name or token; ignored", session->id);
    return false;
}

int store_load_sessions(sqlite3 *database, struct loaded_session **list)
{
    sqlite3_stmt *row;
    int result =
        sqlite3_prepare_v2(database, "SELECT * FROM sessions ORDER BY created_at, id", -1, &row, NULL);
    if (result != SQLITE_OK)
        return result;
    while (result == SQLITE_OK && sqlite3_step(row) == SQLITE_ROW) {
        struct session *session = calloc(1, sizeof(*session));
        struct loaded_session *loaded = calloc(1, sizeof(*loaded));
        if (!session || !loaded || !read_session(row, session)) {
            result = session && loaded ? SQLITE_OK : SQLITE_NOMEM;
            free(session);
            free(loaded);
            continue;
        }
        *list = loaded;
        loaded->session = session;
        result = load_gpus(database, session);
        if (result == SQLITE_OK)
            result = load_processes(database, session->id, loaded);
        list = &loaded->next;
    }
    int end = sqlite3_finalize(row);
    return result == SQLITE_OK ? end : result;
}

int store_load_context_costs(struct daemon *daemon, sqlite3 *database)
{
    sqlite3_stmt *row;
    int result = sqlite3_prepare_v2(
        database, "SELECT uuid, bytes, cuda_bytes, traits FROM context_costs WHERE driver_version=?", -1,
        &row, NULL);
    if (result != SQLITE_OK)
        return result;
    sqlite3_bind_text(row, 1, daemon->driver_version, -1, SQLITE_STATIC);
    while (sqlite3_step(row) == SQLITE_ROW) {
        char text[GPU_UUID_TEXT];
        uint8_t uuid[GPU_UUID_BYTES];
        copy_column(row, 0, text, sizeof(text));
        int gpu = gpu_uuid_parse(text, uuid) ? gpu_find_uuid(daemon, uuid) : -1;
        if (gpu < 0)
            continue;
        daemon->gpus[gpu].context_bytes = (uint64_t)sqlite3_column_int64(row, 1);
        if (sqlite3_column_int64(row, 2))
            gpu_take_cuda_bytes(&daemon->gpus[gpu], (uint64_t)sqlite3_column_int64(row, 2));
        if (sqlite3_column_int64(row, 3) >= 0)
            gpu_take_traits(&daemon->gpus[gpu], (uint32_t)sqlite3_column_int64(row, 3));
    }
    return sqlite3_finalize(row);
}
