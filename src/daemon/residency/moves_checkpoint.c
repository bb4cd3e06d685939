/* Sessions without an engine leave the card and come back process by process, by the driver's own means:
 * cuCheckpointProcess*, of driver 570 and later.
 *
 * Those calls wait for the process's own calls. So a program of ours makes them (checkpoint_run.h), for one process after
 * the other, and a helper thread waits for the program. All processes are locked before the first one leaves: where the
 * driver cannot lock one of them, the others go on as if nothing had been. Drivers before 610 may hang with processes that
 * reach each other's memory (NVIDIA/cuda-checkpoint, issue 30), so these are refused. The program starts from the state that the process is in, so it
 * also finishes what an earlier one left half done. While a process is checkpointed its threads wait inside the driver, its
 * agent too: it is given no lease.
 *
 * A daemon may die in the middle. Its program runs to its end, and the next daemon's programs wait for that: they share a
 * lock on the runtime folder. The first program is started when the store has committed that a move is under way, so the next
 * daemon goes on with it. What cannot be committed is not begun. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/process.h"
#include "daemon/agents/agents.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/worker.h"
#include "daemon/process/driver_program.h"
#include "daemon/residency/moves_state.h"
#include "daemon/schedule/schedule.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_show.h"
#include "daemon/users/user_time.h"

#define DRIVER_LEAST 570
#define DRIVER_PEERS_LEAST 610
/* A process's gigabytes move at the speed of the driver, which is some GB/s. */
#define LIMIT_MS 300000
/* Locking moves nothing: it waits for calls to end, for 10 s at most, unless the driver hangs. */
#define LOCK_LIMIT_MS 30000
#define STOP_SECONDS 5
/* Room for what checkpoint_run() is told, with a need for each GPU. */
#define ORDER_BYTES (32 + LEDGER_GPUS * (GPU_UUID_TEXT + 22))

enum checkpoint_step { STEP_LOCK, STEP_OUT, STEP_IN };
static const char *const step_words[] = {"lock", "out", "in"};

struct checkpoint {
    enum move_state state;
    enum checkpoint_step step; /* what all processes are told now, or were told last */
    bool is_out;               /* the direction of the move under way, or of the last one */
    bool is_noted_first;       /* nothing is begun until the store has committed the order */
    unsigned pending;          /* how many processes are still to be done */
    bool has_failed;           /* a process could not be moved */
    uint64_t began_usec;
    char failure[256];
};

struct checkpoint_job {
    struct worker_job job;
    struct daemon *daemon;
    char session_id[SESSION_ID_TEXT];
    pid_t pid;
    uint64_t start_ticks;
    enum checkpoint_step step;
    bool refuses_nccl; /* the driver cannot checkpoint programs that use NCCL */
    bool has_peers;    /* its session has other processes, or several GPUs */
    char order[ORDER_BYTES];
    /* By the helper. */
    bool is_done;
    char why[200];
};

/* --- One process, in the helper -------------------------------------------------------------------- */

/* Take what the program says until it ends; kill it if it takes too long. */
static void listen_to(struct checkpoint_job *job, pid_t program, int from)
{
    uint64_t limit_ms = job->step == STEP_LOCK ? LOCK_LIMIT_MS : LIMIT_MS;
    uint64_t end_usec = daemon_now_usec() + limit_ms * 1000;
    size_t length = 0;
    for (;;) {
        uint64_t now = daemon_now_usec();
        struct pollfd wanted = {.fd = from, .events = POLLIN};
        if (now >= end_usec || poll(&wanted, 1, (int)((end_usec - now) / 1000) + 1) == 0) {
            kill(program, SIGKILL);
            length = 0;
            snprintf(job->why, sizeof(job->why), "the driver does not finish with process %d", (int)job->pid);
            return;
        }
        ssize_t got = read(from, job->why + length, sizeof(job->why) - 1 - length);
        if (got == 0 || (got < 0 && errno != EINTR))
            return;
        length += got > 0 ? (size_t)got : 0;
        job->why[length] = '\0';
        if (length == sizeof(job->why) - 1)
            return;
    }
}

/* Whether the process uses NCCL, whose ranks keep mapping each other's memory. Most frameworks load the library whether they use it
 * or not: then one process with one GPU has nobody to speak to, unless it maps what ranks share. */
static bool uses_nccl(const struct checkpoint_job *job)
{
    char path[32], line[512];
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)job->pid);
    cleanup_file FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof(line), maps))
        if (strstr(line, "/dev/shm/nccl-") || (job->has_peers && strstr(line, "/libnccl.so")))
            return true;
    return false;
}

static int start_program(struct checkpoint_job *job, int output, pid_t *program)
{
    char *words[] = {"gpusliced", "--checkpoint", job->order,
                     job->daemon->options.simulated ? "--simulated" : NULL, NULL};
    cleanup_close int lock = open(job->daemon->paths.runtime_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return lock < 0 ? errno : driver_program_start(words, lock, output, program);
}

static void run(struct checkpoint_job *job)
{
    int ends[2], status = 0;
    pid_t program;
    job->is_done = !process_is_alive(job->pid, job->start_ticks);
    if (job->is_done)
        return;
    if (job->refuses_nccl && uses_nccl(job)) {
        snprintf(job->why, sizeof(job->why),
                 "process %d uses NCCL, and drivers before %d may hang with such programs", (int)job->pid,
                 DRIVER_PEERS_LEAST);
        return;
    }
    int result = pipe2(ends, O_CLOEXEC) < 0 ? errno : 0;
    if (result == 0) {
        result = start_program(job, ends[1], &program);
        close(ends[1]);
        if (result != 0)
            close(ends[0]);
    }
    if (result != 0) {
        snprintf(job->why, sizeof(job->why), "cannot start a program for it: %s", strerror(result));
        return;
    }
    listen_to(job, program, ends[0]);
    close(ends[0]);
    while (waitpid(program, &status, 0) < 0 && errno == EINTR)
        continue;
    job->is_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!job->is_done && !job->why[0])
        snprintf(job->why, sizeof(job->why), "the program that calls the driver for it failed");
}

static void run_jobs(struct worker_job *first, void *context)
{
    (void)context;
    for (struct worker_job *at = first; at; at = at->next)
        run((struct checkpoint_job *)at);
}

/* --- A session, in the loop ------------------------------------------------------------------------ */

/* Note where the session should be, and whether that is still to be done. Both are stored and outlive the daemon. */
static void set_standing(struct session *session, bool is_suspended, bool is_checkpointing)
{
    bool has_changed = session->is_suspended != is_suspended || session->is_checkpointing != is_checkpointing;
    session->is_suspended = is_suspended;
    session->is_checkpointing = is_checkpointing;
    if (has_changed)
        change_publish(session->daemon, &(struct change){CHANGE_SESSION_MOVES, .session = session}, "%s",
                       is_suspended ? "is to leave the card" : "is to be on the card");
}

static void on_done(struct worker_job *job);

static bool handles_peers(const struct daemon *daemon)
{
    return atoi(daemon->driver_version) >= DRIVER_PEERS_LEAST;
}

/* How much room the process needs on each GPU to come back: what it has charged and the card shows. */
static void add_needs(const struct process *process, char *order, size_t size)
{
    const struct session *session = process->session;
    const char *separator = ":";
    for (unsigned i = 0; i < session->gpu_count; i++) {
        struct ledger_slot_sample has = ledger_slot_sample(session->ledger.usage, process->slot, i);
        uint64_t bytes = moves_at_most(has.bytes - has.hidden_bytes, MOVES_BYTES_MOST);
        size_t length = strlen(order);
        if (session->gpus[i].gpu < 0 || !bytes)
            continue;
        snprintf(order + length, size - length, "%s%s=%" PRIu64, separator,
                 session->daemon->gpus[session->gpus[i].gpu].uuid_text, bytes);
        separator = ",";
    }
}

static void submit(struct process *process, enum checkpoint_step step)
{
    struct session *session = process->session;
    struct checkpoint_job *job = calloc(1, sizeof(*job));
    if (!job) {
        snprintf(session->checkpoint->failure, sizeof(session->checkpoint->failure),
                 "the daemon is out of memory");
        return;
    }
    *job = (struct checkpoint_job){.job.done = on_done,
                                   .daemon = session->daemon,
                                   .pid = process->pid,
                                   .start_ticks = process->start_ticks,
                                   .step = step,
                                   .refuses_nccl = step == STEP_LOCK && !handles_peers(session->daemon),
                                   .has_peers = session->process_count > 1 || session->gpu_count > 1};
    snprintf(job->order, sizeof(job->order), "%s:%d", step_words[step], (int)process->pid);
    if (step == STEP_IN)
        add_needs(process, job->order, sizeof(job->order));
    strcpy(job->session_id, session->id);
    session->checkpoint->pending++;
    job->job.payer = user_time_key(session->owner, session->number);
    worker_submit(session->daemon->checkpoints, &job->job);
}

static void settle(struct session *session, bool has_failed);

static void tell_all(struct session *session, enum checkpoint_step step)
{
    session->checkpoint->step = step;
    for (struct process *process = session->processes; process; process = process->next)
        submit(process, step);
    settle(session, false);
}

/* Have all processes leave or come back, as the session should. */
static void start_move(struct session *session)
{
    struct checkpoint *checkpoint = session->checkpoint;
    bool is_out = session->is_suspended;
    checkpoint->is_out = is_out;
    checkpoint->state = is_out ? MOVE_LEAVING : MOVE_COMING;
    checkpoint->began_usec = daemon_now_usec();
    for (struct process *process = session->processes; process && is_out; process = process->next)
        schedule_set_away(process, true);
    tell_all(session, is_out ? STEP_LOCK : STEP_IN);
}

static uint64_t used_by(const struct session *session)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < session->gpu_count; i++)
        sum += moves_at_most(session_used(session, i), MOVES_BYTES_MOST);
    return sum;
}

static void tell_done(struct session *session)
{
    struct checkpoint *checkpoint = session->checkpoint;
    double seconds = (double)(daemon_now_usec() - checkpoint->began_usec) / 1e6;
    const char *what =
        checkpoint->is_out ? "its programs left the card as a whole" : "its programs are back on the card";
    checkpoint->state = checkpoint->is_out ? MOVE_AWAY : MOVE_RESIDENT;
    set_standing(session, checkpoint->is_out, false);
    for (struct process *process = session->processes; process && !checkpoint->is_out;
         process = process->next)
        schedule_set_away(process, false);
    if (*checkpoint->failure) /* what had left came back, and the failure was reported */
        return;
    log_info("session %s: %s (%.3f s)", session->id, what, seconds);
    change_publish(session->daemon,
                   &(struct change){checkpoint->is_out ? CHANGE_SESSION_SUSPENDED : CHANGE_SESSION_RESUMED,
                                    .session = session, .bytes = used_by(session), .seconds = seconds},
                   "%s", what);
}

static void tell_failure(struct session *session, bool is_out)
{
    const char *failure = session->checkpoint->failure;
    log_warning("session %s: its programs could not %s the card: %s", session->id,
                is_out ? "leave" : "come back to", failure);
    change_publish(session->daemon, &(struct change){CHANGE_MOVE_FAILED, .session = session},
                   "it could not %s: %s", is_out ? "leave the card" : "come back to the card", failure);
}

/* What has left comes back; what could not come back stays away until somebody asks for it again. */
static void give_up(struct session *session)
{
    struct checkpoint *checkpoint = session->checkpoint;
    tell_failure(session, checkpoint->is_out);
    set_standing(session, !checkpoint->is_out, checkpoint->is_out);
    if (checkpoint->is_out)
        start_move(session);
    else
        checkpoint->state = MOVE_AWAY;
}

/* All processes are done, or there was none. By now somebody may have asked for the opposite. */
static void settle(struct session *session, bool has_failed)
{
    struct checkpoint *checkpoint = session->checkpoint;
    if (checkpoint->pending > 0)
        return;
    if (checkpoint->is_out != session->is_suspended) {
        checkpoint->failure[0] = '\0';
        start_move(session);
    } else if (has_failed) {
        give_up(session);
    } else if (checkpoint->step == STEP_LOCK) {
        tell_all(session, STEP_OUT);
    } else {
        tell_done(session);
    }
}

static void on_done(struct worker_job *worker_job)
{
    struct checkpoint_job *job = (struct checkpoint_job *)worker_job;
    struct session *session = session_find_id(job->daemon, job->session_id);
    if (session && session->checkpoint && session->checkpoint->pending > 0) {
        struct checkpoint *checkpoint = session->checkpoint;
        checkpoint->pending--;
        if (!job->is_done && process_is_alive(job->pid, job->start_ticks)) {
            checkpoint->has_failed = true;
            snprintf(checkpoint->failure, sizeof(checkpoint->failure), "%s", job->why);
        }
        bool has_failed = checkpoint->has_failed && checkpoint->pending == 0;
        checkpoint->has_failed &= !has_failed;
        settle(session, has_failed);
    }
    free(job);
}

/* --- What users ask for ---------------------------------------------------------------------------- */

static int refuse(const struct session *session, struct error *error, const char *why)
{
    char stays[SESSION_STAYS_TEXT];
    bool could_swap = !session_why_stays(session, LEDGER_ENGINE_SWAP, stays);
    return error_set(error, EBUSY, "ERR_NOT_MOVABLE", "the memory of session %s cannot leave the card: %s%s",
                     session->id, why,
                     could_swap ? "; a session made with --oversubscribe can leave it at any time" : "");
}

/* Make the session's state and the helper, if they do not exist. */
static int prepare(struct session *session, struct error *error)
{
    struct daemon *daemon = session->daemon;
    if (!session->checkpoint && !(session->checkpoint = calloc(1, sizeof(*session->checkpoint))))
        return error_set_errno(error, ENOMEM, "cannot move session %s", session->id);
    if (!daemon->checkpoints && worker_start_in_turns(&daemon->checkpoints, daemon->loop, "gpusliced-check",
                                                      run_jobs, NULL, error) < 0)
        return -error->status;
    return 0;
}

struct noted_order {
    struct daemon *daemon;
    char session_id[SESSION_ID_TEXT];
    bool is_out, was_suspended;
};

static void on_noted(void *argument, int result, const char *message)
{
    struct noted_order *order = argument;
    struct session *session = session_find_id(order->daemon, order->session_id);
    /* Without a helper this daemon ends, and the next one begins. */
    if (session && session->checkpoint && session->daemon->checkpoints) {
        struct checkpoint *checkpoint = session->checkpoint;
        checkpoint->is_noted_first = false;
        if (result == 0) {
            start_move(session);
        } else {
            snprintf(checkpoint->failure, sizeof(checkpoint->failure), "this could not be stored: %s",
                     message);
            checkpoint->state = order->was_suspended ? MOVE_AWAY : MOVE_RESIDENT;
            tell_failure(session, order->is_out);
            set_standing(session, order->was_suspended, false);
        }
    }
    free(order);
}

/* A move under way is turned round when it has ended. */
static int order(struct session *session, bool is_out, struct error *error)
{
    struct checkpoint *checkpoint;
    struct noted_order *noted;
    int result = prepare(session, error);
    if (result < 0)
        return result;
    checkpoint = session->checkpoint;
    checkpoint->failure[0] = '\0';
    if (checkpoint->pending > 0 || checkpoint->is_noted_first) {
        set_standing(session, is_out, true);
        return 0;
    }
    if (!(noted = calloc(1, sizeof(*noted))))
        return error_set_errno(error, ENOMEM, "cannot move session %s", session->id);
    *noted = (struct noted_order){
        .daemon = session->daemon, .is_out = is_out, .was_suspended = session->is_suspended};
    strcpy(noted->session_id, session->id);
    checkpoint->is_noted_first = true;
    checkpoint->state = is_out ? MOVE_LEAVING : MOVE_COMING;
    set_standing(session, is_out, true);
    change_await(session->daemon, session->id, on_noted, noted);
    return 0;
}

/* Whether memory is held by several processes. */
static bool has_memory_in_common(const struct session *session)
{
    uint32_t slots[LEDGER_JOINT_HOLDERS];
    uint32_t end = session->ledger.usage ? ledger_joint_end(session->ledger.usage) : 0;
    for (uint32_t joint = 0; joint < end; joint++)
        if (ledger_joint_holders(session->ledger.usage, joint, slots) > 1)
            return true;
    return false;
}

int moves_checkpoint_suspend(struct session *session, struct error *error)
{
    char why[240];
    const char *version = session->daemon->driver_version;
    if (atoi(version) < DRIVER_LEAST) {
        snprintf(why, sizeof(why), "driver %s cannot checkpoint processes, as %d and later can", version,
                 DRIVER_LEAST);
        return refuse(session, error, why);
    }
    if (!session->processes)
        return refuse(session, error, "it has no programs, and only programs that run can be checkpointed");
    if (!handles_peers(session->daemon) && has_memory_in_common(session)) {
        snprintf(
            why, sizeof(why),
            "processes hold memory in common, and driver %s cannot checkpoint these, as %d and later can",
            version, DRIVER_PEERS_LEAST);
        return refuse(session, error, why);
    }
    /* Of a session that is suspended, some processes may be on the card: they came back with a resume that failed for
     * others, or have started since. */
    return session->is_suspended && session->is_checkpointing ? 0 : order(session, true, error);
}

int moves_checkpoint_resume(struct session *session, struct error *error)
{
    if (session->is_suspended)
        return order(session, false, error);
    return session->is_checkpointing
               ? 0
               : error_set(error, EBUSY, "ERR_NOT_MOVABLE", "session %s is not suspended: nothing to resume",
                           session->name);
}

int moves_go_on(struct daemon *daemon, struct error *error)
{
    int result = 0;
    for (struct session *session = daemon->sessions; session && result == 0; session = session->next)
        if (session->is_checkpointing && (result = prepare(session, error)) == 0)
            start_move(session);
    return result;
}

bool moves_checkpoint_standing(const struct session *session, struct moves_standing *standing)
{
    if (!session->checkpoint)
        return false;
    standing->state = session->checkpoint->state;
    standing->cause = MOVE_BY_USER;
    standing->failure = session->checkpoint->failure;
    return true;
}

void moves_checkpoint_forget(struct session *session)
{
    free(session->checkpoint);
    session->checkpoint = NULL;
}

void moves_checkpoint_stop(struct daemon *daemon)
{
    if (daemon->checkpoints && !worker_stop(daemon->checkpoints, STOP_SECONDS))
        log_warning("the driver was still taking a process off the card or bringing it back");
    daemon->checkpoints = NULL;
}
