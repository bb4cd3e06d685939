/* array_size.h - how many bytes an array's elements take. */
#pragma once

#include <stdint.h>

#include "cuda/driver.h"

/* The bytes of all elements of an array, or of the first `levels` levels of a mipmapped one (0 counts as 1;
 * more than there are count as all): rows, layers and faces without padding, planes of video formats as
 * sampled, blocks of compressed formats whole. What a driver adds to align and tile them is not known before
 * it has made the array, nor told after (cuArrayGetMemoryRequirements answers for arrays of deferred mapping
 * alone). UINT64_MAX when it does not fit; 0 for a format that does not exist. */
uint64_t cuda_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);
