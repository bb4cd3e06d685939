/* envpath.h - what libgpuslice-path.so does to the environment of the program that loads it. */
#pragma once

/* Add to PATH, LD_PRELOAD and LD_LIBRARY_PATH the entries that GPUSLICE_PATH, GPUSLICE_PREPEND_PATH and so on name,
 * and those of vgpu.rs's TF_PATH, TF_PREPEND_PATH and so on. */
void envpath_apply(void);
