#include "daemon/loop/descriptor_bounds.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/loop/daemon.h"

#define PARTS 4

struct tenant {
    struct tenant *next;
    uid_t uid;
    unsigned count[TENANT_USES];
};

static const struct {
    unsigned descriptors;
    unsigned max, all_max; /* UINT_MAX: only the descriptors count */
    const char *what;
} uses[TENANT_USES] = {
    [TENANT_REQUEST] = {1, TENANT_CONNECTIONS_MAX, TENANT_ALL_CONNECTIONS_MAX, "connections to control.sock"},
    [TENANT_SILENT] = {1, TENANT_CONNECTIONS_MAX, TENANT_ALL_CONNECTIONS_MAX,
                       "connections to attach.sock that say nothing"},
    [TENANT_PROCESS] = {3, UINT_MAX, UINT_MAX, NULL}, /* its pidfd, its connection and its agent's */
    [TENANT_LEDGER] = {2, UINT_MAX, UINT_MAX, NULL},  /* policy and usage */
    [TENANT_RUNNER] = {1, UINT_MAX, UINT_MAX, NULL},
};

static unsigned descriptors_of(const struct tenant *tenant)
{
    unsigned sum = 0;
    for (unsigned use = 0; use < TENANT_USES; use++)
        sum += tenant->count[use] * uses[use].descriptors;
    return sum;
}

static struct tenant *find(const struct daemon *daemon, uid_t uid)
{
    struct tenant *tenant = daemon->tenants;
    while (tenant && tenant->uid != uid)
        tenant = tenant->next;
    return tenant;
}

int tenant_check(const struct daemon *daemon, uid_t uid, enum tenant_use use, struct error *error)
{
    const struct tenant *tenant = find(daemon, uid);
    unsigned count = tenant ? tenant->count[use] : 0, held = tenant ? descriptors_of(tenant) : 0, all = 0;
    if (count >= uses[use].max)
        return error_set(error, EBUSY, "ERR_TOO_MANY", "uid %u has %u %s already; expected fewer; close some",
                         (unsigned)uid, count, uses[use].what);
    if (uid == 0 || uid == geteuid())
        return 0;
    for (const struct tenant *at = daemon->tenants; at; at = at->next)
        all += at->count[use];
    if (all >= uses[use].all_max)
        return error_set(error, EBUSY, "ERR_TOO_MANY", "there are %u %s already; try again later", all,
                         uses[use].what);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || held + uses[use].descriptors <= limit.rlim_cur / PARTS)
        return 0;
    return error_set(error, EBUSY, "ERR_TOO_MANY",
                     "the sessions, processes and connections of uid %u take %u of the %llu descriptors that "
                     "gpusliced may open; expected a quarter at most; end some",
                     (unsigned)uid, held, (unsigned long long)limit.rlim_cur);
}

/* Without memory for it, a tenant is not counted. */
void tenant_add(struct daemon *daemon, uid_t uid, enum tenant_use use)
{
    struct tenant *tenant = find(daemon, uid);
    if (!tenant && (tenant = calloc(1, sizeof(*tenant)))) {
        tenant->uid = uid;
        tenant->next = daemon->tenants;
        daemon->tenants = tenant;
    }
    if (tenant)
        tenant->count[use]++;
}

void tenant_remove(struct daemon *daemon, uid_t uid, enum tenant_use use)
{
    struct tenant **at = &daemon->tenants;
    while (*at && (*at)->uid != uid)
        at = &(*at)->next;
    struct tenant *tenant = *at;
    if (!tenant || !tenant->count[use])
        return;
    tenant->count[use]--;
    if (descriptors_of(tenant))
        return;
    *at = tenant->next;
    free(tenant);
}
