/* Used instead of the dashboard where the build had no npm to fetch what the dashboard needs. */
#include "daemon/http/pages.h"

const struct page pages[] = {{NULL, NULL, NULL, 0, NULL}};
