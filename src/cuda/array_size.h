/* array_size.h - how many bytes an array takes. */
#pragma once

#include <stdint.h>

#include "cuda/driver.h"

/* The bytes of an array, or of the first `levels` levels of a mipmapped one (0 counts as 1; more than there are count as
 * all): layers and faces, planes of video formats as sampled, blocks of compressed formats whole. The card lays them out in
 * tiles (64 bytes x 8 rows, up to 16 such high and, in volumes, 16 deep), so rows, columns and slices are rounded up, and the
 * whole to pages of 64 KiB (measure). UINT64_MAX when it does not fit; 0 for a format that is not known. */
uint64_t cuda_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);
