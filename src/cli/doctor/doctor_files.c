/* Checks of what GPU Slice writes and reads: room on the disks, and the rules of sessions.conf. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "cli/doctor/doctor.h"
#include "config/config.h"

/* The daemon makes no session that it cannot store, and a session's ledger takes up to 1 MiB. */
#define ROOM_LEAST_BYTES (UINT64_C(16) << 20)
#define ROOM_GOOD_BYTES (UINT64_C(256) << 20)

/* --- Disks ----------------------------------------------------------------------------------------- */

/* What is free for this user on the disk of `folder`. False where it does not exist yet. */
static bool read_room(const char *folder, uint64_t *bytes)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) < 0)
        return false;
    *bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    return true;
}

void doctor_disk(const struct doctor *doctor, struct doctor_finding *finding)
{
    const char *const folders[] = {doctor->paths.state_dir, doctor->paths.runtime_dir};
    const char *fullest = NULL;
    uint64_t least = UINT64_MAX, bytes;
    char room[UNITS_BYTES_TEXT];
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && doctor->no_paths.status == 0; i++) {
        if (!read_room(folders[i], &bytes) || bytes >= least)
            continue;
        least = bytes;
        fullest = folders[i];
    }
    if (!fullest)
        doctor_say(finding, DOCTOR_OK, "", "the daemon has no folders yet");
    else if (least < ROOM_LEAST_BYTES)
        doctor_say(finding, DOCTOR_PROBLEM, "make room there: what cannot be written is refused",
                   "the disk of %s is full: %s are free", fullest, units_format_bytes(least, room));
    else if (least < ROOM_GOOD_BYTES)
        doctor_say(finding, DOCTOR_WARNING, "make room there, or set history-size and metrics-file-max",
                   "the disk of %s is nearly full: %s are free", fullest, units_format_bytes(least, room));
    else
        doctor_say(finding, DOCTOR_OK, "", "%s are free on the disk of %s", units_format_bytes(least, room),
                   fullest);
}

/* --- Rules ----------------------------------------------------------------------------------------- */

/* Whether each program of this machine is given the interceptor. */
static bool is_preloaded_everywhere(const struct doctor *doctor)
{
    char path[PATH_MAX], line[PATH_MAX];
    bool is_named = false;
    snprintf(path, sizeof(path), "%s/etc/ld.so.preload", doctor->root);
    cleanup_file FILE *file = fopen(path, "re");
    while (file && !is_named && fgets(line, sizeof(line), file))
        is_named = strstr(line, "libgpuslice.so") && line[0] != '#';
    return is_named;
}

static unsigned count_rules(const struct config_sessions *file, const char **first)
{
    unsigned count = 0;
    for (size_t i = 0; i < file->count; i++)
        if (file->sessions[i].match.count && count++ == 0)
            *first = file->sessions[i].name;
    return count;
}

void doctor_rules(const struct doctor *doctor, struct doctor_finding *finding)
{
    struct config_sessions file;
    struct error error;
    const char *first = NULL;
    if (doctor->no_paths.status || config_sessions_load(&file, doctor->paths.config_dir, &error) < 0) {
        doctor_say(finding, DOCTOR_PROBLEM,
                   "'gpuslice config check' says where; until then the older version holds", "%s",
                   doctor->no_paths.status ? doctor->no_paths.message : error.message);
        return;
    }
    unsigned count = count_rules(&file, &first);
    bool is_everywhere = is_preloaded_everywhere(doctor);
    if (count && !is_everywhere)
        doctor_say(
            finding, DOCTOR_WARNING,
            "name libgpuslice.so in /etc/ld.so.preload, so that programs ask for their session",
            "[%s]%s in sessions.conf %s programs by 'match', but this machine's programs start without "
            "the interceptor",
            first, count > 1 ? " and others" : "", count > 1 ? "name" : "names");
    else if (count)
        doctor_say(finding, DOCTOR_OK, "",
                   "%u section%s of sessions.conf %s programs by 'match'; the first is [%s]", count,
                   count == 1 ? "" : "s", count == 1 ? "names" : "name", first);
    else if (is_everywhere)
        doctor_say(finding, DOCTOR_WARNING,
                   "give a section of sessions.conf 'match = ...', or start programs with 'gpuslice run'",
                   "/etc/ld.so.preload names the interceptor, but no section of sessions.conf has 'match': "
                   "programs that are told no session run without limits");
    else
        doctor_say(finding, DOCTOR_OK, "", "none: a program is in a session if it was started in one");
    config_sessions_free(&file);
}
