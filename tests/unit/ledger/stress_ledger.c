/* stress_ledger.c - many processes and threads at the limit, killed and stopped at random points.
 *
 *   stress_ledger processes SECONDS PROCESSES THREADS [SEED]
 *   stress_ledger threads SECONDS SLOTS THREADS [SEED]      (one process, nobody is killed: for sanitizers)
 *
 * What is checked, and by whom:
 *   - never above the limit, by the workers: each adds what it was granted to a tally of its own after the
 *     grant, and takes it off before the release. So the tally is never more than what is granted, and may
 *     never pass the limit, whatever the ledger says of itself.
 *   - never above the limit, by an onlooker: it reads all words twice; if no stamp changed between, the first
 *     reading was one moment, and its sum may not pass the limit.
 *   - a stopped process blocks nobody: now and then all workers but one are stopped wherever they are, and
 * that one must go on.
 *   - what can never fit is always refused, and what always fits never.
 *   - a dead process leaves nothing once reaped, by several reapers that are killed too; the living lose
 *     nothing: at the end each one's slot holds exactly what its threads hold, and the rest is empty.
 * Exit status 0 if all held. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "ledger/usage.h"

#define GPUS 3u
#define ROOMY_GPU 2u /* everything fits there, so nothing may be refused */
#define MOST_WORKERS 64u
#define MOST_THREADS 64u
#define MOST_HELD 8u
#define REAPERS 2u
#define LIMIT_BYTES UINT64_C(1000003)
#define ROOMY_LIMIT_BYTES (UINT64_C(1) << 40)

/* A process with one slot (in `threads` mode, a slot of the one process). */
struct worker {
    _Atomic pid_t pid; /* 0 once its tally is settled: reapers may have its slot */
    _Atomic int64_t tally[GPUS];
    _Atomic uint64_t operations;
    _Atomic uint64_t kept[GPUS]; /* what its threads held at the end */
    _Atomic uint32_t slot;
};

struct board {
    struct ledger_policy policy;
    _Atomic int64_t tally[GPUS];
    _Atomic bool ending, onlookers_end;
    _Atomic uint64_t failures, granted, refused, snapshots, fullest;
    struct worker workers[MOST_WORKERS];
};

struct thread {
    pthread_t id;
    struct worker *worker;
    struct ledger_slot *slot;
    uint64_t random;
};

static struct board *board;
static struct ledger ledger;
static unsigned worker_count, thread_count;

static uint64_t limit_of(unsigned gpu)
{
    return gpu == ROOMY_GPU ? ROOMY_LIMIT_BYTES : LIMIT_BYTES;
}

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "stress_ledger: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    atomic_fetch_add(&board->failures, 1);
}

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("stress_ledger: cannot map shared memory");
        exit(2);
    }
    return memory;
}

/* xorshift64*, by Vigna. */
static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    return (*random * UINT64_C(2685821657736338717) >> 16) % below;
}

static uint64_t now_ms(void)
{
    return monotonic_ns() / 1000000;
}

static void pause_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000},
              NULL);
}

/* --- Workers --------------------------------------------------------------------------------------- */

/* A worker killed between the two additions leaves the common tally too low, which only makes it blunter. */
static void tally_granted(struct worker *worker, unsigned gpu, uint64_t bytes)
{
    atomic_fetch_add(&worker->tally[gpu], (int64_t)bytes);
    int64_t total = atomic_fetch_add(&board->tally[gpu], (int64_t)bytes) + (int64_t)bytes;
    if (total > (int64_t)limit_of(gpu))
        fail("GPU %u: workers hold %" PRId64 " bytes of a limit of %" PRIu64, gpu, total, limit_of(gpu));
}

static void tally_releasing(struct worker *worker, unsigned gpu, uint64_t bytes)
{
    atomic_fetch_sub(&board->tally[gpu], (int64_t)bytes);
    atomic_fetch_sub(&worker->tally[gpu], (int64_t)bytes);
}

static void *work(void *argument)
{
    struct thread *thread = argument;
    struct worker *worker = thread->worker;
    uint64_t held[MOST_HELD] = {0};
    unsigned held_gpu[MOST_HELD] = {0};

    while (!atomic_load(&board->ending)) {
        unsigned place = (unsigned)draw(&thread->random, MOST_HELD);
        if (held[place]) {
            tally_releasing(worker, held_gpu[place], held[place]);
            ledger_release(thread->slot, held_gpu[place], held[place]);
            held[place] = 0;
        } else {
            unsigned gpu = (unsigned)draw(&thread->random, GPUS);
            uint64_t bytes = 1 + draw(&thread->random, LIMIT_BYTES / 8);
            if (draw(&thread->random, 64) == 0 && ledger_reserve(thread->slot, gpu, limit_of(gpu) + 1))
                fail("one byte more than the limit was granted");
            if (ledger_reserve(thread->slot, gpu, bytes)) {
                tally_granted(worker, gpu, bytes);
                held[place] = bytes;
                held_gpu[place] = gpu;
                atomic_fetch_add_explicit(&board->granted, 1, memory_order_relaxed);
            } else {
                if (gpu == ROOMY_GPU)
                    fail("%" PRIu64 " bytes were refused where everything fits", bytes);
                atomic_fetch_add_explicit(&board->refused, 1, memory_order_relaxed);
            }
        }
        atomic_fetch_add(&worker->operations, 1);
    }
    for (unsigned place = 0; place < MOST_HELD; place++)
        atomic_fetch_add(&worker->kept[held_gpu[place]], held[place]);
    return NULL;
}

static void start_threads(struct thread *threads, struct worker *worker, struct ledger_slot *slot,
                          uint64_t seed)
{
    for (unsigned i = 0; i < thread_count; i++) {
        threads[i] = (struct thread){.worker = worker, .slot = slot, .random = seed + i + 1};
        if (pthread_create(&threads[i].id, NULL, work, &threads[i]) != 0)
            abort();
    }
}

static void check_kept(const struct worker *worker, const struct ledger_slot *slot)
{
    for (unsigned gpu = 0; gpu < GPUS; gpu++) {
        uint64_t kept = atomic_load(&worker->kept[gpu]), used = ledger_slot_used(slot, gpu);
        if (used != kept)
            fail("GPU %u: slot %u holds %" PRIu64 " bytes, its threads %" PRIu64, gpu, slot->index, used,
                 kept);
    }
}

static int worker_main(struct worker *worker, uint64_t seed)
{
    struct ledger_owner owner = {.pid = getpid()};
    struct lock turn = {0};
    struct ledger_slot slot = {.ledger = ledger, .lock = &turn};
    struct thread threads[MOST_THREADS];

    if (process_start_time(owner.pid, &owner.start_ticks) != 0)
        abort();
    int index = ledger_slot_claim(ledger.usage, owner, &slot.generation);
    if (index < 0) {
        fail("no slot is free");
        return 1;
    }
    slot.index = (uint32_t)index;
    atomic_store(&worker->slot, slot.index);
    for (unsigned gpu = 0; gpu < GPUS; gpu++)
        if (ledger_slot_used(&slot, gpu) != 0)
            fail("GPU %u: slot %u is new and holds bytes", gpu, slot.index);
    start_threads(threads, worker, &slot, seed);
    for (unsigned i = 0; i < thread_count; i++)
        pthread_join(threads[i].id, NULL);
    check_kept(worker, &slot);
    return 0;
}

/* --- Onlookers ------------------------------------------------------------------------------------- */

static void look_once(unsigned gpu)
{
    const struct word128 *words = ledger.usage->gpus[gpu].words;
    uint32_t marked = usage_slots_marked(ledger.usage);
    uint64_t stamps[LEDGER_SLOTS], sum = 0;

    for (uint32_t i = 0; i < marked; i++) {
        stamps[i] = usage_load(&words[i].high);
        sum += usage_load(&words[i].low);
    }
    for (uint32_t i = 0; i < marked; i++)
        if (usage_load(&words[i].high) != stamps[i])
            return;
    if (usage_slots_marked(ledger.usage) != marked)
        return;
    atomic_fetch_add(&board->snapshots, 1);
    if (gpu != ROOMY_GPU && sum > atomic_load(&board->fullest))
        atomic_store(&board->fullest, sum); /* one onlooker */
    if (sum > limit_of(gpu))
        fail("GPU %u: %" PRIu64 " bytes are granted of a limit of %" PRIu64, gpu, sum, limit_of(gpu));
}

static void *look_on(void *unused)
{
    while (!atomic_load(&board->onlookers_end))
        for (unsigned gpu = 0; gpu < GPUS; gpu++)
            look_once(gpu);
    return unused;
}

/* Whether reapers may have what this pid owned: it is dead, and its tally is settled. */
static bool may_be_reaped(const struct ledger_owner *owner)
{
    for (unsigned i = 0; i < worker_count; i++)
        if (atomic_load(&board->workers[i].pid) == owner->pid)
            return false;
    return !process_is_alive(owner->pid, owner->start_ticks);
}

static void reap_dead(void)
{
    struct ledger_owner owner;
    uint64_t generation;

    for (uint32_t i = 0; i < usage_slots_marked(ledger.usage); i++)
        if (ledger_slot_owner(ledger.usage, i, &owner, &generation) && may_be_reaped(&owner))
            ledger_slot_reap(ledger.usage, i, generation, NULL);
}

static int reaper_main(void)
{
    while (!atomic_load(&board->onlookers_end)) {
        reap_dead();
        pause_us(100);
    }
    return 0;
}

/* --- The parent ------------------------------------------------------------------------------------ */

static pid_t start(int (*main_function)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(main_function());
    }
    if (pid < 0) {
        perror("stress_ledger: cannot fork");
        exit(2);
    }
    return pid;
}

static struct worker *starting;
static uint64_t starting_seed;

static int start_worker_main(void)
{
    return worker_main(starting, starting_seed);
}

static int onlooker_main(void)
{
    look_on(NULL);
    return 0;
}

static void start_worker(struct worker *worker, uint64_t *random)
{
    starting = worker;
    starting_seed = 1 + draw(random, UINT64_C(1) << 40);
    atomic_store(&worker->pid, start(start_worker_main));
}

/* The worker is dead and waited for: take its tally off, then its slot is the reapers'. */
static void settle(struct worker *worker)
{
    for (unsigned gpu = 0; gpu < GPUS; gpu++) {
        atomic_fetch_sub(&board->tally[gpu], atomic_exchange(&worker->tally[gpu], 0));
        atomic_store(&worker->kept[gpu], 0);
    }
    atomic_store(&worker->pid, 0);
}

static void wait_for(pid_t pid, int options, const char *what)
{
    int status;
    if (waitpid(pid, &status, options) != pid)
        fail("waiting for a process to %s: %s", what, strerror(errno));
}

/* All but one stopped at whatever they were doing: that one goes on. */
static void leave_only(unsigned chosen, bool *is_stopped)
{
    struct worker *only = &board->workers[chosen];

    for (unsigned i = 0; i < worker_count; i++) {
        pid_t pid = atomic_load(&board->workers[i].pid);
        if (i == chosen && is_stopped[i]) {
            kill(pid, SIGCONT);
            is_stopped[i] = false;
        } else if (i != chosen && !is_stopped[i]) {
            kill(pid, SIGSTOP);
            wait_for(pid, WUNTRACED, "stop");
            is_stopped[i] = true;
        }
    }
    uint64_t from = atomic_load(&only->operations), deadline = now_ms() + 30000;
    while (atomic_load(&only->operations) < from + 500) {
        if (now_ms() > deadline) {
            fail("worker %u stands still since the others were stopped", chosen);
            break;
        }
        pause_us(200);
    }
    for (unsigned i = 0; i < worker_count; i++)
        if (is_stopped[i]) {
            kill(atomic_load(&board->workers[i].pid), SIGCONT);
            is_stopped[i] = false;
        }
}

static void check_end(void)
{
    uint64_t kept[GPUS] = {0}, recovered[LEDGER_GPUS] = {0};

    for (unsigned i = 0; i < worker_count; i++)
        for (unsigned gpu = 0; gpu < GPUS; gpu++) {
            uint64_t mine = atomic_load(&board->workers[i].kept[gpu]);
            uint64_t used = ledger_slot_bytes(ledger.usage, atomic_load(&board->workers[i].slot), gpu);
            if (used != mine)
                fail("GPU %u: worker %u ended with %" PRIu64 " bytes, its slot has %" PRIu64, gpu, i, mine,
                     used);
            kept[gpu] += mine;
        }
    for (unsigned gpu = 0; gpu < GPUS; gpu++)
        if (ledger_used(&ledger, gpu) != kept[gpu])
            fail("GPU %u: %" PRIu64 " bytes are granted, the living hold %" PRIu64, gpu,
                 ledger_used(&ledger, gpu), kept[gpu]);
    for (uint32_t i = 0; i < LEDGER_SLOTS; i++)
        ledger_slot_clear(ledger.usage, i, recovered);
    for (unsigned gpu = 0; gpu < GPUS; gpu++)
        if (recovered[gpu] != kept[gpu] || ledger_used(&ledger, gpu) != 0)
            fail("GPU %u: clearing gave %" PRIu64 " bytes back of %" PRIu64 " and left %" PRIu64, gpu,
                 recovered[gpu], kept[gpu], ledger_used(&ledger, gpu));
}

static void run_processes(uint64_t seconds, uint64_t random)
{
    bool is_stopped[MOST_WORKERS] = {false};
    pid_t reapers[REAPERS], onlooker = start(onlooker_main);
    unsigned killed = 0, stopped = 0, left_alone = 0;

    for (unsigned i = 0; i < REAPERS; i++)
        reapers[i] = start(reaper_main);
    for (unsigned i = 0; i < worker_count; i++)
        start_worker(&board->workers[i], &random);

    uint64_t end = now_ms() + seconds * 1000;
    while (now_ms() < end) {
        unsigned i = (unsigned)draw(&random, worker_count);
        struct worker *worker = &board->workers[i];
        uint64_t what = draw(&random, 64);
        if (what == 0) {
            leave_only(i, is_stopped);
            left_alone++;
        } else if (what < 4) {
            unsigned reaper = (unsigned)draw(&random, REAPERS);
            kill(reapers[reaper], SIGKILL);
            wait_for(reapers[reaper], 0, "die");
            reapers[reaper] = start(reaper_main);
        } else if (what < 24) {
            kill(atomic_load(&worker->pid), SIGKILL);
            wait_for(atomic_load(&worker->pid), 0, "die");
            settle(worker);
            if (draw(&random, 2))
                reap_dead(); /* beside the reapers */
            start_worker(worker, &random);
            is_stopped[i] = false;
            killed++;
        } else {
            kill(atomic_load(&worker->pid), is_stopped[i] ? SIGCONT : SIGSTOP);
            is_stopped[i] = !is_stopped[i];
            stopped += is_stopped[i];
        }
        pause_us(draw(&random, 4000));
    }

    atomic_store(&board->ending, true);
    for (unsigned i = 0; i < worker_count; i++) {
        int status;
        pid_t pid = atomic_load(&board->workers[i].pid);
        kill(pid, SIGCONT);
        while (waitpid(pid, &status, 0) != pid)
            ;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail("worker %u ended with wait status 0x%x", i, (unsigned)status);
    }
    atomic_store(&board->onlookers_end, true);
    wait_for(onlooker, 0, "end");
    for (unsigned i = 0; i < REAPERS; i++)
        wait_for(reapers[i], 0, "end");
    reap_dead(); /* those whom nobody got round to */
    check_end();
    printf("%u killed, %u stopped, %u times all but one stopped\n", killed, stopped, left_alone);
}

static void run_threads(uint64_t seconds, uint64_t random)
{
    static struct thread threads[MOST_WORKERS][MOST_THREADS];
    static struct ledger_slot slots[MOST_WORKERS];
    static struct lock turns[MOST_WORKERS];
    pthread_t onlooker;

    if (pthread_create(&onlooker, NULL, look_on, NULL) != 0)
        abort();
    for (unsigned i = 0; i < worker_count; i++) {
        slots[i] = (struct ledger_slot){.ledger = ledger, .lock = &turns[i]};
        struct ledger_owner owner = {.pid = getpid()};
        slots[i].index = (uint32_t)ledger_slot_claim(ledger.usage, owner, &slots[i].generation);
        atomic_store(&board->workers[i].slot, slots[i].index);
        start_threads(threads[i], &board->workers[i], &slots[i], draw(&random, UINT64_C(1) << 40));
    }
    pause_us(seconds * 1000000);
    atomic_store(&board->ending, true);
    for (unsigned i = 0; i < worker_count; i++) {
        for (unsigned j = 0; j < thread_count; j++)
            pthread_join(threads[i][j].id, NULL);
        check_kept(&board->workers[i], &slots[i]);
    }
    atomic_store(&board->onlookers_end, true);
    pthread_join(onlooker, NULL);
    check_end();
}

int main(int argc, char **argv)
{
    bool processes = argc > 1 && strcmp(argv[1], "processes") == 0;
    uint64_t seconds = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    worker_count = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    thread_count = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
    uint64_t seed = argc > 5 ? strtoull(argv[5], NULL, 10) : 20250101;
    if (argc < 5 || (!processes && strcmp(argv[1], "threads") != 0) || seconds == 0 || worker_count < 2 ||
        worker_count > MOST_WORKERS || thread_count == 0 || thread_count > MOST_THREADS || seed == 0) {
        fprintf(stderr,
                "usage: stress_ledger processes|threads SECONDS WORKERS(2..%u) THREADS(1..%u) [SEED]\n",
                MOST_WORKERS, MOST_THREADS);
        return 2;
    }

    board = map(sizeof *board);
    ledger.policy = &board->policy;
    ledger.usage = map(ledger_usage_bytes());
    ledger_policy_init(&board->policy, "5e55104e55aa", 1);
    board->policy.gpu_count = GPUS;
    for (unsigned gpu = 0; gpu < GPUS; gpu++)
        board->policy.gpus[gpu].limit_bytes = limit_of(gpu);
    ledger_usage_init(ledger.usage, 1);

    printf("%u workers of %u threads, %" PRIu64 " s, seed %" PRIu64 "\n", worker_count, thread_count, seconds,
           seed);
    fflush(stdout);
    if (processes)
        run_processes(seconds, seed);
    else
        run_threads(seconds, seed);
    if (atomic_load(&board->snapshots) == 0)
        fail("the onlooker caught no moment at all");
    printf("%" PRIu64 " granted, %" PRIu64 " refused, %" PRIu64 " moments looked at, fullest %" PRIu64
           " of %" PRIu64 " bytes, %" PRIu64 " failures\n",
           atomic_load(&board->granted), atomic_load(&board->refused), atomic_load(&board->snapshots),
           atomic_load(&board->fullest), LIMIT_BYTES, atomic_load(&board->failures));
    return atomic_load(&board->failures) != 0;
}
