/* engine.h - how the device memory of a session's processes is backed. */
#pragma once

#include <stdbool.h>

/* Numbers are the ledger's and the state file's. */
enum ledger_engine {
    LEDGER_ENGINE_PLAIN = 0,   /* by the driver; what daemons say that know no other */
    LEDGER_ENGINE_SWAP = 1,    /* by extents that can leave the card */
    LEDGER_ENGINE_MANAGED = 2, /* by managed memory, which the driver pages */
    LEDGER_ENGINE_COUNT,
};

/* "none", "swap", "managed"; false when `text` is none of them. */
bool session_engine_parse(const char *text, enum ledger_engine *engine);
const char *session_engine_name(enum ledger_engine engine);
