/* attachment.h - what a process is told about its session, and what it has once it has attached. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ledger/ledger.h"
#include "wire/wire.h"

/* One attached ledger. Never changed and never freed once published, so that threads inside it need no lock: for each
 * daemon that a process outlives, it keeps a few pages. */
struct attachment {
    struct ledger_slot slot;
    uint64_t epoch; /* of the usage region, when the slot's policy was mapped */
    bool standalone;
    uint16_t version;                   /* of the wire: what the daemon answered in; 0 when standalone */
    uint64_t usage_device, usage_inode; /* which file the usage region is */
};

/* What the environment says. Read once, since the program may change it, and kept across fork. */
struct session_settings {
    char session_id[WIRE_SESSION_ID_BYTES]; /* empty: none */
    char token[WIRE_TOKEN_BYTES];
    char socket_path[108];
    char limit[4096];      /* of memory; empty: none */
    char compute[4096];    /* empty: no cap */
    bool shows_whole_nvml; /* only without a session: NVML shows the whole card */
    /* Of a process on its own: whether its memory can leave the card (standalone.c). */
    char oversubscribe[32];
    bool may_pass_card; /* with "managed": more memory than the card has */
};
