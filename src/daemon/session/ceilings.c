#include "daemon/session/ceilings.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "config/config.h"

/* --- Which user a ceiling is about ----------------------------------------------------------------- */

#define GROUPS_MAX 1024

/* A user account, as far as sections name it. */
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

/* The account of `uid`; the caller frees its groups. A user without an account is in no group. */
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
    if (config_is_everyone(ceiling))
        return strcmp(account->number, "0") != 0;
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

/* A section about one user goes before those of groups, and [user:*] behind all others. */
static unsigned strength(const struct config_ceiling *ceiling)
{
    return config_is_everyone(ceiling) ? 0 : ceiling->is_group ? 1 : 2;
}

/* Whether `ceiling`, which says `value` for a key, decides instead of `old`, which says `old_value`. `nothing` is the
 * value of a section that leaves the key out. */
static bool replaces(const struct config_ceiling *ceiling, uint64_t value, const struct config_ceiling *old,
                     uint64_t old_value, uint64_t nothing)
{
    if (value == nothing)
        return false;
    if (!old || strength(ceiling) != strength(old))
        return !old || strength(ceiling) > strength(old);
    return !ceiling->is_group || value < old_value;
}

/* How much the section lets a property be; UINT64_MAX: it says nothing. */
static uint64_t rank(const struct property *row, const struct config_ceiling *ceiling)
{
    return ceiling && property_is_given(&ceiling->properties, row->id)
               ? property_rank(row, &ceiling->properties)
               : UINT64_MAX;
}

/* Let the section decide, key by key, where it goes before those that were read earlier. */
static void decide(struct ceilings *ceilings, const struct config_ceiling *ceiling)
{
    const struct config_ceiling *old = ceilings->memory;
    if (replaces(ceiling, ceiling->memory_bytes, old, old ? old->memory_bytes : 0, UINT64_MAX))
        ceilings->memory = ceiling;
    old = ceilings->sessions;
    if (replaces(ceiling, ceiling->sessions, old, old ? old->sessions : 0, UINT32_MAX))
        ceilings->sessions = ceiling;
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++) {
        old = ceilings->of[row->id];
        if (replaces(ceiling, rank(row, ceiling), old, rank(row, old), UINT64_MAX))
            ceilings->of[row->id] = ceiling;
    }
}

void ceilings_find(const struct config *config, uid_t uid, struct ceilings *ceilings)
{
    *ceilings = (struct ceilings){.config = config};
    if (config->ceiling_count == 0)
        return;
    struct account account = find_account(config, uid);
    for (size_t i = 0; i < config->ceiling_count; i++)
        if (is_about(&config->ceilings[i], &account))
            decide(ceilings, &config->ceilings[i]);
    free(account.groups);
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
    if (others + asked <= ceiling->properties.compute.max)
        return 0;
    snprintf(
        what, sizeof(what),
        "up to %s of GPU %s's time beside the %.2f%% of your other sessions is more than the %s allowed; "
        "ask for less with --compute, or release a session; the ceiling is that of",
        units_format_share((struct share){asked, asked}, asked_text), gpu, (double)others / 100,
        units_format_share(ceiling->properties.compute, limit));
    return refuse(config, ceiling, error, what);
}

int ceilings_check(const struct ceilings *ceilings, const struct ceiling_use *others,
                   const struct ceiling_ask *ask, const struct ceiling_ask *old, struct error *error)
{
    const struct config *config = ceilings->config;
    char what[160];
    int result = 0;
    if (!old && ceilings->sessions && others->sessions >= ceilings->sessions->sessions) {
        snprintf(what, sizeof(what),
                 "another session beside your %u is more than the %u that you may have; release a session; "
                 "the ceiling is that of",
                 others->sessions, ceilings->sessions->sessions);
        return refuse(config, ceilings->sessions, error, what);
    }
    const struct config_ceiling *priority = ceilings->of[PROPERTY_PRIORITY],
                                *compute = ceilings->of[PROPERTY_COMPUTE];
    if (priority && ask->priority > priority->properties.priority &&
        (!old || ask->priority > old->priority)) {
        snprintf(what, sizeof(what),
                 "priority %s is above %s, the highest allowed; ask for that with --priority; the ceiling is "
                 "that of",
                 session_priority_name(ask->priority), session_priority_name(priority->properties.priority));
        return refuse(config, priority, error, what);
    }
    if (ceilings->memory && (!old || ask->memory_bytes > old->memory_bytes))
        result = check_memory(config, ceilings->memory, others->memory_bytes, ask->memory_bytes, error);
    for (unsigned i = 0; i < others->gpu_count && result == 0; i++)
        if (compute && ask->on_gpu[i] && (!old || ask->compute > old->compute))
            result = check_compute(config, compute, others->gpus[i].label, others->gpus[i].compute,
                                   ask->compute, error);
    return result;
}
