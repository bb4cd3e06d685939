/* code_room.h - room for what a call takes beside its purpose: code of a module, local memory of its kernels. Only the driver
 * knows how much that is, and takes it inside of a load or a launch. */
#pragma once

#include <stdbool.h>

#include "cuda/driver_more.h"

/* The driver had no memory for the call on the current context's GPU: wait until the daemon has made room, for more with each
 * attempt (from 0). False: there will be none, or nobody can say. Call it without any lock that a move takes, and not for a stream
 * that is being captured. */
bool code_wait_for_room(unsigned attempt);

/* With the first launch of a function, the driver takes local memory for every thread that can be resident, and loads its code if
 * it has not yet. False if that memory is more than the session's limit, which is said on stderr. */
bool code_may_launch(CUfunction function);
/* The same before these become a node of a graph, where they are a kernel's. */
bool code_may_be_node(const CUgraphNodeParams *params);
