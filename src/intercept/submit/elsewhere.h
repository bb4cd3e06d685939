/* elsewhere.h - a copy or a memset that another context than its stream's has to do, in the order of that stream.
 *
 * It goes to a stream of its own in that context, which waits for what the program's stream has so far; the program's stream
 * then waits for it. So other work of either card goes on meanwhile. The stream and its events are made for each: a program
 * that does this often is better off with the context of the memory's card current. In a capture it becomes a node that names
 * the context. */
#pragma once

#include <stdbool.h>

#include "cuda/driver.h"
#include "cuda/driver_more.h"

/* `work` is the parameters of a node that copies or sets memory; `stream` is being captured, or not. `waits`: return once it
 * is done. Returns the driver's first error. */
CUresult elsewhere_do(const CUgraphNodeParams *work, CUcontext context, CUstream stream, bool waits);
CUresult elsewhere_capture(const CUgraphNodeParams *work, CUcontext context, CUstream stream);
