#include "daemon/store/store.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/check.h"
#include "base/process.h"
#include "daemon/gpu/card.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/clocks.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/round.h"
#include "daemon/loop/worker.h"
#include "daemon/process/reaper.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_ledger.h"
#include "daemon/session/session_life.h"
#include "daemon/session/session_show.h"
#include "daemon/store/store_columns.h"
#include "daemon/store/store_file.h"
#include "daemon/store/store_load.h"
#include "daemon/store/store_reserve.h"

#define STOP_SECONDS 30
#define VALUES_MAX 48 /* per statement */

struct store {
    struct daemon *daemon;
    struct observer observer;
    sqlite3 *database; /* the thread's when it runs */
    struct worker *worker;
    char *put_session;                /* the statement that writes a session */
    LIST_HEAD(, store_job) under_way; /* newest first */
};

/* One part of a job: a statement with its values. All parts of a job are in one transaction. */
struct statement {
    struct statement *next;
    const char *sql;
    unsigned count;
    struct value {
        const char *column; /* of the statement's parameter ":COLUMN"; NULL: parameters are counted */
        bool is_text, is_null;
        int64_t number;
        char text[256];
    } values[VALUES_MAX];
};

/* Somebody who waits until a job is committed; in the loop's thread. */
struct waiter {
    struct waiter *next;
    change_done done;
    void *argument;
};

struct store_job {
    struct worker_job job;
    LIST_ENTRY(store_job) next; /* in the list of those under way */
    struct daemon *daemon;
    char session_id[SESSION_ID_TEXT]; /* the session it is about; "": none */
    bool is_new;                      /* the session is not in the file yet */
    bool is_end;                      /* it removes something from the file */
    struct statement *first, **last;
    struct waiter *first_waiter, **last_waiter;
    int result; /* SQLite's, set by the thread as `message` is */
    char message[160];
};

/* --- What must hold -------------------------------------------------------------------------------- */

/* A job has a statement, and ends nothing that it also makes; both its lists end where they say. */
static bool job_is_valid(const struct store_job *job)
{
    for (const struct statement *at = job->first; at; at = at->next)
        if (!at->sql || at->count == 0 || at->count > VALUES_MAX)
            return false;
    return job->first && !*job->last && !*job->last_waiter && !(job->is_new && job->is_end) &&
           (!job->is_new || job->session_id[0]);
}

/* --- The thread ------------------------------------------------------------------------------------ */

static int parameter_of(sqlite3_stmt *prepared, const struct value *value, unsigned count)
{
    char name[64];
    if (!value->column)
        return (int)count + 1;
    snprintf(name, sizeof(name), ":%s", value->column);
    return sqlite3_bind_parameter_index(prepared, name);
}

static int execute(sqlite3 *database, const struct statement *statement)
{
    sqlite3_stmt *prepared;
    int result = sqlite3_prepare_v2(database, statement->sql, -1, &prepared, NULL);
    if (result != SQLITE_OK)
        return result;
    for (unsigned i = 0; i < statement->count; i++) {
        const struct value *value = &statement->values[i];
        int at = parameter_of(prepared, value, i);
        if (value->is_text)
            sqlite3_bind_text(prepared, at, value->text, -1, SQLITE_STATIC);
        else if (!value->is_null)
            sqlite3_bind_int64(prepared, at, value->number);
    }
    sqlite3_step(prepared);
    return sqlite3_finalize(prepared);
}

static int execute_job(sqlite3 *database, const struct store_job *job)
{
    int result = SQLITE_OK;
    for (const struct statement *at = job->first; at && result == SQLITE_OK; at = at->next)
        result = execute(database, at);
    return result;
}

static void fail_job(struct store_job *job, sqlite3 *database, int result)
{
    job->result = result;
    snprintf(job->message, sizeof(job->message), "%s",
             result == SQLITE_READONLY_DBMOVED ? "the state file was removed; start gpusliced again"
                                               : sqlite3_errmsg(database));
}

/* If the file cannot be found by its name any more, what is written to it would be lost with this daemon. */
static int check_is_found(sqlite3 *database)
{
    int has_moved = 0;
    sqlite3_file_control(database, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
    return has_moved ? SQLITE_READONLY_DBMOVED : SQLITE_OK;
}

static int begin_transaction(sqlite3 *database)
{
    int result = check_is_found(database);
    return result == SQLITE_OK ? sqlite3_exec(database, "BEGIN IMMEDIATE", NULL, NULL, NULL) : result;
}

static int run_transaction(sqlite3 *database, const struct store_job *job)
{
    int result = begin_transaction(database);
    if (result == SQLITE_OK)
        result = execute_job(database, job);
    if (result == SQLITE_OK)
        result = sqlite3_exec(database, "COMMIT", NULL, NULL, NULL);
    return result;
}

static void roll_back(sqlite3 *database)
{
    if (!sqlite3_get_autocommit(database))
        sqlite3_exec(database, "ROLLBACK", NULL, NULL, NULL);
}

/* Run one job by itself. The end of a session or process is written even to a full disk: a session that was released
 * must not come back. */
static void run_alone(struct store *store, struct store_job *job)
{
    sqlite3 *database = store->database;
    int result = run_transaction(database, job);
    if (result == SQLITE_FULL && job->is_end) {
        roll_back(database);
        sqlite3_wal_checkpoint_v2(database, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
        result = run_transaction(database, job);
    }
    if (result == SQLITE_FULL && job->is_end && store_reserve_use(&store->daemon->paths)) {
        roll_back(database);
        result = run_transaction(database, job);
        sqlite3_wal_checkpoint_v2(database, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    }
    if (result != SQLITE_OK) {
        fail_job(job, database, result);
        roll_back(database);
    }
}

/* Run all jobs that have gathered in one transaction; if that fails, each one by itself, so that one cannot fail
 * another. */
static void run_jobs(struct worker_job *first, void *context)
{
    struct store *store = context;
    sqlite3 *database = store->database;
    int result = begin_transaction(database);
    for (struct worker_job *job = first; job && result == SQLITE_OK; job = job->next)
        result = execute_job(database, (struct store_job *)job);
    if (result == SQLITE_OK)
        result = sqlite3_exec(database, "COMMIT", NULL, NULL, NULL);
    if (result == SQLITE_OK) {
        store_reserve_keep(&store->daemon->paths);
        return;
    }
    roll_back(database);
    for (struct worker_job *at = first; at; at = at->next)
        run_alone(store, (struct store_job *)at);
}

/* --- The loop's side ------------------------------------------------------------------------------- */

/* No program may work in a session that the next daemon does not know. A declared session is kept: the next daemon
 * makes it again. */
static void end_unstored(const struct store_job *job)
{
    struct session *session = session_find_id(job->daemon, job->session_id);
    if (!session || session->is_declared)
        return;
    log_error("cannot store session %s; it ends: %s", session->id, job->message);
    session_end(session, "the daemon could not store it");
}

static void tell_waiters(struct store_job *job, int result, const char *message)
{
    for (struct waiter *at = job->first_waiter, *next; at; at = next) {
        next = at->next;
        at->done(at->argument, result, message);
        free(at);
    }
}

static void on_job_done(struct worker_job *worker_job)
{
    struct store_job *job = (struct store_job *)worker_job;
    GS_CHECK(job_is_valid(job) && job->daemon->store);
    LIST_REMOVE(job, next);
    if (job->result && job->is_new)
        end_unstored(job);
    job->daemon->failed_writes += job->result != 0;
    if (job->result)
        log_error("cannot write the state file: %s", job->message);
    tell_waiters(job, job->result ? -EIO : 0, job->message);
    while (job->first) {
        struct statement *next = job->first->next;
        free(job->first);
        job->first = next;
    }
    free(job);
}

/* Without memory the daemon ends: its state is in the files, and a new daemon finds it there. */
static void *must_allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory) {
        log_error("out of memory");
        abort();
    }
    return memory;
}

/* `session_id` NULL: the job is about no session. */
static struct store_job *job_make(struct daemon *daemon, const char *session_id)
{
    struct store_job *job = must_allocate(sizeof(*job));
    job->job.done = on_job_done;
    job->daemon = daemon;
    if (session_id)
        strcpy(job->session_id, session_id);
    job->last = &job->first;
    job->last_waiter = &job->first_waiter;
    return job;
}

static bool store_is_valid(const struct store *store)
{
    const struct store_job *job;
    LIST_FOREACH (job, &store->under_way, next)
        if (!job_is_valid(job) || job->daemon != store->daemon)
            return false;
    return store->worker && store->put_session;
}

static void submit(struct store_job *job)
{
    struct store *store = job->daemon->store;
    GS_CHECK(job_is_valid(job) && !job->first_waiter);
    LIST_INSERT_HEAD(&store->under_way, job, next);
    worker_submit(store->worker, &job->job);
}

static struct statement *job_add(struct store_job *job, const char *sql)
{
    struct statement *statement = must_allocate(sizeof(*statement));
    statement->sql = sql;
    *job->last = statement;
    job->last = &statement->next;
    return statement;
}

static void bind_text(struct statement *statement, const char *text)
{
    GS_CHECK(statement->count < VALUES_MAX);
    struct value *value = &statement->values[statement->count++];
    value->is_text = true;
    snprintf(value->text, sizeof(value->text), "%s", text);
}

static void bind_number(struct statement *statement, int64_t number)
{
    GS_CHECK(statement->count < VALUES_MAX);
    statement->values[statement->count++].number = number;
}

static void put_text(struct statement *statement, const char *column, const char *text)
{
    bind_text(statement, text);
    statement->values[statement->count - 1].column = column;
}

static void put_number(struct statement *statement, const char *column, int64_t number)
{
    bind_number(statement, number);
    statement->values[statement->count - 1].column = column;
}

static void put_property(struct statement *statement, const struct property *row,
                         const struct session_properties *properties)
{
    json_t *value = property_json(row, properties);
    if (json_is_string(value)) {
        put_text(statement, row->json, json_string_value(value));
    } else {
        put_number(statement, row->json, json_is_true(value) ? 1 : json_integer_value(value));
        statement->values[statement->count - 1].is_null = json_is_null(value);
    }
    json_decref(value);
}

static void put_session(const struct session *session, bool is_new)
{
    struct store_job *job = job_make(session->daemon, session->id);
    job->is_new = is_new;
    struct statement *put = job_add(job, session->daemon->store->put_session);
    int64_t ahead_ms = clock_wall_ahead_ms();
    put_text(put, "id", session->id);
    put_text(put, "name", session->name);
    put_number(put, "owner_uid", session->owner);
    put_text(put, "token", session->token);
    put_text(put, "request_key", session->key);
    put_number(put, "expired", session->state == SESSION_EXPIRED);
    put_number(put, "created_at", session->created_at);
    put_number(put, "updated_at", session->updated_at);
    put_number(put, "expires_at_ms", session->expires_at_ms ? session->expires_at_ms + ahead_ms : 0);
    put_number(put, "wall_ahead_ms", ahead_ms);
    put_number(put, "run_pid", session->runner.pid);
    put_number(put, "run_start_ticks", (int64_t)session->runner.start_ticks);
    put_number(put, "declared", session->is_declared);
    put_number(put, "managed", session->is_managed);
    put_number(put, "own_socket", session->has_own_socket);
    put_number(put, "suspended", session->is_suspended);
    put_number(put, "checkpointing", session->is_checkpointing);
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (!(row->flags & NO_COLUMN))
            put_property(put, row, &session->properties);
    for (unsigned i = 0; i < session->gpu_count; i++) {
        char uuid[GPU_UUID_TEXT];
        struct statement *gpu =
            job_add(job, "INSERT OR REPLACE INTO session_gpus(session_id, position, uuid, limit_bytes,"
                         " reserved) VALUES(?,?,?,?,?)");
        bind_text(gpu, session->id);
        bind_number(gpu, i);
        bind_text(gpu, session_gpu_uuid(&session->gpus[i], uuid));
        bind_number(gpu, (int64_t)session->gpus[i].limit_bytes);
        bind_number(gpu, session->gpus[i].reserved);
    }
    submit(job);
}

static void delete_session(const struct session *session)
{
    struct store_job *job = job_make(session->daemon, session->id);
    job->is_end = true;
    bind_text(job_add(job, "DELETE FROM sessions WHERE id=?"), session->id);
    submit(job);
}

static void put_process(const struct process *process)
{
    struct store_job *job = job_make(process->session->daemon, NULL);
    /* The session may have ended before its process's row is written. */
    struct statement *put = job_add(job, "INSERT OR REPLACE INTO processes(session_id, slot, generation, pid,"
                                         " start_ticks, attached_at) SELECT ?1,?2,?3,?4,?5,?6"
                                         " WHERE EXISTS(SELECT 1 FROM sessions WHERE id=?1)");
    bind_text(put, process->session->id);
    bind_number(put, process->slot);
    bind_number(put, (int64_t)process->generation);
    bind_number(put, process->pid);
    bind_number(put, (int64_t)process->start_ticks);
    bind_number(put, process->attached_at);
    submit(job);
}

static void delete_process(const struct process *process)
{
    struct store_job *job = job_make(process->session->daemon, NULL);
    job->is_end = true;
    struct statement *remove = job_add(job, "DELETE FROM processes WHERE session_id=? AND slot=?");
    bind_text(remove, process->session->id);
    bind_number(remove, process->slot);
    submit(job);
}

/* No process of the session is left: delete all their rows. */
static void delete_processes(const struct session *session)
{
    struct store_job *job = job_make(session->daemon, NULL);
    job->is_end = true;
    bind_text(job_add(job, "DELETE FROM processes WHERE session_id=?"), session->id);
    submit(job);
}

static void put_context_cost(struct daemon *daemon, const struct gpu *gpu)
{
    char text[GPU_UUID_TEXT];
    /* A simulated card's context cost is a setting in its environment, which may be different tomorrow. */
    if (daemon->options.simulated)
        return;
    struct store_job *job = job_make(daemon, NULL);
    struct statement *put =
        job_add(job, "INSERT OR REPLACE INTO context_costs(uuid, driver_version, bytes, cuda_bytes, traits)"
                     " VALUES(?,?,?,?,?)");
    bind_text(put, gpu_uuid_format(gpu->uuid, text));
    bind_text(put, daemon->driver_version);
    bind_number(put, (int64_t)gpu->context_bytes);
    bind_number(put, (int64_t)gpu->cuda_bytes);
    bind_number(put, gpu->knows_traits ? (int64_t)gpu->traits : -1);
    submit(job);
}

/* --- Following the core ---------------------------------------------------------------------------- */

static void on_change(void *context, const struct change *change)
{
    struct store *store = context;
    switch (change->kind) {
    case CHANGE_SESSION_CREATED:
    case CHANGE_SESSION_ADMITTED:
        put_session(change->session, true);
        break;
    case CHANGE_SESSION_CHANGED:
    case CHANGE_SESSION_EXPIRED:
    case CHANGE_SESSION_REVIVED:
    case CHANGE_SESSION_SOCKET:
    case CHANGE_SESSION_MOVES:
        put_session(change->session, false);
        break;
    case CHANGE_SESSION_ENDED:
        delete_session(change->session);
        break;
    case CHANGE_PROCESS_ATTACHED:
    case CHANGE_PROCESS_RETURNED:
        put_process(change->process);
        break;
    case CHANGE_PROCESS_ENDED:
        if (change->process)
            delete_process(change->process);
        break;
    case CHANGE_CONTEXT_COST:
        put_context_cost(store->daemon, change->gpu);
        break;
    default:
        break;
    }
}

static void await(void *context, const char *session_id, change_done done, void *argument)
{
    struct store *store = context;
    struct store_job *job;
    LIST_FOREACH (job, &store->under_way, next) {
        if (strcmp(job->session_id, session_id) != 0)
            continue;
        struct waiter *waiter = must_allocate(sizeof(*waiter));
        *waiter = (struct waiter){.done = done, .argument = argument};
        *job->last_waiter = waiter;
        job->last_waiter = &waiter->next;
        GS_CHECK(job_is_valid(job));
        return;
    }
    done(argument, 0, NULL);
}

/* --- Opening and closing --------------------------------------------------------------------------- */

static int open_file(struct store *store, struct error *error)
{
    struct daemon *daemon = store->daemon;
    int result = store_file_open(&daemon->paths, daemon->options.fresh, &store->database, error);
    if (result == 0)
        result =
            store_file_begin_epoch(store->database, &daemon->paths, &daemon->epoch, &daemon->last_end, error);
    if (result < 0) {
        sqlite3_close(store->database);
        store->database = NULL;
    }
    return result;
}

int store_open(struct daemon *daemon, struct error *error)
{
    struct store *store = must_allocate(sizeof(*store));
    store->daemon = daemon;
    int result = open_file(store, error);
    if (result == -ENOSPC && store_reserve_use(&daemon->paths))
        result = open_file(store, error);
    if (result == 0 && !(store->put_session = store_columns_put()))
        result = error_set_errno(error, ENOMEM, "cannot write sessions");
    if (result == 0)
        result = worker_start(&store->worker, daemon->loop, "gpusliced-state", run_jobs, store, error);
    if (result < 0) {
        sqlite3_close(store->database);
        sqlite3_free(store->put_session);
        free(store);
        return result;
    }
    store->observer = (struct observer){.take = on_change, .await = await, .context = store};
    change_observe(daemon, &store->observer);
    daemon->store = store;
    return 0;
}

/* The helper thread may still use its jobs, but for those who wait. */
static void tell_all_waiters(struct store *store, const char *message)
{
    struct store_job *job;
    LIST_FOREACH (job, &store->under_way, next)
        tell_waiters(job, -EIO, message);
}

void store_close(struct daemon *daemon)
{
    if (!daemon->store)
        return;
    GS_CHECK(store_is_valid(daemon->store));
    change_observe_no_more(daemon, &daemon->store->observer);
    if (!worker_stop(daemon->store->worker, STOP_SECONDS)) {
        log_error("the state file could not be written for %d s; changes may be lost", STOP_SECONDS);
        tell_all_waiters(daemon->store, "the disk does not answer, and the daemon ends");
        daemon->store = NULL;
        return;
    }
    store_file_end_epoch(daemon->store->database);
    sqlite3_close(daemon->store->database);
    sqlite3_free(daemon->store->put_session);
    free(daemon->store);
    daemon->store = NULL;
}

/* --- Loading --------------------------------------------------------------------------------------- */

/* Processes that live map a ledger whose file has lost its name. They hear that this daemon does not know their slots, and
 * attach again (session_doubt()). */
static void warn_of_lost_ledger(const struct loaded_session *loaded)
{
    unsigned living = 0;
    for (unsigned i = 0; i < loaded->process_count; i++)
        living += process_is_alive(loaded->processes[i].pid, loaded->processes[i].start_ticks);
    if (!living)
        return;
    process_start_time(getpid(), &loaded->session->lost_ledger_ticks);
    log_warning(
        "session %s: the file of its ledger is gone; what %u process%s there hold%s counts again when "
        "they have attached again",
        loaded->session->id, living, living == 1 ? "" : "es", living == 1 ? "s" : "");
}

static int restore(struct daemon *daemon, struct loaded_session *loaded, struct error *error)
{
    struct session *session = loaded->session;
    struct error problem = {0};
    int result = session_restore(daemon, session, &problem);
    if (result == 0 && session->ledger.usage)
        result = reaper_restore(session, loaded->processes, loaded->process_count, &problem);
    else if (result == 0)
        warn_of_lost_ledger(loaded);
    /* Lack of descriptors or memory is no reason to end a session, or to take a process for dead, that could go on
     * later. */
    if (error_is_scarcity(result))
        return error_set(error, -result, NULL,
                         "session %s, the %uth of the state file, cannot be restored: %s; give gpusliced "
                         "more of it and start it again; nothing was changed",
                         session->id, daemon->session_count, problem.message);
    if (result < 0) {
        log_error("session %s cannot go on: %s", session->id, problem.message);
        session_end(session, "its ledger cannot be opened");
        return 0;
    }
    if (!session->processes && loaded->process_count)
        delete_processes(session);
    session_ledger_drop_idle(session);
    session_end_when_over(session);
    return 0;
}

int store_load(struct daemon *daemon, struct error *error)
{
    struct loaded_session *loaded = NULL;
    int result = 0;
    if (store_load_context_costs(daemon, daemon->store->database) != SQLITE_OK ||
        store_load_sessions(daemon->store->database, &loaded) != SQLITE_OK)
        result = store_file_error(error, daemon->store->database, &daemon->paths);
    while (loaded) {
        struct loaded_session *next = loaded->next;
        if (result == 0)
            result = restore(daemon, loaded, error);
        else
            free(loaded->session);
        free(loaded->processes);
        free(loaded);
        loaded = next;
    }
    round_end(daemon); /* no loop runs yet */
    return result;
}
