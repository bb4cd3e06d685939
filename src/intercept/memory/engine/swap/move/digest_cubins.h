/* digest_cubins.h - the kernel of digests as machine code for several kinds of GPUs. The build assembles it from the PTX
 * (scripts/digest-cubins) where it finds NVIDIA's ptxas; otherwise there is none, and each process has the driver compile
 * the PTX, which takes some hundred milliseconds. */
#pragma once

#include <stddef.h>

struct digest_cubin {
    unsigned capability; /* for which it was made: 90 is 9.0; 0: the end of the table */
    const unsigned char *image;
    size_t bytes;
};

extern const struct digest_cubin digest_cubins[]; /* by rising capability */

/* The newest one of the table that runs on a GPU of this capability: the same generation, and not a newer one (CUDA C++
 * Programming Guide, binary compatibility). NULL: there is none. */
static inline const struct digest_cubin *digest_cubin_for(const struct digest_cubin *table,
                                                          unsigned capability)
{
    const struct digest_cubin *found = NULL;
    for (; table->capability && table->capability <= capability; table++)
        if (table->capability / 10 == capability / 10)
            found = table;
    return found;
}
