#include "intercept/session/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger.h"

/* The value of NAME, or with `index` >= 0 of NAME_INDEX; NULL where it is not set to anything. */
static const char *value_of(const char *name, int index)
{
    char full[64];
    if (index >= 0)
        snprintf(full, sizeof(full), "%s_%d", name, index);
    const char *value = secure_getenv(index >= 0 ? full : name);
    return value && *value ? value : NULL;
}

/* Whether HAMi takes `value` for no limit: nothing, in any unit ("0", "0m"). */
static bool is_nothing(const char *value)
{
    size_t zeros = strspn(value, "0.");
    return *value == '0' && !(value[zeros] >= '0' && value[zeros] <= '9');
}

/* Add one row. False when there is no room for it, or `value` has characters that no limit has. */
static bool add_row(char *text, size_t bytes, const char *key, const char *value, const char *no_limit)
{
    size_t used = strlen(text);
    if (value[strspn(value, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.%")])
        return false;
    int length = snprintf(text + used, bytes - used, "%s\"%s\": \"%s\"", used ? ", " : "{", key,
                          is_nothing(value) ? no_limit : value);
    return length > 0 && (size_t)length < bytes - used - 1;
}

bool foreign_hami_limits(const char *name, const char *no_limit, char *text, size_t bytes)
{
    const char *every = value_of(name, -1);
    char key[16];
    text[0] = '\0';
    for (int i = 0; i < (int)LEDGER_GPUS; i++) {
        const char *value = value_of(name, i);
        snprintf(key, sizeof(key), "%d", i);
        if (value && !add_row(text, bytes, key, value, no_limit))
            return false;
    }
    if (!every && !*text)
        return true;
    if (!add_row(text, bytes, "*", every ? every : no_limit, no_limit))
        return false;
    strcat(text, "}"); /* add_row() leaves room */
    return true;
}

static bool is(const char *name, const char *value)
{
    const char *text = secure_getenv(name);
    return text && strcmp(text, value) == 0;
}

const char *foreign_unread_limit(void)
{
    static const char *const names[] = {"GPU_MEMORY_LIMIT", "TF_GPU_MEMORY_LIMIT", "TF_CUDA_MEMORY_LIMIT"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (value_of(names[i], -1))
            return names[i];
    return NULL;
}

bool foreign_limits_are_off(void)
{
    return is("DISABLE_GPU_LIMITER", "true") || is("ENABLE_CUDA_HOOKS", "false");
}

bool foreign_nvml_is_off(void)
{
    return is("ENABLE_NVML_HOOKS", "false");
}

bool foreign_says_single_oversubscription(void)
{
    const char *text = secure_getenv("NVSHARE_ENABLE_SINGLE_OVERSUB");
    return text && *text && strcmp(text, "0") != 0;
}
