/* rules.h - the scheduler's rules, by name (rules.def). All hold, but in the library that scripts/ablate tries: there each
 * can be switched off, to see which promise breaks without it. */
#pragma once

#include <stdbool.h>

#ifdef GPUSLICE_ABLATE
enum rule {
#define RULE(name, text) RULE_##name,
#include "daemon/schedule/rules.def"
#undef RULE
    RULES,
};
extern bool rules_off[RULES];
#define is_on(name) (!rules_off[RULE_##name])
#else
#define is_on(name) true
#endif
