/* fakecuda.h - what libfakecuda.so exports beside the driver and NVML: a view of the simulation itself, for
 * programs that watch it from outside, as tests and benches do. No interceptor knows these names. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* A place of the shared memory that one process has at a time. */
struct fakecuda_compute {
    uint32_t place;
    pid_t pid;            /* the process that has it, or had it last */
    uint64_t computed_ns; /* how long the compute engine worked for all processes that ever had it */
};

/* The device's own clock: for each place whose work the compute engine of GPU `gpu` ever did, how long, to
 * the nanosecond, at one moment each, and in `*now_ns` when that was (CLOCK_MONOTONIC). Differences tell what
 * a process got. What a process had stays when it dies, until the first process after all have gone. Fills up
 * to `capacity`; returns how many there are, or -1 where there is no such GPU or no simulated machine. */
int fakecuda_compute(unsigned gpu, uint64_t *now_ns, struct fakecuda_compute *places, unsigned capacity);

/* A network card of this process, which reads the GPU's memory past the driver, as one with nvidia-peermem does. Tell it of a
 * range: its number, or -1 for what is not memory for RDMA. */
int fakecuda_nic_register(uint64_t address, uint64_t bytes);
/* Have it read: -1 if any page of the range is no longer the one that it was told of. */
int fakecuda_nic_read(int number, uint64_t offset, void *to, uint64_t bytes);
