#include "daemon/session/ceilings.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/session.h"

/* --- Whom a ceiling is about ------------------------------------------------------------------------- */

#define GROUPS_MAX 1024

/* An account, as far as sections name it. */
struct account {
    char number[16], name[CONFIG_NAME_BYTES];
    gid_t *groups;
    int group_count;
};

static bool has_group_ceilings(const struct config *config)
{
    for (size_t i = 0; i < config->ceiling_count; i++)
        if (config->ceilings[i].is_group)
            return true;
    return false;
}

/* The account of `uid`; its groups are the caller's to free. Who has no account is in no group. */
static struct account find_account(const struct config *config, uid_t uid)
{
    struct account account = {.group_count = 0};
    const struct passwd *user = getpwuid(uid);
    snprintf(account.number, sizeof(account.number), "%u", (unsigned)uid);
    if (!user)
        return account;
    snprintf(account.name, sizeof(account.name), "%s", user->pw_name);
    if (!has_group_ceilings(config) || !(account.groups = calloc(GROUPS_MAX, sizeof(gid_t))))
        return account;
    account.group_count = GROUPS_MAX;
    if (getgrouplist(user->pw_name, user->pw_gid, account.groups, &account.group_count) < 0)
        account.group_count = GROUPS_MAX;
    return account;
}

static bool is_about(const struct config_ceiling *ceiling, const struct account *account)
{
    if (!ceiling->is_group)
        return strcmp(ceiling->name, account->name) == 0 || strcmp(ceiling->name, account->number) == 0;
    const struct group *group = getgrnam(ceiling->name);
    uint64_t number;
    if (!group && units_parse_number(ceiling->name, UINT32_MAX - 1, &number, NULL) < 0)
        return false;
    gid_t gid = group ? group->gr_gid : (gid_t)number;
    for (int i = 0; i < account->group_count; i++)
        if (account->groups[i] == gid)
            return true;
    return false;
}

/* The section that decides each key for one user; NULL where none says anything. */
struct decided {
    const struct config_ceiling *memory, *compute, *sessions, *priority;
};

/* Whether `ceiling` is to take the place of `old`, which says `old_value` of a key of which it says `value`.
 */
static bool replaces(const struct config_ceiling *ceiling, uint64_t value, const struct config_ceiling *old,
                     uint64_t old_value, uint64_t nothing)
{
    if (value == nothing)
        return false;
    if (!old || !ceiling->is_group)
        return true;
    return old->is_group && value < old_value;
}

#define DECIDE(decided, key, field, ceiling, nothing)                                                        \
    do {                                                                                                     \
        if (replaces(ceiling, (ceiling)->field, (decided)->key, (decided)->key ? (decided)->key->field : 0,  \
                     nothing))                                                                               \
            (decided)->key = (ceiling);                                                                      \
    } while (0)

static struct decided decide(const struct config *config, uid_t uid)
{
    struct decided decided = {NULL};
    if (config->ceiling_count == 0)
        return decided;
    struct account account = find_account(config, uid);
    for (size_t i = 0; i < config->ceiling_count; i++) {
        const struct config_ceiling *ceiling = &config->ceilings[i];
        if (!is_about(ceiling, &account))
            continue;
        DECIDE(&decided, memory, memory_bytes, ceiling, UINT64_MAX);
        DECIDE(&decided, compute, compute, ceiling, UINT32_MAX);
        DECIDE(&decided, sessions, sessions, ceiling, UINT32_MAX);
        DECIDE(&decided, priority, priority, ceiling, PRIORITY_COUNT);
    }
    free(account.groups);
    return decided;
}

/* --- Defaults -------------------------------------------------------------------------------------- */

/* Where the ceiling on memory is less than a card that `request` may come to stand on: the limit that each of
 * its GPUs then has. Else 0, for all that the card has. */
static uint64_t memory_under(const struct daemon *daemon, const struct session_request *request,
                             uint64_t ceiling_bytes)
{
    uint64_t each = ceiling_bytes / (request->limit_count ? request->limit_count : 1);
    for (unsigned i = 0; i < request->limit_count; i++)
        if (each < daemon->gpus[request->limits[i].gpu].total_bytes)
            return each;
    for (unsigned i = 0; i < daemon->gpu_count && request->limit_count == 0; i++)
        if (each < daemon->gpus[i].total_bytes)
            return each;
    return 0;
}

static uint64_t default_memory(const struct daemon *daemon, const struct session_request *request,
                               const struct config_ceiling *ceiling)
{
    uint64_t bytes = daemon->config.defaults.memory_bytes;
    uint64_t most = ceiling ? memory_under(daemon, request, ceiling->memory_bytes) : 0;
    return most && (!bytes || most < bytes) ? most : bytes;
}

static struct share default_compute(const struct daemon *daemon, const struct config_ceiling *ceiling)
{
    struct share share = daemon->config.defaults.compute;
    if (ceiling && ceiling->compute > 0 && ceiling->compute < share.max)
        share.max = ceiling->compute;
    if (share.min > share.max)
        share.min = share.max;
    return share;
}

void ceilings_apply_defaults(const struct daemon *daemon, struct session_request *request)
{
    struct decided decided =
        request->is_declared ? (struct decided){NULL} : decide(&daemon->config, request->owner);
    uint64_t bytes = default_memory(daemon, request, decided.memory);
    if (!request->has_bytes && bytes) {
        request->has_bytes = true;
        request->bytes = bytes;
    }
    if (!request->has_compute) {
        request->has_compute = true;
        request->compute = default_compute(daemon, decided.compute);
    }
    if (!request->has_priority) {
        enum session_priority priority = daemon->config.defaults.priority;
        bool is_bounded = decided.priority && decided.priority->priority < priority;
        request->has_priority = true;
        request->priority = is_bounded ? decided.priority->priority : priority;
    }
}

/* --- What the user has ------------------------------------------------------------------------------- */

struct ceiling_ask ceiling_ask_of(const struct session *session)
{
    struct ceiling_ask ask = {.compute = session->compute.max, .priority = session->priority};
    if (session->state == SESSION_QUEUED) {
        ask.memory_bytes = session->queued_bytes;
        for (unsigned i = 0; i < session->daemon->gpu_count; i++)
            ask.on_gpu[i] = true;
        return ask;
    }
    for (unsigned i = 0; i < session->gpu_count; i++) {
        if (__builtin_add_overflow(ask.memory_bytes, session->gpus[i].limit_bytes, &ask.memory_bytes))
            ask.memory_bytes = UINT64_MAX;
        if (session->gpus[i].gpu >= 0)
            ask.on_gpu[session->gpus[i].gpu] = true;
    }
    return ask;
}

/* Sums over the owner's sessions but `self`. */
struct sums {
    uint64_t memory_bytes;
    uint64_t compute[LEDGER_GPUS];
    unsigned sessions;
};

static struct sums sum_others(const struct session *self)
{
    struct sums sums = {0};
    for (const struct session *at = self->daemon->sessions; at; at = at->next) {
        if (at == self || at->owner != self->owner)
            continue;
        struct ceiling_ask ask = ceiling_ask_of(at);
        sums.sessions++;
        if (__builtin_add_overflow(sums.memory_bytes, ask.memory_bytes, &sums.memory_bytes))
            sums.memory_bytes = UINT64_MAX;
        for (unsigned i = 0; i < LEDGER_GPUS; i++)
            sums.compute[i] += ask.on_gpu[i] ? ask.compute : 0;
    }
    return sums;
}

/* --- Checking -------------------------------------------------------------------------------------- */

static int refuse(const struct config *config, const struct config_ceiling *ceiling, struct error *error,
                  const char *what)
{
    return error_set(error, EACCES, "ERR_CEILING", "%s [%s:%s] (%s:%u)", what,
                     ceiling->is_group ? "group" : "user", ceiling->name, config->path, ceiling->line);
}

static int check_memory(const struct config *config, const struct config_ceiling *ceiling, uint64_t others,
                        uint64_t asked, struct error *error)
{
    char asked_text[UNITS_BYTES_TEXT], others_text[UNITS_BYTES_TEXT], limit[UNITS_BYTES_TEXT], what[256];
    if (asked <= ceiling->memory_bytes && others <= ceiling->memory_bytes - asked)
        return 0;
    snprintf(what, sizeof(what),
             "%s (%" PRIu64 " bytes) of GPU memory beside the %s of your other sessions is more than the %s "
             "allowed; ask for less with --memory, or release a session; the ceiling is that of",
             units_format_bytes(asked, asked_text), asked, units_format_bytes(others, others_text),
             units_format_bytes(ceiling->memory_bytes, limit));
    return refuse(config, ceiling, error, what);
}

static int check_compute(const struct config *config, const struct config_ceiling *ceiling, const char *gpu,
                         uint64_t others, uint32_t asked, struct error *error)
{
    char asked_text[UNITS_SHARE_TEXT], limit[UNITS_SHARE_TEXT], what[256];
    if (others + asked <= ceiling->compute)
        return 0;
    snprintf(
        what, sizeof(what),
        "up to %s of GPU %s's time beside the %.2f%% of your other sessions is more than the %s allowed; "
        "ask for less with --compute, or release a session; the ceiling is that of",
        units_format_share((struct share){asked, asked}, asked_text), gpu, (double)others / 100,
        units_format_share((struct share){ceiling->compute, ceiling->compute}, limit));
    return refuse(config, ceiling, error, what);
}

int ceilings_check(const struct session *session, const struct ceiling_ask *ask,
                   const struct ceiling_ask *old, struct error *error)
{
    const struct daemon *daemon = session->daemon;
    const struct config *config = &daemon->config;
    struct decided decided = decide(config, session->owner);
    struct sums others = sum_others(session);
    char what[160];
    int result = 0;
    if (!old && decided.sessions && others.sessions >= decided.sessions->sessions) {
        snprintf(what, sizeof(what),
                 "one more beside your %u is more than the %u sessions allowed; release one; the ceiling is "
                 "that of",
                 others.sessions, decided.sessions->sessions);
        return refuse(config, decided.sessions, error, what);
    }
    if (decided.priority && ask->priority > decided.priority->priority &&
        (!old || ask->priority > old->priority)) {
        snprintf(what, sizeof(what),
                 "priority %s is above %s, the highest allowed; ask for that with --priority; the ceiling is "
                 "that of",
                 session_priority_name(ask->priority), session_priority_name(decided.priority->priority));
        return refuse(config, decided.priority, error, what);
    }
    if (decided.memory && (!old || ask->memory_bytes > old->memory_bytes))
        result = check_memory(config, decided.memory, others.memory_bytes, ask->memory_bytes, error);
    for (unsigned i = 0; i < daemon->gpu_count && result == 0; i++)
        if (decided.compute && ask->on_gpu[i] && (!old || ask->compute > old->compute))
            result = check_compute(config, decided.compute, daemon->gpus[i].label, others.compute[i],
                                   ask->compute, error);
    return result;
}
