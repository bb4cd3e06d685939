/* managed.h - the engine whose device memory is managed memory: the driver pages it.
 *
 * Linear and pitched memory is made by cuMemAllocManaged. When the GPU touches a page, the driver brings it there,
 * and throws out what was used longest ago. That is slow, page by page, and never ends if two programs work in turn
 * on more than the card has. So the daemon gives such sessions turns. A session that is away has its gate closed and
 * copies nothing: the driver takes its pages when another needs the room. When its turn begins, everything that it
 * has is prefetched at once.
 *
 * As far as possible, the program is told that this is device memory. The driver has no legacy IPC for it, and no
 * export. */
#pragma once

#include "intercept/memory/engine/engine.h"

extern const struct engine engine_managed;

/* Use this engine from now on (choose.h), unless the driver cannot page memory of the context's device: then the
 * process stays plain. */
void managed_begin(CUcontext context);
