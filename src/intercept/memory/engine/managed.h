/* managed.h - the engine whose device memory is managed memory: the driver pages it.
 *
 * Linear and pitched memory is made by cuMemAllocManaged. The driver brings a page to the GPU when that touches it, and throws
 * out what was used longest ago: slowly, page by page, and for ever where two programs work in turn on more than the card
 * has. So the daemon gives such sessions turns: one that is away has its gate closed and copies nothing, as the driver takes
 * its pages when somebody needs the room. When its turn begins, all that it has is prefetched at once.
 *
 * The program is told that it is device memory, as far as it can be told so. The driver has no legacy IPC for it, and no
 * export. */
#pragma once

#include "intercept/memory/engine/engine.h"

extern const struct engine engine_managed;

/* Use it from now on (choose.h), unless the driver cannot page memory of the context's device: then the process is plain. */
void managed_begin(CUcontext context);
