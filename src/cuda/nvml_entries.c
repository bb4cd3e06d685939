#include "cuda/nvml_entries.h"

#include <string.h>

/* The last field of every form is a number of bytes or of an instance: neither has this in its highest byte. */
#define UNTOUCHED 0xa5

_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_v2_t) == 24 &&
                   sizeof(nvmlProcessDetail_v1_t) == 32,
               "the entries' lengths");

void nvml_entries_prepare(void *entries, unsigned room)
{
    memset(entries, UNTOUCHED, room * NVML_ENTRY_BYTES_MOST);
}

size_t nvml_entries_length(const void *entries, unsigned room, unsigned count)
{
    const unsigned char *bytes = entries;
    size_t written = room * NVML_ENTRY_BYTES_MOST;
    while (written && bytes[written - 1] == UNTOUCHED)
        written--;
    if (count == 0 || count > room)
        return 0;
    /* The last entry's last field may have been left alone. */
    size_t words = (written + 7) / 8, length = (words + count - 1) / count * 8;
    return length == sizeof(nvmlProcessInfo_v1_t) || length == sizeof(nvmlProcessInfo_v2_t) ||
                   length == sizeof(nvmlProcessDetail_v1_t)
               ? length
               : 0;
}
