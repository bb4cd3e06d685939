/* card.h - one GPU: a card, or a MIG instance of one. A card in MIG mode is none itself. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/uuid.h"

struct nvml_process;

#define GPU_LABEL_BYTES 24

/* Written by sampler.c, but for what a context costs. */
struct gpu {
    unsigned index;              /* NVML's, of the card */
    int mig_index;               /* NVML's, of the instance on its card; -1: the whole card */
    char label[GPU_LABEL_BYTES]; /* what people call it: "0", or "0:1" for instance 1 of card 0 */
    uint8_t uuid[GPU_UUID_BYTES];
    char uuid_text[GPU_UUID_TEXT];
    char name[96];
    char pci_address[24];        /* of the card, as sysfs has it: "0000:3b:00.0"; "": not known */
    char compute_capability[24]; /* "9.0"; "": not known */
    bool healthy;                /* NVML answered its last question about it in time */
    uint64_t total_bytes, free_bytes, used_bytes;
    int busy_percent;               /* of its time, by NVML; -1: it does not say */
    uint64_t context_bytes;         /* context_cost.c; 0: not measured yet */
    struct nvml_process *processes; /* that use it, in sessions and outside */
    unsigned process_count;
    const char *no_processes; /* why they are not known, in a few words; NULL: they are */
    bool is_silent;           /* gpu_tell_silence() */
};
