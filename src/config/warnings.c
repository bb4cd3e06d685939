/* What a file says that is no mistake, and yet has no effect. */
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "config/config.h"

/* A number stands for itself: an account of that number may be made later. */
static bool is_known(const struct config_ceiling *ceiling)
{
    uint64_t number;
    if (units_parse_number(ceiling->name, UINT32_MAX - 1, &number, NULL) == 0)
        return true;
    return ceiling->is_group ? getgrnam(ceiling->name) != NULL
                             : config_is_everyone(ceiling) || getpwnam(ceiling->name) != NULL;
}

bool config_is_everyone(const struct config_ceiling *ceiling)
{
    return !ceiling->is_group && strcmp(ceiling->name, "*") == 0;
}

bool config_warning(const struct config *config, size_t ceiling, char text[static CONFIG_WARNING_TEXT])
{
    const struct config_ceiling *of = &config->ceilings[ceiling];
    const char *kind = of->is_group ? "group" : "user";
    if (is_known(of))
        return false;
    snprintf(text, CONFIG_WARNING_TEXT, "%s:%u: there is no %s '%s', so [%s:%s] has no effect", config->path,
             of->line, kind, of->name, kind, of->name);
    return true;
}
