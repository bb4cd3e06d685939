/* fake_more.h - the rarer ways of taking memory, beside fake_driver.c: they take nothing that fake_held()
 * tells, and give their handles out again at once. */
#pragma once

#include "cuda/driver_more.h"

void fake_more_install(void);

/* Arrays, external memories, opened memories and made pools that exist. */
extern unsigned fake_things;
/* What fake_pool() reserves, and what is used of it; it grows by whole blocks as the default one does. */
extern size_t fake_made_reserved, fake_made_used;
