/* profile.h - which card a simulated GPU looks like (profiles.def): name, numbers, how much memory by
 * default. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"

#define PROFILES 7 /* rows of DEVICE_PROFILE, and columns of the tables with a value for each card */

struct device_profile {
    const char *key; /* FAKECUDA_DEVICE */
    const char *name;
    uint32_t pci_device,
        pci_subsystem;       /* device number in the upper half, vendor in the lower, as NVML has them */
    uint64_t total_bytes;    /* what programs can have */
    uint64_t reserved_bytes; /* what the driver keeps beside that: in NVML's total, not in CUDA's */
    int since;               /* the first CUDA version whose driver knows the card */
};

#define PROFILE_KEYS "default, h100, t4, a10, l4, b200 or rtx5090"

/* The number of the profile of that key; -1 if there is none. */
int profile_find(const char *key);

/* Of the card that device_parameters() names; valid after device_attach(). */
const struct device_profile *profile_current(void);
const struct device_profile *profile_at(unsigned number);

/* An attribute of the card. False for those that are of one device or its state (its bus, its compute mode).
 */
bool profile_attribute(CUdevice_attribute attribute, int *value);

/* The same for attributes that are in the table. */
int profile_value(CUdevice_attribute attribute);

/* The same of one GPU (device.h): a MIG instance has a part of its card's engines and caches. */
int profile_gpu_value(unsigned gpu, CUdevice_attribute attribute);

/* The GPU's name, as CUDA and NVML have it: "NVIDIA H100 80GB HBM3 MIG 1g.10gb". */
#define PROFILE_NAME_BYTES 96
const char *profile_gpu_name(unsigned gpu, char name[static PROFILE_NAME_BYTES]);

/* 10 * major + minor: what code has to be made for. */
unsigned profile_architecture(void);
