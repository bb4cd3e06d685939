#include "daemon/residency/stays.h"

#include "base/units.h"

uint64_t stays_against_wish(const uint64_t bytes[static WIRE_STAYS_COUNT])
{
    return wire_stays_sum(bytes) - bytes[WIRE_STAYS_CONTEXT];
}

unsigned stays_order(const uint64_t bytes[static WIRE_STAYS_COUNT],
                     enum wire_stays order[static WIRE_STAYS_COUNT])
{
    unsigned count = 0;
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++) {
        if (!bytes[why])
            continue;
        unsigned at = count++;
        for (; at > 0 && bytes[order[at - 1]] < bytes[why]; at--)
            order[at] = order[at - 1];
        order[at] = why;
    }
    return count;
}

const char *stays_text(const uint64_t bytes[static WIRE_STAYS_COUNT], char *text, size_t size)
{
    enum wire_stays order[WIRE_STAYS_COUNT];
    struct units_part parts[WIRE_STAYS_COUNT];
    unsigned count = 0;
    for (unsigned i = 0, all = stays_order(bytes, order); i < all; i++)
        if (order[i] != WIRE_STAYS_CONTEXT)
            parts[count++] = (struct units_part){bytes[order[i]], wire_stays_text(order[i])};
    return units_format_stays(parts, count, text, size);
}
