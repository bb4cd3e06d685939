/* A state file of any contents: it is refused, or what it holds is sessions that the daemon can serve. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/api/api.h"
#include "daemon/session/session.h"
#include "daemon/session/session_life.h"
#include "daemon/store/store.h"
#include "fuzz.h"
#include "small_daemon.h"

static void write_state(const char *path, const uint8_t *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_require(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
}

static void check_session(const struct session *session)
{
    fuzz_require(identity_is_id(session->id) && identity_is_valid(session->name));
    fuzz_require(session->gpu_count <= LEDGER_GPUS);
    fuzz_require(session->properties.compute.min <= session->properties.compute.max &&
                 session->properties.compute.max <= SHARE_WHOLE);
    json_t *json = api_session_json(session);
    fuzz_require(json_is_object(json));
    json_decref(json);
    json = api_environment_json(session);
    fuzz_require(json_is_object(json));
    json_decref(json);
}

static void remove_all(struct daemon *daemon)
{
    small_daemon_remove(daemon->paths.ledgers_dir);
    fuzz_require(mkdir(daemon->paths.ledgers_dir, 0700) == 0);
    static const char *const endings[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        char path[PATH_MAX + 16];
        snprintf(path, sizeof(path), "%s%s", daemon->paths.state_file, endings[i]);
        unlink(path);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct daemon *daemon = small_daemon();
    struct error error = {0};
    write_state(daemon->paths.state_file, data, bytes);
    if (store_open(daemon, &error) == 0) {
        if (store_load(daemon, &error) == 0)
            for (const struct session *session = daemon->sessions; session; session = session->next)
                check_session(session);
        else
            fuzz_require(error.message[0]);
        small_daemon_run(daemon);
        session_free_all(daemon);
        store_close(daemon);
    } else {
        fuzz_require(error.message[0]);
    }
    small_daemon_run(daemon);
    remove_all(daemon);
    return 0;
}
