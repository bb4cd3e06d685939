/* copy_work.h - a copy or a memset as data: the parameters of a graph's node that would do it, whichever call it is.
 *
 *   line   bytes in a row
 *   box    rows and layers of them, with a pitch */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cuda/driver.h"
#include "cuda/driver_more.h"

/* One end of a line. */
struct copy_end {
    CUmemorytype type; /* host, device or unified */
    CUdeviceptr address;
};

CUgraphNodeParams copy_work_line(struct copy_end to, struct copy_end from, size_t bytes);

/* Of what the program gave; NULL: it is no copy, which nobody takes for one. */
CUgraphNodeParams copy_work_rows(const CUDA_MEMCPY2D *copy);
CUgraphNodeParams copy_work_box(const CUDA_MEMCPY3D *copy);

CUgraphNodeParams copy_work_fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element_bytes,
                                 size_t width, size_t height);

/* The same of a node's own parameters, and back. */
CUgraphNodeParams copy_work_of_node(const CUgraphNodeParams *params);
CUgraphNodeParams copy_work_of_fill(const CUDA_MEMSET_NODE_PARAMS *fill);
CUDA_MEMSET_NODE_PARAMS copy_work_fill_of(const CUgraphNodeParams *work);

/* The same, in a context. The context of its own that it names (NULL: the current one); NULL: it has no place for one, since it is
 * neither a copy nor a memset. */
CUgraphNodeParams copy_work_in(CUgraphNodeParams work, CUcontext context);
CUcontext *copy_work_context(CUgraphNodeParams *work);

/* Whether it is a copy that copy_work_line() makes. */
bool copy_work_is_line(const CUgraphNodeParams *work);
