#include "base/engine.h"

#include "base/names.h"

const char *const session_engine_words[LEDGER_ENGINE_COUNT + 1] = {
    [LEDGER_ENGINE_PLAIN] = "none",
    [LEDGER_ENGINE_SWAP] = "swap",
    [LEDGER_ENGINE_MANAGED] = "managed",
};

bool session_engine_parse(const char *text, enum ledger_engine *engine)
{
    int at = names_find(session_engine_words, LEDGER_ENGINE_COUNT, text);
    if (at >= 0)
        *engine = (enum ledger_engine)at;
    return at >= 0;
}

const char *session_engine_name(enum ledger_engine engine)
{
    return session_engine_words[engine];
}
