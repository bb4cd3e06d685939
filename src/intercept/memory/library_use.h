/* library_use.h - the first use of a library in a context. With lazy loading the driver takes a library's variables and code then, and not
 * when the library is loaded. What it took is found by comparing before and after (ahead.h), and counts at once.
 *
 * The program has handles of the library by now, and they end with it. So a little above the limit is allowed, and the library stays.
 * Where it is more, by what the daemon finds on the card, the library is unloaded and the call refused. */
#pragma once

#include "cuda/driver_more.h"
#include "intercept/memory/ahead.h"

/* After a call that may have used the library first, and ahead_begin() before it: its result, or out-of-memory. */
CUresult library_used(struct ahead *ahead, CUresult result, CUlibrary library);
/* cuKernelGetFunction() with these. */
CUresult library_use_kernel(CUfunction *function, CUkernel kernel);
