/* envpath.h - what libgpuslice-path.so does to the environment of the program that loads it. */
#pragma once

/* PATH, LD_PRELOAD and LD_LIBRARY_PATH get the entries that GPUSLICE_PATH, GPUSLICE_PREPEND_PATH and so on name, and
 * those of TF_PATH, TF_PREPEND_PATH and so on, which vgpu.rs has. */
void envpath_apply(void);
