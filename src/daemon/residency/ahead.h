/* ahead.h - how much host memory sessions get before their memory has to leave the card, and who gives host memory back
 * when it is needed elsewhere. Pure: knows no session, no clock and no socket.
 *
 * ahead     made before it is needed, so that the first move finds it there and page-locked
 * holder    a process that has host memory */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ahead_process {
    uint64_t movable_bytes; /* memory that can leave, on the card and away */
    uint64_t given_bytes;   /* host memory that it has */
    uint64_t steady_usec;   /* for how long that memory has not grown */
    bool
        may_have_to_leave; /* its session leaves when idle, or the sessions on its GPU may need more than that has */
};

struct ahead_host {
    bool is_allowed;      /* by the settings */
    uint64_t bound_bytes; /* the most that all sessions may have, */
    uint64_t given_bytes; /* and what they have */
    uint64_t chunk_bytes; /* it is made in chunks of this size */
};

/* Whether the process should get one more chunk now. Half of all host memory that sessions may have is left for needs: what
 * is made ahead would otherwise be taken back at once. */
bool ahead_is_due(const struct ahead_process *process, const struct ahead_host *host);

struct ahead_holder {
    uint64_t given_bytes; /* host memory that it has, */
    uint64_t away_bytes;  /* and what of it holds memory that is away */
    bool may_have_to_leave;
    uint64_t keep_bytes; /* the answer: how much it keeps */
};

/* Have holders give back `needed_bytes` together; returns how much they will, at most. Those that hardly have to leave
 * come first, then those that have most. */
uint64_t ahead_take_back(struct ahead_holder *holders, unsigned count, uint64_t needed_bytes);
