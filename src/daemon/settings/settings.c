#include "daemon/settings/settings.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"

/* Editors write a file in several steps: read it when nothing has changed for a moment. */
#define SETTLE_USEC UINT64_C(200000)

struct settings {
    struct config_option options[2];
    char problem[ERROR_MESSAGE_BYTES]; /* why gpuslice.conf is not in force; "": it is in force */
    sd_event_source *watch, *settle, *hangup;
    /* If the folder does not exist: the first missing part of its path; "": it exists. */
    char awaited[NAME_MAX + 1];
};

/* --- Reading --------------------------------------------------------------------------------------- */

static void log_warnings(const struct config *config)
{
    char text[CONFIG_WARNING_TEXT];
    for (size_t i = 0; i < config->ceiling_count; i++)
        if (config_warning(config, i, text))
            log_warning("%s", text);
}

int settings_load(struct daemon *daemon, const char *idle_exit, struct error *error)
{
    struct settings *settings = calloc(1, sizeof(*settings));
    if (!settings)
        return error_set_errno(error, ENOMEM, "cannot read the settings");
    if (idle_exit)
        settings->options[0] = (struct config_option){"--idle-exit", idle_exit};
    int result = config_load(&daemon->config, daemon->paths.config_dir, settings->options, error);
    if (result < 0) {
        free(settings);
        return result;
    }
    daemon->settings = settings;
    log_set_debug(daemon->config.daemon.debug);
    log_warnings(&daemon->config);
    return 0;
}

static void log_waiting(const struct config *config)
{
    for (size_t i = 0; i < config->entry_count; i++)
        if (config->entries[i].waits)
            log_warning("%s: %s takes effect when the daemon starts next", config->path,
                        config->entries[i].key->name);
}

static void reload_config(struct daemon *daemon)
{
    struct settings *settings = daemon->settings;
    struct config next;
    struct error error;
    int result = config_load(&next, daemon->paths.config_dir, settings->options, &error);
    if (result == 0 && (result = config_carry_over(&next, &daemon->config, &error)) < 0)
        config_free(&next);
    daemon->is_config_refused = result < 0;
    if (result < 0) {
        log_error("the configuration did not change: %s", error.message);
        snprintf(settings->problem, sizeof(settings->problem), "%s", error.message);
        change_publish(daemon, &(struct change){CHANGE_CONFIG_REFUSED}, "%s", error.message);
    } else {
        config_free(&daemon->config);
        daemon->config = next;
        settings->problem[0] = '\0';
        log_set_debug(next.daemon.debug);
        log_info("the configuration was read%s", next.is_there ? "" : "; there is no " CONFIG_FILE);
        log_waiting(&next);
        log_warnings(&next);
        change_publish(daemon, &(struct change){CHANGE_CONFIG_READ}, "%s was read", next.path);
    }
}

/* The configuration comes first: sessions.conf, which observers read then, uses its defaults. */
static void reload(struct daemon *daemon)
{
    reload_config(daemon);
    change_publish(daemon, &(struct change){CHANGE_SETTINGS_READ}, "the settings were read");
}

/* --- Watching -------------------------------------------------------------------------------------- */

static void watch_again(struct daemon *daemon);

static int settle(struct settings *settings)
{
    sd_event_source_set_time_relative(settings->settle, SETTLE_USEC);
    return sd_event_source_set_enabled(settings->settle, SD_EVENT_ONESHOT);
}

static int on_settled(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct daemon *daemon = userdata;
    watch_again(daemon);
    reload(daemon);
    return 0;
}

static int on_change(sd_event_source *source, const struct inotify_event *event, void *userdata)
{
    struct daemon *daemon = userdata;
    struct settings *settings = daemon->settings;
    bool is_about_another = event->len && strcmp(event->name, settings->awaited) != 0;
    return settings->awaited[0] && is_about_another ? 0 : settle(settings);
}

static int on_hangup(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
    struct daemon *daemon = userdata;
    log_info("SIGHUP: the configuration is read again");
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)daemon_now_usec());
    reload(daemon);
    sd_notify(0, "READY=1");
    return 0;
}

/* Watch the folder, or the nearest parent that exists, for the next part of the path to appear. */
static void watch_again(struct daemon *daemon)
{
    struct settings *settings = daemon->settings;
    uint32_t mask = IN_ONLYDIR | IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;
    uint32_t own_mask = mask | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_DELETE | IN_ATTRIB;
    char path[PATH_MAX];
    sd_event_source *watch;
    strcpy(path, daemon->paths.config_dir);
    /* The new watch is added before the old one goes, so that no change is missed in between. */
    int result = sd_event_add_inotify(daemon->loop, &watch, path, own_mask, on_change, daemon);
    while ((result == -ENOENT || result == -ENOTDIR) && path[1]) {
        char *slash = strrchr(path, '/');
        slash[slash == path] = '\0';
        result = sd_event_add_inotify(daemon->loop, &watch, path, mask, on_change, daemon);
    }
    if (result < 0) {
        log_error("the daemon cannot see changes of the configuration; send SIGHUP after a change: cannot "
                  "watch the folder %s: %s",
                  path, strerror(-result));
        return;
    }
    sd_event_source_disable_unref(settings->watch);
    settings->watch = watch;
    settings->awaited[0] = '\0';
    size_t length = strlen(path);
    if (strlen(daemon->paths.config_dir) == length)
        return;
    const char *part = daemon->paths.config_dir + length + (path[1] != '\0');
    snprintf(settings->awaited, sizeof(settings->awaited), "%.*s", (int)strcspn(part, "/"), part);
    /* The part may have appeared after we found it missing and before the parent was watched. */
    char next[PATH_MAX];
    snprintf(next, sizeof(next), "%.*s",
             (int)(part - daemon->paths.config_dir + (ptrdiff_t)strcspn(part, "/")),
             daemon->paths.config_dir);
    if (access(next, F_OK) == 0)
        settle(settings);
}

int settings_start(struct daemon *daemon, struct error *error)
{
    struct settings *settings = daemon->settings;
    int result = sd_event_add_signal(daemon->loop, &settings->hangup, SIGHUP, on_hangup, daemon);
    if (result >= 0)
        result = sd_event_add_time_relative(daemon->loop, &settings->settle, CLOCK_MONOTONIC, SETTLE_USEC, 0,
                                            on_settled, daemon);
    if (result >= 0)
        result = sd_event_source_set_enabled(settings->settle, SD_EVENT_OFF);
    if (result < 0)
        return error_set_errno(error, -result, "cannot watch the configuration");
    watch_again(daemon);
    return 0;
}

void settings_stop(struct daemon *daemon)
{
    struct settings *settings = daemon->settings;
    sd_event_source_disable_unref(settings->watch);
    sd_event_source_disable_unref(settings->settle);
    sd_event_source_disable_unref(settings->hangup);
    free(settings);
    daemon->settings = NULL;
    config_free(&daemon->config);
}

const char *settings_problem(const struct daemon *daemon)
{
    return daemon->settings->problem[0] ? daemon->settings->problem : NULL;
}
