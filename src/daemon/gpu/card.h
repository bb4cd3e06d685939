/* card.h - one GPU: a card, or a MIG instance of one. A card in MIG mode is not a GPU itself. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/uuid.h"

struct nvml_process;

#define GPU_LABEL_BYTES 24

/* Written by sampler.c, except for context_bytes. */
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
    uint64_t total_bytes, free_bytes, used_bytes;
    int busy_percent;       /* how much of its time, by NVML; -1: NVML does not say, or it is not healthy */
    uint64_t context_bytes; /* context_cost.c; 0: not measured yet */
    struct nvml_process *processes; /* that use it, in sessions and outside; not healthy: that used it last */
    unsigned process_count;
    const char *no_processes; /* why the processes are not known, in a few words; NULL: they are known */
    bool is_silent;           /* set by gpu_tell_silence() */
};
