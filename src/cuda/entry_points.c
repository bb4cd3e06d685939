#include "cuda/entry_points.h"

#include <string.h>

const struct cuda_entry cuda_entries[CUDA_ENTRY_COUNT] = {
#define CUDA_ENTRY(symbol, name, since, stream, class)                                                       \
    {#symbol, #name, since, CUDA_STREAM_##stream, CUDA_##class},
#include "cuda/entry_points.def"
#undef CUDA_ENTRY
};

/* The first row whose symbol is not below `symbol`. */
static int lower_bound(const char *symbol)
{
    int low = 0, high = CUDA_ENTRY_COUNT;
    while (low < high) {
        int middle = (low + high) / 2;
        if (strcmp(cuda_entries[middle].symbol, symbol) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int cuda_entry_find(const char *symbol)
{
    int row = lower_bound(symbol);
    return row < CUDA_ENTRY_COUNT && strcmp(cuda_entries[row].symbol, symbol) == 0 ? row : -1;
}

int cuda_entry_resolve(const char *name, int version, cuuint64_t flags)
{
    int per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    int best = CUDA_ENTRY_UNKNOWN;

    /* Every symbol of a name begins with it, so its rows start at the name's own place; other names may stand
     * between them (cuMemAlloc, cuMemAllocAsync, cuMemAlloc_v2). */
    size_t length = strlen(name);
    for (int row = lower_bound(name);
         row < CUDA_ENTRY_COUNT && strncmp(cuda_entries[row].symbol, name, length) == 0; row++) {
        const struct cuda_entry *entry = &cuda_entries[row];
        if (strcmp(entry->name, name) != 0 ||
            (entry->stream != CUDA_STREAM_ANY && (entry->stream == CUDA_STREAM_PER_THREAD) != per_thread))
            continue;
        if (entry->since > version) {
            if (best < 0)
                best = CUDA_ENTRY_TOO_NEW;
        } else if (best < 0 || entry->since > cuda_entries[best].since) {
            best = row;
        }
    }
    return best;
}

const char *cuda_result_name(CUresult result)
{
    switch (result) {
#define CUDA_RESULT(name, value)                                                                             \
    case name:                                                                                               \
        return #name;
#include "cuda/results.def"
#undef CUDA_RESULT
    }
    return NULL;
}
