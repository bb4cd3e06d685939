#include "base/engine.h"

#include <string.h>

static const char *const names[LEDGER_ENGINE_COUNT] = {
    [LEDGER_ENGINE_PLAIN] = "none",
    [LEDGER_ENGINE_SWAP] = "swap",
    [LEDGER_ENGINE_MANAGED] = "managed",
};

bool session_engine_parse(const char *text, enum ledger_engine *engine)
{
    for (unsigned i = 0; i < LEDGER_ENGINE_COUNT; i++)
        if (strcmp(text, names[i]) == 0) {
            *engine = i;
            return true;
        }
    return false;
}

const char *session_engine_name(enum ledger_engine engine)
{
    return names[engine];
}
