#include "intercept/resolve/guard.h"

__thread unsigned guard_depth;
__thread int guard_before;
