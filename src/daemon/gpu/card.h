/* card.h - one GPU: a card, or a MIG instance of one. A card in MIG mode is not a GPU itself. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/uuid.h"

struct nvml_process;

#define GPU_LABEL_BYTES 24

/* NVML's figures for the memory of a GPU. What the driver keeps for itself counts in the total and as used. */
struct gpu_figures {
    uint64_t total_bytes, free_bytes, used_bytes;
    uint64_t kept_bytes; /* 0: nothing, or NVML does not say */
    /* NVML has none, as where the GPU shares the host's memory (GB10): total and free are the host's, and used is the sum
     * over processes. */
    bool is_hosts;
};

/* How warm the whole card is, and what it draws. */
#define GPU_HEAT_UNKNOWN (-1) /* NVML does not say, as for a MIG instance */
struct gpu_heat {
    int celsius, milliwatts;
};

/* Written by sampler.c, except for what context_probe.c and context_cost.c find. */
struct gpu {
    unsigned index;              /* of the card, as NVML counts */
    int mig_index;               /* of the instance on its card, as NVML counts; -1: the whole card */
    char label[GPU_LABEL_BYTES]; /* what people call it: "0", or "0:1" for instance 1 of card 0 */
    uint8_t uuid[GPU_UUID_BYTES];
    char uuid_text[GPU_UUID_TEXT];
    char name[96];
    char pci_address[24];        /* of the card, as sysfs has it: "0000:3b:00.0"; "": not known */
    char compute_capability[24]; /* "9.0"; "": not known */
    bool healthy;                /* NVML answered its last question about it in time */
    /* Of its memory, what programs can have, and what of that is free and used; and what the driver keeps for itself
     * besides (gpu_take_figures()). */
    uint64_t total_bytes, free_bytes, used_bytes, kept_bytes;
    uint64_t cuda_bytes;        /* its size as CUDA tells it to programs, by context_probe.c; 0: not known */
    uint32_t traits;            /* a bit for each enum gpu_trait that it has */
    bool knows_traits;          /* context_probe.c has looked, or an earlier daemon's has */
    struct gpu_figures figures; /* what the figures above follow from */
    int busy_percent;       /* how much of its time, by NVML; -1: NVML does not say, or it is not healthy */
    struct gpu_heat heat;   /* by NVML, as old as busy_percent */
    uint64_t context_bytes; /* context_cost.c; 0: not measured yet */
    struct nvml_process *processes; /* that use it, in sessions and outside; not healthy: that used it last */
    unsigned process_count;
    /* driver_left.c: used, and shown for no process, without the doing of any session; and what that is learned by. */
    uint64_t unlisted_bytes, unlisted_least;
    unsigned unlisted_samples;
    bool has_usual;
    const char *no_processes; /* why the processes are not known, in a few words; NULL: they are known */
    bool is_silent;           /* set by gpu_tell_silence() */
};
