#include "daemon/users/lent_uids.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/loop/daemon.h"

#define LENT_FILE "/etc/subuid" /* subuid(5) */
#define LOOK_AGAIN_USEC UINT64_C(1000000)
#define RANGES_MAX 65536u

struct range {
    uid_t first, last;
    uid_t account; /* the first user ID of the user's first range */
    char user[LENT_UIDS_NAME];
};

struct lent_uids {
    struct range *ranges; /* in the order in which they were read: the first that has a user ID decides */
    size_t count;
    uid_t lowest;
    uint64_t looked_usec;
    struct timespec changed;
    off_t size;
    ino_t inode;
};

static bool is_known(const struct lent_uids *lent, const struct range *range)
{
    for (size_t i = 0; i < lent->count; i++)
        if (lent->ranges[i].first == range->first && lent->ranges[i].last == range->last &&
            strcmp(lent->ranges[i].user, range->user) == 0)
            return true;
    return false;
}

static void keep(struct lent_uids *lent, struct range range)
{
    if (lent->count >= RANGES_MAX || is_known(lent, &range))
        return;
    struct range *grown = reallocarray(lent->ranges, lent->count + 1, sizeof(*grown));
    if (!grown)
        return;
    lent->ranges = grown;
    range.account = range.first;
    for (size_t i = lent->count; i-- > 0;)
        if (strcmp(grown[i].user, range.user) == 0)
            range.account = grown[i].account;
    if (!lent->count || range.first < lent->lowest)
        lent->lowest = range.first;
    grown[lent->count++] = range;
}

/* A line is USER:FIRST:COUNT. Others are left out, as newuidmap(1) leaves them out. */
static void read_line(struct lent_uids *lent, const char *line)
{
    struct range range;
    uint64_t first, count;
    _Static_assert(LENT_UIDS_NAME == 64, "the width in the format");
    if (sscanf(line, "%63[^:\n]:%" SCNu64 ":%" SCNu64, range.user, &first, &count) != 3 || !first || !count ||
        first >= UINT32_MAX || count > UINT32_MAX - first)
        return;
    range.first = (uid_t)first;
    range.last = (uid_t)(first + count - 1);
    keep(lent, range);
}

static void read_file(struct lent_uids *lent, const char *path)
{
    char line[256];
    struct stat status;
    if (stat(path, &status) < 0 || !S_ISREG(status.st_mode) ||
        (status.st_ino == lent->inode && status.st_size == lent->size &&
         status.st_mtim.tv_sec == lent->changed.tv_sec && status.st_mtim.tv_nsec == lent->changed.tv_nsec))
        return;
    cleanup_file FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (fgets(line, sizeof(line), file))
        read_line(lent, line);
    lent->inode = status.st_ino;
    lent->size = status.st_size;
    lent->changed = status.st_mtim;
}

static struct lent_uids *lent_of(struct daemon *daemon)
{
    if (!daemon->lent_uids)
        daemon->lent_uids = calloc(1, sizeof(*daemon->lent_uids));
    return daemon->lent_uids;
}

void lent_uids_read(struct daemon *daemon, const char *path)
{
    struct lent_uids *lent = lent_of(daemon);
    if (!lent)
        return;
    read_file(lent, path);
    lent->looked_usec = daemon_now_usec();
}

static const struct range *find(struct daemon *daemon, uid_t uid)
{
    struct lent_uids *lent = lent_of(daemon);
    if (!lent || uid == 0 || uid == geteuid())
        return NULL;
    if (!lent->looked_usec || daemon_now_usec() - lent->looked_usec > LOOK_AGAIN_USEC)
        lent_uids_read(daemon, LENT_FILE);
    for (size_t i = 0; uid >= lent->lowest && i < lent->count; i++)
        if (uid >= lent->ranges[i].first && uid <= lent->ranges[i].last)
            return &lent->ranges[i];
    return NULL;
}

uid_t lent_uids_account(struct daemon *daemon, uid_t uid)
{
    const struct range *range = find(daemon, uid);
    return range ? range->account : uid;
}

bool lent_uids_find(struct daemon *daemon, uid_t uid, char user[static LENT_UIDS_NAME])
{
    const struct range *range = find(daemon, uid);
    if (range)
        memcpy(user, range->user, LENT_UIDS_NAME);
    return range;
}

void lent_uids_free(struct daemon *daemon)
{
    if (daemon->lent_uids)
        free(daemon->lent_uids->ranges);
    free(daemon->lent_uids);
    daemon->lent_uids = NULL;
}
