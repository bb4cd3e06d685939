#include "daemon/session/accounts.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/worker.h"

#define KEPT_NS UINT64_C(60000000000) /* after that it is looked up again */
#define PLACES 256u
#define GROUPS_MAX 1024
#define ENTRY_BYTES (1u << 20) /* what the database says of one user, or of one group with its members */
#define STOP_SECONDS 1

/* A place in the table; a user whose number has the same remainder takes it over. */
struct known {
    uid_t uid;
    bool is_asked;
    uint64_t until_ns;
    struct account *account; /* NULL: not known yet */
};

struct waiter {
    LIST_ENTRY(waiter) next;
    uid_t uid;
    account_done done;
    void *argument;
};

struct accounts {
    struct worker *worker;
    struct known known[PLACES];
    LIST_HEAD(, waiter) waiters;
};

struct look_up {
    struct worker_job job;
    struct accounts *accounts;
    uid_t uid;
    struct account *account; /* NULL: there was no memory for it */
};

/* --- In the helper thread -------------------------------------------------------------------------- */

static void find_groups(const struct passwd *user, gid_t *gids, int *count)
{
    *count = GROUPS_MAX;
    if (getgrouplist(user->pw_name, user->pw_gid, gids, count) < 0)
        *count = GROUPS_MAX;
}

static void find_group_name(gid_t gid, char *text, char name[static ACCOUNT_NAME_BYTES])
{
    struct group entry, *found = NULL;
    if (getgrgid_r(gid, &entry, text, ENTRY_BYTES, &found) == 0 && found)
        snprintf(name, ACCOUNT_NAME_BYTES, "%s", found->gr_name);
}

static struct account *find_account(uid_t uid)
{
    cleanup_free char *text = malloc(ENTRY_BYTES);
    cleanup_free gid_t *gids = calloc(GROUPS_MAX, sizeof(*gids));
    struct passwd entry, *user = NULL;
    int count = 0;
    if (!text || !gids)
        return NULL;
    if (getpwuid_r(uid, &entry, text, ENTRY_BYTES, &user) == 0 && user)
        find_groups(user, gids, &count);
    struct account *account = calloc(1, sizeof(*account) + (size_t)count * sizeof(account->groups[0]));
    if (!account || !user)
        return account;
    snprintf(account->name, sizeof(account->name), "%s", user->pw_name);
    account->group_count = (unsigned)count;
    for (unsigned i = 0; i < account->group_count; i++) {
        account->groups[i].gid = gids[i];
        find_group_name(gids[i], text, account->groups[i].name);
    }
    return account;
}

static void run_look_ups(struct worker_job *first, void *context)
{
    for (; first; first = first->next) {
        struct look_up *look_up = (struct look_up *)first;
        look_up->account = find_account(look_up->uid);
    }
}

/* --- In the loop ----------------------------------------------------------------------------------- */

static void keep(struct accounts *accounts, uid_t uid, struct account *account)
{
    struct known *known = &accounts->known[uid % PLACES];
    free(known->account);
    *known =
        (struct known){.uid = uid, .until_ns = account ? monotonic_ns() + KEPT_NS : 0, .account = account};
}

static void tell(struct waiter *waiter, const struct error *error)
{
    LIST_REMOVE(waiter, next);
    waiter->done(waiter->argument, error);
    free(waiter);
}

static void on_found(struct worker_job *job)
{
    struct look_up *look_up = (struct look_up *)job;
    struct accounts *accounts = look_up->accounts;
    struct error error;
    error_set_errno(&error, ENOMEM, "cannot look up user %u", (unsigned)look_up->uid);
    keep(accounts, look_up->uid, look_up->account);
    for (struct waiter *at = LIST_FIRST(&accounts->waiters), *next; at; at = next) {
        next = LIST_NEXT(at, next);
        if (at->uid == look_up->uid)
            tell(at, look_up->account ? NULL : &error);
    }
    free(look_up);
}

static void ask(struct accounts *accounts, struct known *known)
{
    struct look_up *look_up = calloc(1, sizeof(*look_up));
    if (!look_up)
        return;
    *look_up = (struct look_up){.job.done = on_found, .accounts = accounts, .uid = known->uid};
    known->is_asked = true;
    worker_submit(accounts->worker, &look_up->job);
}

const struct account *account_of(const struct daemon *daemon, uid_t uid)
{
    struct accounts *accounts = daemon->accounts;
    if (!accounts)
        return NULL;
    struct known *known = &accounts->known[uid % PLACES];
    if (known->uid != uid) {
        free(known->account);
        *known = (struct known){.uid = uid};
    }
    if (known->until_ns <= monotonic_ns() && !known->is_asked)
        ask(accounts, known);
    return known->account;
}

void account_await(const struct daemon *daemon, uid_t uid, account_done done, void *argument)
{
    struct waiter *waiter = daemon->accounts ? calloc(1, sizeof(*waiter)) : NULL;
    struct error error;
    if (!waiter) {
        error_set_errno(&error, ENOMEM, "cannot look up user %u", (unsigned)uid);
        done(argument, &error);
        return;
    }
    *waiter = (struct waiter){.uid = uid, .done = done, .argument = argument};
    LIST_INSERT_HEAD(&daemon->accounts->waiters, waiter, next);
}

const char *account_name(const struct daemon *daemon, uid_t uid)
{
    static char number[16];
    const struct account *account = account_of(daemon, uid);
    snprintf(number, sizeof(number), "%u", (unsigned)uid);
    return account && account->name[0] ? account->name : number;
}

/* --- Start and end --------------------------------------------------------------------------------- */

int accounts_start(struct daemon *daemon, struct error *error)
{
    struct accounts *accounts = calloc(1, sizeof(*accounts));
    if (!accounts)
        return error_set_errno(error, ENOMEM, "cannot look up users");
    LIST_INIT(&accounts->waiters);
    int result = worker_start(&accounts->worker, daemon->loop, "gpusliced-names", run_look_ups, NULL, error);
    if (result < 0) {
        free(accounts);
        return result;
    }
    keep(accounts, geteuid(), find_account(geteuid()));
    daemon->accounts = accounts;
    return 0;
}

void accounts_stop(struct daemon *daemon)
{
    struct accounts *accounts = daemon->accounts;
    struct error error;
    if (!accounts)
        return;
    daemon->accounts = NULL;
    error_set(&error, ESHUTDOWN, "ERR_INTERNAL", "the daemon ends; ask the next one again");
    while (!LIST_EMPTY(&accounts->waiters))
        tell(LIST_FIRST(&accounts->waiters), &error);
    if (!worker_stop(accounts->worker, STOP_SECONDS))
        return;
    for (unsigned i = 0; i < PLACES; i++)
        free(accounts->known[i].account);
    free(accounts);
}
