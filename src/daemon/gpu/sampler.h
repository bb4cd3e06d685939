/* sampler.h - the GPUs as NVML shows them: which there are, once at the start, and how they are, every 5 s.
 *
 * sample   what NVML says of all GPUs, taken by the helper thread. CHANGE_SAMPLE_BEGINS is published before it is asked
 *          for, and CHANGE_GPUS_SAMPLED when daemon.gpus shows it
 * look     what NVML says of one GPU, for one caller; it changes nothing
 * glance   what NVML says of the memory of all GPUs, and of no process; it changes nothing
 * activity for which part of the time each process kept a GPU busy (nvml.h); it changes nothing */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct daemon;
struct gpu;
struct nvml_sample;

/* Load NVML, list the GPUs and take a first sample, all before the loop serves anybody. `library` NULL: the driver's.
 * A GPU that NVML cannot describe, as one that fell off the bus, is left out, and the log says so. Fails when no GPU is
 * left, and when listing takes longer than 30 s. Where the first sample takes longer than 5 s, the GPUs are not healthy. */
int gpu_start(struct daemon *daemon, const char *library, struct error *error);
void gpu_stop(struct daemon *daemon);

/* Log, once per GPU, that NVML does not say how much each process holds there. */
void gpu_tell_silence(struct gpu *gpu, const char *why);

/* Have a fresh sample taken and call `done` when it is there, or after a second without an answer (the GPUs are then
 * unhealthy and keep their last numbers). Where samples take long, the last one counts as fresh for a while: at most 35
 * times as long as it took. */
void gpu_refresh(struct daemon *daemon, void (*done)(void *argument), void *argument);

/* Have a sample taken within 100 ms, or later where samples take long. One sample serves all who ask meanwhile. */
void gpu_sample_soon(struct daemon *daemon);
/* The same for an observer for whom the present sample was not enough; granted a few times in a row. */
void gpu_sample_again(struct daemon *daemon);

/* Have the memory of all GPUs read, which costs next to nothing and holds nobody up. False while NVML has not answered the last
 * question, and without memory. */
bool gpu_glance(struct daemon *daemon, void (*done)(void *argument, const struct nvml_sample *samples),
                void *argument);

/* Ask for the activity of the GPUs that `wanted` has a bit for, by their place in daemon.gpus; `took_usec` is how long NVML needed.
 * False as for a glance. */
bool gpu_activity(struct daemon *daemon, uint64_t wanted,
                  void (*done)(void *argument, const struct nvml_sample *samples, uint64_t took_usec),
                  void *argument);

/* Have a look taken at `gpu`. NULL without memory, and where NVML does not answer. */
struct gpu_look;
struct gpu_look *gpu_look(struct daemon *daemon, unsigned gpu,
                          void (*done)(void *argument, const struct nvml_sample *sample), void *argument);
/* `done` will not be called. Not to be called after `done`. */
void gpu_look_cancel(struct gpu_look *look);
