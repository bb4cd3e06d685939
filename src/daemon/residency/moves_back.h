/* moves_back.h - which sessions may need their host memory, and which can give some back; for moves_ahead.c and moves_back.c. */
#pragma once

#include "daemon/residency/moves_state.h"
#include "daemon/residency/residency.h"

/* For each GPU, whether the sessions there may need more memory together than it has. */
struct moves_crowds {
    bool is_crowded[RESIDENCY_GPUS];
};

struct moves_crowds moves_find_crowds(const struct daemon *daemon);

bool moves_may_have_to_leave(const struct session *session, const struct moves_crowds *crowds);
bool moves_is_on_card(const struct session *session);

/* Tell sessions to give `bytes` of host memory back, of `owner` (NULL: of everybody), but for `except` (may be NULL). Returns how
 * much comes. */
uint64_t moves_take_back_from(const struct daemon *daemon, const struct session *except, const uid_t *owner,
                              uint64_t bytes);
