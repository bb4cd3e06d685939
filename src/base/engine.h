/* engine.h - how the device memory of a session's processes is backed. */
#pragma once

#include <stdbool.h>

/* The ledger and the state file store these numbers. */
enum ledger_engine {
    LEDGER_ENGINE_PLAIN = 0,   /* the driver's own; also the answer of daemons that know no other engine */
    LEDGER_ENGINE_SWAP = 1,    /* extents that can leave the card */
    LEDGER_ENGINE_MANAGED = 2, /* managed memory, which the driver pages */
    LEDGER_ENGINE_COUNT,
};

/* By value; ends with NULL. */
extern const char *const session_engine_words[LEDGER_ENGINE_COUNT + 1];

/* "none", "swap", "managed"; false when `text` is none of them. */
bool session_engine_parse(const char *text, enum ledger_engine *engine);
const char *session_engine_name(enum ledger_engine engine);
