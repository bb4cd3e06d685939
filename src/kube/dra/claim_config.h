/* claim_config.h - reads what a claim and its DeviceClasses say about its session, beside what was counted for it. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "config/session_properties.h"

struct claim_config {
    struct session_properties properties; /* the share is always given */
    uint32_t counted_share;               /* what the scheduler counted */
    /* on each GPU, at least what the scheduler counted; 0: exactly that */
    uint64_t limit_bytes;
    uint64_t own_limit_bytes; /* the same, if it is more than the classes say; 0: it is not */
};

/* The classes' configurations come before the claim's own, which therefore wins. One whose memory is to stay on the
 * card takes back what earlier ones said about memory that can leave it. Each is about the requests that it names; all
 * requests of a claim must come to the same, as they become one session. */
int claim_config_read(struct claim_config *config, const json_t *allocation, struct error *error);

/* A limit above what the scheduler counted is only for memory that can leave the card, which then takes turns with
 * others'. `consumed_bytes` has what the scheduler counted, by the GPU's UUID. */
int claim_config_check_limit(const struct claim_config *config, const json_t *consumed_bytes,
                             struct error *error);
