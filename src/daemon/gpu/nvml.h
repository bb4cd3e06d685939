/* nvml.h - NVIDIA's management library behind a helper thread, because it may hang for as long as a driver does. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuda/nvml.h"
#include "cuda/uuid.h"
#include "daemon/gpu/card.h"
#include "daemon/gpu/pids.h"
#include "daemon/loop/worker.h"
#include "ledger/ledger.h"

struct nvml; /* the loaded library */
struct gpu_look;
struct gpu_sampler;

/* For which part of the time since the last question a process kept the GPU busy. */
struct nvml_activity {
    pid_t pid;
    unsigned percent;
};

/* One GPU at one moment. */
struct nvml_sample {
    bool ok;
    struct gpu_figures memory;
    int busy_percent; /* how much of its time; -1 where the driver does not say */
    struct gpu_heat heat;
    struct nvml_process *processes; /* owned by the job */
    unsigned process_count;
    const char *no_processes; /* why the processes are not known, in a few words; NULL: they are known */
    /* Of a question for activity alone: */
    bool knows_activity;
    struct nvml_activity *activity; /* owned by the job; of processes that did something */
    unsigned activity_count;
    uint64_t activity_usec; /* the time since the last question */
};

#define NVML_PCI_ADDRESS_TEXT 24
#define NVML_CAPABILITY_TEXT 24

/* A GPU: a card, or a MIG instance of a card in MIG mode, which is then not a GPU itself. */
struct nvml_card {
    unsigned index; /* of the card, as NVML counts */
    int mig_index;  /* of the instance on its card, as NVML counts; -1: the whole card */
    uint8_t uuid[GPU_UUID_BYTES];
    char uuid_text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    char pci_address[NVML_PCI_ADDRESS_TEXT];       /* of the card, as sysfs has it; "": not known */
    char compute_capability[NVML_CAPABILITY_TEXT]; /* "9.0"; "": not known */
    struct gpu_figures memory;
};

/* A job that samples the GPUs `first_gpu` to `last_gpu`, in the order of the list. */
struct nvml_job {
    struct worker_job job;
    struct gpu_sampler *sampler;
    struct gpu_look *look; /* the look it is for; NULL: a sample of all GPUs, or the look was cancelled */
    bool is_glance;        /* for the memory alone */
    uint64_t
        activity_of; /* a bit for each GPU that is asked for its activity, and for nothing else; 0: none */
    unsigned first_gpu, last_gpu;
    uint64_t took_usec; /* how long asking NVML took */
    struct nvml_sample samples[LEDGER_GPUS];
};

/* Load `library` (NULL: libnvidia-ml.so.1, by the linker's rules). Fails where there is no driver. */
int nvml_load(struct nvml **nvml, const char *library, struct error *error);

/* The thread's first job: initialise NVML and list the GPUs. */
struct nvml_list_job {
    struct worker_job job;
    struct gpu_sampler *sampler;
    struct error error;       /* NVML does not start; status 0: it does */
    unsigned count, left_out; /* in `cards`; and those that did not fit */
    struct nvml_card cards[LEDGER_GPUS];
    unsigned failure_count; /* GPUs that NVML fails to describe, as one that fell off the bus, and why */
    struct error failures[LEDGER_GPUS];
    char driver_version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
};

/* Runs a list of jobs for worker_start(): the very first job lists, all later ones sample. */
void nvml_run(struct worker_job *first, void *nvml);

void nvml_sample_free(struct nvml_job *job);
/* Call when its thread has ended. The library stays loaded. */
void nvml_free(struct nvml *nvml);
