/* resolve_choose.c - chooses by the name that was asked and the pointer that was returned. */
#include <string.h>

#include "cuda/entry_points.h"
#include "intercept/resolve/resolve.h"

static struct resolve_choice chosen(const struct resolve_tables *tables, int id)
{
    return (struct resolve_choice){.id = tables->hooks[id] ? id : -1};
}

struct resolve_choice resolve_choose(const struct resolve_tables *tables, const char *name, int version,
                                     cuuint64_t flags, const void *pointer)
{
    /* The usual case; and the right row if a driver exports one function under two symbols. */
    int expected = cuda_entry_resolve(name, version, flags);
    if (expected >= 0 && tables->driver_function(expected) == pointer)
        return chosen(tables, expected);

    /* A driver that is older or newer than our table answers with another form of the name. */
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++) {
        if (strcmp(cuda_entries[id].name, name) == 0 && tables->driver_function(id) == pointer)
            return chosen(tables, id);
    }

    /* A name that is not in the table, or a form that the driver does not export: our hook would have nothing to call. */
    if (expected < 0 || !tables->driver_function(expected))
        return (struct resolve_choice){.id = -1, .is_new = true};

    /* The driver answers with a function that it exports under no symbol. A hook of any class replaces it, since
     * launches are paced by what the hooks of waits, captures and contexts tell. */
    return (struct resolve_choice){.id = chosen(tables, expected).id, .unknown = true};
}
