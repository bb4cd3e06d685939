#include "daemon/residency/ahead.h"

#include <stddef.h>

/* A program that allocates goes on doing so: what it has now says little. */
#define STEADY_USEC UINT64_C(2000000)
#define BOUND_PART 2 /* of all host memory that sessions may have */

bool ahead_is_due(const struct ahead_process *process, const struct ahead_host *host)
{
    return host->is_allowed && process->may_have_to_leave && process->steady_usec >= STEADY_USEC &&
           process->movable_bytes > process->given_bytes &&
           host->given_bytes + host->chunk_bytes <= host->bound_bytes / BOUND_PART;
}

static uint64_t unused_bytes(const struct ahead_holder *holder)
{
    return holder->keep_bytes > holder->away_bytes ? holder->keep_bytes - holder->away_bytes : 0;
}

static bool is_before(const struct ahead_holder *one, const struct ahead_holder *other)
{
    if (one->may_have_to_leave != other->may_have_to_leave)
        return other->may_have_to_leave;
    return unused_bytes(one) > unused_bytes(other);
}

/* Who is to give back next; NULL: nobody has anything. */
static struct ahead_holder *find_next(struct ahead_holder *holders, unsigned count)
{
    struct ahead_holder *next = NULL;
    for (unsigned i = 0; i < count; i++)
        if (unused_bytes(&holders[i]) && (!next || is_before(&holders[i], next)))
            next = &holders[i];
    return next;
}

uint64_t ahead_take_back(struct ahead_holder *holders, unsigned count, uint64_t needed_bytes)
{
    uint64_t sum = 0;
    struct ahead_holder *next;
    for (unsigned i = 0; i < count; i++)
        holders[i].keep_bytes = holders[i].given_bytes;
    while (sum < needed_bytes && (next = find_next(holders, count))) {
        uint64_t unused = unused_bytes(next), wanted = needed_bytes - sum,
                 bytes = unused < wanted ? unused : wanted;
        next->keep_bytes -= bytes;
        sum += bytes;
    }
    return sum;
}
