#include "daemon/api/user_names.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/worker.h"

#define KEPT_NS UINT64_C(300000000000) /* after that it is looked up again */
#define PLACES 256u
#define NAME_BYTES 64
#define LOOK_UP_BYTES 4096
#define STOP_SECONDS 1

/* A place in the table; a user whose number has the same remainder takes it over. */
struct known {
    uid_t uid;
    bool is_taken, is_asked;
    uint64_t until_ns; /* until when the name is valid; 0: not known yet */
    char name[NAME_BYTES];
};

struct user_names {
    struct worker *worker;
    struct known known[PLACES];
};

struct look_up {
    struct worker_job job;
    struct user_names *names;
    uid_t uid;
    char name[NAME_BYTES];
};

static void find_name(uid_t uid, char name[static NAME_BYTES])
{
    char text[LOOK_UP_BYTES];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(uid, &entry, text, sizeof(text), &found) == 0 && found)
        snprintf(name, NAME_BYTES, "%s", found->pw_name);
    else
        snprintf(name, NAME_BYTES, "%u", (unsigned)uid);
}

static void run_look_ups(struct worker_job *first, void *context)
{
    for (; first; first = first->next) {
        struct look_up *look_up = (struct look_up *)first;
        find_name(look_up->uid, look_up->name);
    }
}

static void keep(struct user_names *names, uid_t uid, const char *name)
{
    struct known *known = &names->known[uid % PLACES];
    *known = (struct known){.uid = uid, .is_taken = true, .until_ns = monotonic_ns() + KEPT_NS};
    snprintf(known->name, sizeof(known->name), "%s", name);
}

static void on_found(struct worker_job *job)
{
    struct look_up *look_up = (struct look_up *)job;
    keep(look_up->names, look_up->uid, look_up->name);
    free(look_up);
}

static void ask_for_name(struct user_names *names, struct known *known)
{
    struct look_up *look_up = calloc(1, sizeof(*look_up));
    if (!look_up)
        return;
    *look_up = (struct look_up){.job.done = on_found, .names = names, .uid = known->uid};
    known->is_asked = true;
    worker_submit(names->worker, &look_up->job);
}

const char *user_name_of(struct daemon *daemon, uid_t uid)
{
    static char number[16];
    struct user_names *names = daemon->user_names;
    snprintf(number, sizeof(number), "%u", (unsigned)uid);
    if (!names)
        return number;
    struct known *known = &names->known[uid % PLACES];
    if (!known->is_taken || known->uid != uid)
        *known = (struct known){.uid = uid, .is_taken = true};
    if (known->until_ns <= monotonic_ns() && !known->is_asked)
        ask_for_name(names, known);
    return known->name[0] ? known->name : number;
}

int user_names_start(struct daemon *daemon, struct error *error)
{
    char own[NAME_BYTES];
    struct user_names *names = calloc(1, sizeof(*names));
    if (!names)
        return error_set_errno(error, ENOMEM, "cannot look up users' names");
    int result = worker_start(&names->worker, daemon->loop, "gpusliced-names", run_look_ups, names, error);
    if (result < 0) {
        free(names);
        return result;
    }
    find_name(geteuid(), own);
    keep(names, geteuid(), own);
    daemon->user_names = names;
    return 0;
}

void user_names_stop(struct daemon *daemon)
{
    struct user_names *names = daemon->user_names;
    if (!names)
        return;
    daemon->user_names = NULL;
    if (worker_stop(names->worker, STOP_SECONDS))
        free(names);
}
