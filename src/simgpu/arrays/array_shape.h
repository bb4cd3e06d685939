/* array_shape.h - what descriptors of arrays may say, and how many bytes follow from them (arrays.h says by which rules).
 */
#pragma once

#include "simgpu/arrays/arrays.h"

CUresult array_descriptor_check(const CUDA_ARRAY3D_DESCRIPTOR *descriptor);

/* How many planes a format has that array_descriptor_check() let pass, 0 for none; and each plane as an array of its
 * own. */
unsigned array_plane_count(CUarray_format format);
CUDA_ARRAY3D_DESCRIPTOR array_plane(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned index);

/* Set what follows from the array's descriptor, for one level or plane: its bytes are not rounded to pages yet. */
void array_measure(CUarray array);
uint64_t array_pages(uint64_t bytes);
