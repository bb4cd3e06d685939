#include "small_daemon.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/agents/agents.h"
#include "daemon/history/events.h"
#include "daemon/loop/log.h"
#include "daemon/loop/round.h"
#include "daemon/process/driver_line.h"
#include "daemon/process/release.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/moves.h"
#include "daemon/schedule/schedule.h"
#include "daemon/session/declared.h"
#include "daemon/session/queue.h"
#include "daemon/settings/settings.h"
#include "fuzz.h"

#define ROUNDS_MAX 1000

static struct daemon daemon_state;
static pid_t maker;

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    return remove(path);
}

void small_daemon_remove(const char *path)
{
    nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void remove_folder(void)
{
    if (getpid() == maker)
        small_daemon_remove(daemon_state.paths.runtime_dir);
}

static void make_cards(struct daemon *daemon)
{
    daemon->gpu_count = 2;
    for (unsigned i = 0; i < daemon->gpu_count; i++) {
        struct gpu *gpu = &daemon->gpus[i];
        *gpu = (struct gpu){
            .index = i, .mig_index = -1, .healthy = true, .total_bytes = 1 << 30, .context_bytes = 4096};
        snprintf(gpu->label, sizeof(gpu->label), "%u", i);
        memset(gpu->uuid, (int)(0x11 * (i + 1)), sizeof(gpu->uuid));
        gpu_uuid_format(gpu->uuid, gpu->uuid_text);
    }
}

static void make_paths(struct paths *paths)
{
    const char *parent = getenv("TMPDIR");
    char folder[64];
    fuzz_require(snprintf(folder, sizeof(folder), "%s/fuzz-XXXXXX", parent ? parent : "/tmp") <
                 (int)sizeof(folder));
    fuzz_require(mkdtemp(folder));
    snprintf(paths->runtime_dir, sizeof(paths->runtime_dir), "%s", folder);
    snprintf(paths->state_dir, sizeof(paths->state_dir), "%s", folder);
    snprintf(paths->config_dir, sizeof(paths->config_dir), "%s/config", folder);
    snprintf(paths->ledgers_dir, sizeof(paths->ledgers_dir), "%s/ledgers", folder);
    snprintf(paths->attach_socket, sizeof(paths->attach_socket), "%s/attach.sock", folder);
    snprintf(paths->state_file, sizeof(paths->state_file), "%s/state.db", folder);
    snprintf(paths->log_file, sizeof(paths->log_file), "%s/log", folder);
    fuzz_require(mkdir(paths->ledgers_dir, 0700) == 0);
}

struct daemon *small_daemon(void)
{
    struct daemon *daemon = &daemon_state;
    struct error error;
    if (daemon->loop)
        return daemon;
    make_paths(&daemon->paths);
    fuzz_require(log_open(daemon->paths.log_file, &error) == 0);
    maker = getpid();
    atexit(remove_folder);
    daemon->options.simulated = true;
    fuzz_require(settings_load(daemon, NULL, &error) == 0);
    daemon->config.daemon.recovery_usec = UINT64_C(60000000);
    make_cards(daemon);
    fuzz_require(sd_event_new(&daemon->loop) >= 0);
    fuzz_require(round_start(daemon, &error) == 0);
    fuzz_require(events_start(daemon, &error) == 0);
    fuzz_require(agents_start(daemon, &error) == 0);
    fuzz_require(schedule_start(daemon, &error) == 0);
    fuzz_require(arena_start(daemon, &error) == 0);
    fuzz_require(moves_start(daemon, &error) == 0);
    fuzz_require(queue_start(daemon, &error) == 0);
    fuzz_require(driver_line_start(daemon, &error) == 0);
    fuzz_require(release_start(daemon, &error) == 0);
    fuzz_require(declared_start(daemon, &error) == 0);
    return daemon;
}

void small_daemon_run(struct daemon *daemon)
{
    for (unsigned i = 0; i < ROUNDS_MAX; i++)
        if (sd_event_run(daemon->loop, 0) <= 0)
            return;
}
