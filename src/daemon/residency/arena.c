#include "daemon/residency/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/host_nodes.h"
#include "base/pci.h"
#include "base/units.h"
#include "daemon/gpu/nvml.h"
#include "daemon/loop/connection_closer.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/worker.h"
#include "daemon/residency/chunk.h"

#define STOP_SECONDS 5

/* What must be left to others, of the machine's memory and of a cgroup's. */
#define SPARED_PART 20 /* a twentieth of all of it */
#define SPARED_LEAST (UINT64_C(64) << 20)
#define SPARED_MOST (UINT64_C(2) << 30)
#define SPARED_PART_AHEAD 5 /* by what is made ahead of need */

/* What the helper does. */
struct arena_work {
    struct worker_job job;
    void (*run)(struct arena_work *work);
    struct daemon *daemon;
};

struct arena_job {
    struct arena_work work;
    uint64_t bytes, all_bytes;
    bool is_ahead;
    char pci_address[NVML_PCI_ADDRESS_TEXT]; /* of the GPU near which it is made; "": anywhere */
    arena_made *made;
    void *argument;
    /* By the helper. */
    int fd;
    char why[200];
};

uint64_t arena_chunk_bytes(uint64_t lacking_bytes)
{
    uint64_t whole = (lacking_bytes + ARENA_CHUNK_SMALL - 1) / ARENA_CHUNK_SMALL * ARENA_CHUNK_SMALL;
    return lacking_bytes >= ARENA_CHUNK_LARGE ? ARENA_CHUNK_LARGE : whole ? whole : ARENA_CHUNK_SMALL;
}

uint64_t arena_chunks_bytes(uint64_t lacking_bytes)
{
    uint64_t rest = lacking_bytes % ARENA_CHUNK_LARGE;
    return lacking_bytes - rest + (rest ? arena_chunk_bytes(rest) : 0);
}

/* A simulated machine may have nodes of its own. */
static const char *sysfs_of(const struct daemon *daemon)
{
    const char *simulated = daemon->options.simulated ? secure_getenv("FAKECUDA_SYSFS") : NULL;
    return simulated && *simulated ? simulated : "/sys";
}

/* It does not change. */
uint64_t arena_machine_bytes(const struct daemon *daemon)
{
    static uint64_t total_bytes;
    uint64_t available_bytes;
    if (!total_bytes && !host_memory_read(sysfs_of(daemon), &total_bytes, &available_bytes))
        total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return total_bytes;
}

uint64_t arena_bound_bytes(const struct daemon *daemon)
{
    uint64_t said = daemon->config.daemon.host_memory_bytes;
    return said ? said : arena_machine_bytes(daemon) / 2;
}

/* --- How much there is ----------------------------------------------------------------------------- */

static uint64_t without_spare(uint64_t all_bytes, uint64_t free_bytes, bool is_ahead)
{
    uint64_t spare = all_bytes / SPARED_PART, most = is_ahead ? all_bytes / SPARED_PART_AHEAD : SPARED_MOST;
    spare = is_ahead ? most : spare > most ? most : spare;
    spare = spare < SPARED_LEAST ? SPARED_LEAST : spare;
    return free_bytes > spare ? free_bytes - spare : 0;
}

/* The number after `name` at the start of a line; false where there is none. */
static bool read_line_number(const char *path, const char *name, uint64_t *number)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file))
        found =
            strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), "%" SCNu64, number) == 1;
    if (file)
        fclose(file);
    return found;
}

static uint64_t machine_room(const char *sysfs, bool is_ahead)
{
    uint64_t total, available;
    return host_memory_read(sysfs, &total, &available) ? without_spare(total, available, is_ahead)
                                                       : UINT64_MAX;
}

/* Where the kernel keeps a process's memory cgroup (cgroups(7)), and what its files are called. */
static const struct cgroups {
    const char *controller; /* in /proc/self/cgroup; "": the one hierarchy of version 2 */
    const char *root, *max, *current, *inactive, *active;
} cgroups[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", "active_file "},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file ", "total_active_file "},
};

static bool read_number_in(const char *folder, const char *file, const char *name, uint64_t *number)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    return read_line_number(path, name, number);
}

/* How much the cgroup at `folder` may still take, counting its file cache, which the kernel can drop at once. */
static uint64_t cgroup_room(const struct cgroups *kind, const char *folder, bool is_ahead)
{
    uint64_t max, current, inactive = 0, active = 0;
    if (!read_number_in(folder, kind->max, "", &max) || /* "max", or the root, which has no limit */
        !read_number_in(folder, kind->current, "", &current))
        return UINT64_MAX;
    read_number_in(folder, "memory.stat", kind->inactive, &inactive);
    read_number_in(folder, "memory.stat", kind->active, &active);
    uint64_t files = inactive + active;
    uint64_t used = current > files ? current - files : 0;
    return without_spare(max, max > used ? max - used : 0, is_ahead);
}

/* Whether the line of /proc/self/cgroup, "5:cpu,cpuacct:/path", is about that controller; sets `*path` then. */
static bool is_line_of(char *line, const char *controller, const char **path)
{
    char *controllers = strchr(line, ':'), *end = controllers ? strchr(controllers + 1, ':') : NULL, *rest;
    if (!end)
        return false;
    *end = '\0';
    *path = end + 1;
    if (!controller[0])
        return controllers[1] == '\0';
    for (char *name = strtok_r(controllers + 1, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        if (strcmp(name, controller) == 0)
            return true;
    return false;
}

/* The folder of the daemon's cgroup in that hierarchy; false where it has none. */
static bool find_cgroup(const struct cgroups *kind, char *folder, size_t size)
{
    char line[PATH_MAX];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !found && fgets(line, sizeof(line), file)) {
        const char *path;
        line[strcspn(line, "\n")] = '\0';
        found = is_line_of(line, kind->controller, &path);
        if (found)
            snprintf(folder, size, "%s%s", kind->root, path);
    }
    if (file)
        fclose(file);
    return found;
}

/* The least room of the daemon's cgroup and all its parents. */
static uint64_t cgroups_room(bool is_ahead)
{
    char folder[PATH_MAX + 32];
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof(cgroups) / sizeof(cgroups[0]); i++) {
        bool found = find_cgroup(&cgroups[i], folder, sizeof(folder));
        while (found && strlen(folder) >= strlen(cgroups[i].root)) {
            uint64_t room = cgroup_room(&cgroups[i], folder, is_ahead);
            least = room < least ? room : least;
            *strrchr(folder, '/') = '\0';
        }
    }
    return least;
}

/* What the machine and the daemon's cgroup can give now and leave enough to others. Takes milliseconds. */
static uint64_t room_bytes_now(const char *sysfs, bool is_ahead)
{
    uint64_t machine = machine_room(sysfs, is_ahead), allowed = cgroups_room(is_ahead);
    return machine < allowed ? machine : allowed;
}

/* --- Making, in the helper ------------------------------------------------------------------------- */

static int make_chunk(struct arena_job *job)
{
    char wanted[UNITS_BYTES_TEXT], room[UNITS_BYTES_TEXT];
    const char *sysfs = sysfs_of(job->work.daemon);
    uint64_t room_bytes = room_bytes_now(sysfs, job->is_ahead);
    if (room_bytes < job->all_bytes) {
        snprintf(job->why, sizeof(job->why),
                 "there is not enough host memory: it needs %s more, and the machine or the daemon's cgroup "
                 "can spare %s",
                 units_format_bytes(job->all_bytes, wanted), units_format_bytes(room_bytes, room));
        return -ENOMEM;
    }
    int fd = chunk_make(job->bytes, sysfs, pci_numa_node(sysfs, job->pci_address),
                        job->is_ahead ? 1 : CHUNK_THREADS_MOST);
    if (fd < 0)
        snprintf(job->why, sizeof(job->why), "cannot make host memory: %s", strerror(-fd));
    return fd;
}

struct look_job {
    struct arena_work work;
    arena_looked *looked;
    bool is_short; /* by the helper */
};

static void make(struct arena_work *work)
{
    struct arena_job *job = (struct arena_job *)work;
    job->fd = make_chunk(job);
}

static void look_for_room(struct arena_work *work)
{
    ((struct look_job *)work)->is_short = room_bytes_now(sysfs_of(work->daemon), false) == 0;
}

/* --- Ending, in the helper ------------------------------------------------------------------------- */

struct end_job {
    struct arena_work work;
    SLIST_ENTRY(end_job) next;
    int own_fd;
};

/* The chunks that are to be freed. */
static struct {
    pthread_mutex_t lock;
    SLIST_HEAD(, end_job) jobs; /* under the lock */
} endings = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct end_job *take_ending(void)
{
    pthread_mutex_lock(&endings.lock);
    struct end_job *job = SLIST_FIRST(&endings.jobs);
    if (job)
        SLIST_REMOVE_HEAD(&endings.jobs, next);
    pthread_mutex_unlock(&endings.lock);
    return job;
}

/* Before any other job, whoever's turn it is: that may need the memory. */
static void end_chunks(void)
{
    struct end_job *job;
    while ((job = take_ending()))
        chunk_end(job->own_fd);
}

static void do_nothing_more(struct arena_work *work)
{
    (void)work;
}

static void run_jobs(struct worker_job *first, void *context)
{
    (void)context;
    end_chunks();
    for (struct worker_job *at = first; at; at = at->next) {
        struct arena_work *work = (struct arena_work *)at;
        work->run(work);
    }
}

/* --- The loop's side ------------------------------------------------------------------------------- */

static void on_looked(struct worker_job *worker_job)
{
    struct look_job *job = (struct look_job *)worker_job;
    job->looked(job->work.daemon, job->is_short);
    free(job);
}

static void on_done(struct worker_job *worker_job)
{
    struct arena_job *job = (struct arena_job *)worker_job;
    job->made(job->argument, job->fd, job->bytes, job->why);
    if (job->fd >= 0)
        connection_closer_close(job->work.daemon, job->fd); /* if no process has it, its pages are freed */
    free(job);
}

void arena_make(struct daemon *daemon, const struct arena_wish *wish, arena_made *made, void *argument)
{
    struct arena_job *job = calloc(1, sizeof(*job));
    if (!job) {
        made(argument, -ENOMEM, wish->bytes, "the daemon is out of memory");
        return;
    }
    *job = (struct arena_job){
        .work = {.job = {.done = on_done, .payer = wish->payer}, .run = make, .daemon = daemon},
        .bytes = wish->bytes,
        .all_bytes = wish->all_bytes > wish->bytes ? wish->all_bytes : wish->bytes,
        .is_ahead = wish->is_ahead,
        .made = made,
        .argument = argument,
        .fd = -1};
    snprintf(job->pci_address, sizeof(job->pci_address), "%s", wish->pci_address);
    worker_submit(daemon->arena, &job->work.job);
}

static void on_ended(struct worker_job *job)
{
    free(job);
}

void arena_end_chunk(struct daemon *daemon, int own_fd, uint64_t payer)
{
    struct end_job *job = daemon->arena ? calloc(1, sizeof(*job)) : NULL;
    if (!job) {
        chunk_end(own_fd);
        return;
    }
    *job = (struct end_job){
        .work = {.job = {.done = on_ended, .payer = payer}, .run = do_nothing_more, .daemon = daemon},
        .own_fd = own_fd};
    pthread_mutex_lock(&endings.lock);
    SLIST_INSERT_HEAD(&endings.jobs, job, next);
    pthread_mutex_unlock(&endings.lock);
    worker_submit(daemon->arena, &job->work.job);
}

bool arena_look(struct daemon *daemon, arena_looked *looked)
{
    struct look_job *job = calloc(1, sizeof(*job));
    if (!job)
        return false;
    *job = (struct look_job){.work = {.job.done = on_looked, .run = look_for_room, .daemon = daemon},
                             .looked = looked};
    worker_submit(daemon->arena, &job->work.job);
    return true;
}

int arena_start(struct daemon *daemon, struct error *error)
{
    return worker_start_in_turns(&daemon->arena, daemon->loop, "gpusliced-arena", run_jobs, NULL, error);
}

void arena_stop(struct daemon *daemon)
{
    if (!worker_stop(daemon->arena, STOP_SECONDS))
        log_warning("the daemon was still making host memory for evicted GPU memory");
    daemon->arena = NULL;
}
