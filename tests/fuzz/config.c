/* gpuslice.conf and sessions.conf, the latter in Gemini's form too. */
#include <fcntl.h>
#include <unistd.h>

#include "config/config.h"
#include "fuzz.h"

/* A file in memory, under a path that opens it anew. */
static void write_file(char path[static 64], const uint8_t *data, size_t bytes)
{
    static int fd = -1;
    if (fd < 0)
        fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    fuzz_require(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, bytes, 0) == (ssize_t)bytes);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
}

static void check_config(const uint8_t *data, size_t bytes)
{
    static struct config config;
    char path[64];
    struct error error = {0};
    write_file(path, data, bytes);
    memset(&config, 0, sizeof(config));
    if (config_load_file(&config, path, &error) < 0) {
        fuzz_require(error.message[0]);
        return;
    }
    fuzz_require(config.defaults.properties.compute.min <= config.defaults.properties.compute.max);
    fuzz_require(config.defaults.memory.bytes <= INT64_MAX);
    json_t *json = config_json(&config);
    char *text = json ? json_dumps(json, 0) : NULL;
    fuzz_require(text);
    free(text);
    json_decref(json);
    config_free(&config);
}

static void check_sessions(const uint8_t *data, size_t bytes)
{
    static struct config_sessions sessions;
    struct error error = {0};
    char *text = fuzz_text(data, bytes);
    memset(&sessions, 0, sizeof(sessions));
    strcpy(sessions.path, "sessions.conf");
    if (config_sessions_parse(&sessions, text, &error) < 0) {
        fuzz_require(error.message[0]);
    } else {
        for (size_t i = 0; i < sessions.count; i++)
            fuzz_require(sessions.sessions[i].name[0] && sessions.sessions[i].memory.bytes <= INT64_MAX);
        json_t *json = config_sessions_json(&sessions);
        fuzz_require(json_array_size(json) == sessions.count);
        json_decref(json);
    }
    config_sessions_free(&sessions);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    check_config(data, bytes);
    check_sessions(data, bytes);
    return 0;
}
