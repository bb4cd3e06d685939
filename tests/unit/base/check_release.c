#undef NDEBUG
#define NDEBUG
#include "check_release.h"

#include "base/check.h"

static unsigned evaluated;

__attribute__((unused)) static int seen(int value)
{
    evaluated++;
    return value;
}

unsigned check_release_evaluated(void)
{
    GS_CHECK(seen(0));
    return evaluated;
}
