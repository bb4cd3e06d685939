/* gpu.h - the GPUs: what NVML last said of them, and what a context costs on each.
 *
 * A GPU is a card, or a MIG instance of one; a card in MIG mode is none. Which there are is seen at the
 * start. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cuda/uuid.h"
#include "daemon/gpu/nvml.h"

struct daemon;
struct gpu_sampler;

#define GPU_LABEL_BYTES 24

struct gpu {
    unsigned index;              /* NVML's, of the card */
    int mig_index;               /* NVML's, of the instance on its card; -1: the whole card */
    char label[GPU_LABEL_BYTES]; /* what people call it: "0", or "0:1" for instance 1 of card 0 */
    uint8_t uuid[GPU_UUID_BYTES];
    char uuid_text[GPU_UUID_TEXT];
    char name[96];
    bool healthy; /* NVML answered its last question about it in time */
    uint64_t total_bytes, free_bytes, used_bytes;
    int busy_percent;       /* of its time, by NVML; -1: it does not say */
    uint64_t context_bytes; /* 0: not measured yet */
    struct nvml_process *processes;
    unsigned process_count;
    bool is_silent; /* gpu_tell_silence() */
};

/* Load NVML, list the cards and take a first sample, all before the loop serves anybody. `library` NULL: the
 * driver's. Fails when it takes above 30 s. */
int gpu_start(struct daemon *daemon, const char *library, struct error *error);
void gpu_stop(struct daemon *daemon);

/* Say in the log, once a GPU, that NVML does not tell what processes hold there. */
void gpu_tell_silence(struct gpu *gpu, const char *why);

/* Have a fresh sample taken and call `done` when it is there, or after a second without an answer (the cards
 * are then unhealthy and keep their last numbers). Where samples take long, the last one is fresh for some
 * time: at most as long as 35 times what it took. */
void gpu_refresh(struct daemon *daemon, void (*done)(void *argument), void *argument);

/* Have a sample taken within 100 ms, or later where samples take long, once for all who ask meanwhile: something has happened that the driver
 * line (driver_line.h) should know. */
void gpu_sample_soon(struct daemon *daemon);

/* The GPU that people call `text`: an NVML index, "CARD:INSTANCE" by NVML's indices for a MIG instance, or
 * the beginning of a UUID with or without "GPU-" or "MIG-". -ENOENT with ERR_GPU_NOT_FOUND, or -EBUSY with
 * ERR_AMBIGUOUS. */
int gpu_find(const struct daemon *daemon, const char *text, unsigned *gpu, struct error *error);
int gpu_find_uuid(const struct daemon *daemon, const uint8_t uuid[static GPU_UUID_BYTES]); /* or -1 */

/* What is promised on the card to sessions other than `except` (may be NULL). */
struct session;
uint64_t gpu_reserved(const struct daemon *daemon, unsigned gpu, const struct session *except);

/* What processes in no session of ours hold on the card, as NVML last showed it: programs outside of
 * sessions, and other daemons'. Admission leaves it to them. */
uint64_t gpu_held_by_others(const struct daemon *daemon, unsigned gpu);

/* Measure what a context costs, from what NVML shows for a process that just made its first one on `gpu`
 * (index in the session's policy), beyond what its slot holds. `done` gets it, or 0 when it cannot be told
 * within 100 ms; once known it is kept in every policy and, for a real card, in the state file. */
struct process;
struct gpu_measurement;
struct gpu_measurement *gpu_measure_context(struct process *process, unsigned policy_gpu,
                                            void (*done)(void *argument, uint64_t bytes), void *argument);
/* The process or who asked has gone: `done` will not be called. */
void gpu_measure_cancel(struct gpu_measurement *measurement);
