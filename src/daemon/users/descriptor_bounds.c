#include "daemon/users/descriptor_bounds.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/loop/daemon.h"
#include "daemon/users/lent_uids.h"

#define PARTS 4

struct user {
    LIST_ENTRY(user) next;
    uid_t uid;
    unsigned count[USER_USES];
};

static const struct {
    unsigned descriptors;
    unsigned max, all_max; /* UINT_MAX: only descriptors are bounded */
    const char *what, *advice;
} uses[USER_USES] = {
    [USER_REQUEST] = {1, USER_CONNECTIONS_MAX, USER_ALL_CONNECTIONS_MAX, "connections to control.sock",
                      "close some"},
    [USER_SILENT] = {1, USER_CONNECTIONS_MAX, USER_ALL_CONNECTIONS_MAX,
                     "connections to attach.sock that say nothing", "close some"},
    [USER_PROCESS] = {3, UINT_MAX, UINT_MAX, NULL, NULL}, /* its pidfd, its connection and its agent's */
    [USER_LEDGER] = {2, UINT_MAX, UINT_MAX, NULL, NULL},  /* policy and usage */
    [USER_RUNNER] = {1, UINT_MAX, UINT_MAX, NULL, NULL},
    [USER_OWN_SOCKET] = {1, UINT_MAX, UINT_MAX, NULL, NULL},
    [USER_QUEUED] = {1, USER_QUEUED_MAX, UINT_MAX, "sessions that wait in the queue", "release some"},
    [USER_CHUNK] = {1, UINT_MAX, UINT_MAX, NULL, NULL},
};

static unsigned descriptors_of(const struct user *user)
{
    unsigned sum = 0;
    for (unsigned use = 0; use < USER_USES; use++)
        sum += user->count[use] * uses[use].descriptors;
    return sum;
}

static struct user *find_record(const struct daemon *daemon, uid_t uid)
{
    struct user *user;
    LIST_FOREACH (user, &daemon->users, next) {
        if (user->uid == uid)
            return user;
    }
    return NULL;
}

/* The record for `uid`, or for all user IDs that were lent together with it. What was counted before it was lent is
 * counted to its end where it was. */
static struct user *find(struct daemon *daemon, uid_t uid)
{
    struct user *own = find_record(daemon, uid);
    return own ? own : find_record(daemon, lent_uids_account(daemon, uid));
}

int user_check(struct daemon *daemon, uid_t uid, enum user_holding use, struct error *error)
{
    const struct user *user = find(daemon, uid);
    unsigned count = user ? user->count[use] : 0, held = user ? descriptors_of(user) : 0, all = 0;
    if (count >= uses[use].max)
        return error_set(error, EBUSY, "ERR_TOO_MANY", "uid %u has %u %s already; expected fewer; %s",
                         (unsigned)uid, count, uses[use].what, uses[use].advice);
    if (uid == 0 || uid == geteuid())
        return 0;
    const struct user *at;
    LIST_FOREACH (at, &daemon->users, next)
        all += at->count[use];
    if (all >= uses[use].all_max)
        return error_set(error, EBUSY, "ERR_TOO_MANY", "there are %u %s already; try again later", all,
                         uses[use].what);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || held + uses[use].descriptors <= limit.rlim_cur / PARTS)
        return 0;
    return error_set(error, EBUSY, "ERR_TOO_MANY",
                     "the sessions, processes and connections of uid %u take %u of the %llu descriptors that "
                     "gpusliced may open; expected at most a quarter; end some",
                     (unsigned)uid, held, (unsigned long long)limit.rlim_cur);
}

uid_t user_with_most(struct daemon *daemon, uid_t uid, enum user_holding use)
{
    const struct user *most = find(daemon, uid), *at;
    LIST_FOREACH (at, &daemon->users, next) {
        if (at->uid != 0 && at->uid != geteuid() && at->count[use] > (most ? most->count[use] : 0))
            most = at;
    }
    return most ? most->uid : lent_uids_account(daemon, uid);
}

bool user_is_counted_as(struct daemon *daemon, uid_t uid, uid_t counted)
{
    const struct user *user = find(daemon, uid);
    return user && user->uid == counted;
}

/* A user is not counted when there is no memory for its record. */
void user_add(struct daemon *daemon, uid_t uid, enum user_holding use)
{
    struct user *user = find(daemon, uid);
    if (!user && (user = calloc(1, sizeof(*user)))) {
        user->uid = lent_uids_account(daemon, uid);
        LIST_INSERT_HEAD(&daemon->users, user, next);
    }
    if (user)
        user->count[use]++;
}

void user_remove(struct daemon *daemon, uid_t uid, enum user_holding use)
{
    struct user *user = find(daemon, uid);
    if (!user || !user->count[use])
        return;
    user->count[use]--;
    if (descriptors_of(user))
        return;
    LIST_REMOVE(user, next);
    free(user);
}
