/* libgpuslice-path.so: preloaded, or named in an image's /etc/ld.so.preload, it adds to the search paths of the
 * programs that this program starts. For this program it comes too late. */
#include <sys/auxv.h>

#include "envpath/envpath.h"

__attribute__((constructor)) static void begin(void)
{
    /* A program with more rights than its caller ignores the caller's LD_PRELOAD, which must not come back this
     * way. */
    if (!getauxval(AT_SECURE))
        envpath_apply();
}
