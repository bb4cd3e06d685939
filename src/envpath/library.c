/* libgpuslice-path.so: preloaded (or named in /etc/ld.so.preload of an image), it adds to the search paths that the
 * programs started from here will have. The program itself was loaded before. */
#include <sys/auxv.h>

#include "envpath/envpath.h"

__attribute__((constructor)) static void begin(void)
{
    /* A program with more rights than its caller drops the caller's LD_PRELOAD: it must not come back this way. */
    if (!getauxval(AT_SECURE))
        envpath_apply();
}
