/* shared.h - the layout of the file that the processes on a simulated GPU share; for device.c and who runs
 * its timelines. */
#pragma once

#include "simgpu/device.h"
#include "simgpu/published.h"
#include "simgpu/timeline.h"

_Static_assert(DEVICE_SLOTS == TIMELINE_SLOTS, "one slot a process");

/* Who holds how much of one GPU. */
struct account {
    uint64_t used_bytes; /* the sum */
    uint32_t slot_count; /* no slot from here on holds anything */
    uint64_t bytes[DEVICE_SLOTS];
};

struct shared_gpu {
    published_current account_current;
    struct account accounts[DEVICE_SLOTS * 2];
    _Alignas(4096) struct timeline timeline;
};

struct shared_header {
    _Atomic uint32_t ready; /* SHARED_LAYOUT once the parameters stand */
    struct device_parameters parameters;
    struct shared_slot {
        _Atomic uint64_t generation; /* counts owners; the owner raises it before it does anything else */
        _Atomic int32_t pid;
        _Atomic uint64_t hidden_bytes[DEVICE_GPUS]; /* device_hide() */
    } slots[DEVICE_SLOTS];
};
#define SHARED_LAYOUT 3u

/* This process's view; valid after device_attach(). */
struct shared_view {
    struct shared_header *header;
    struct shared_gpu *gpus;
    uint32_t slot;
};
const struct shared_view *shared_view(void);

/* Whether the slot's owner lives. Our own is alive. */
bool shared_slot_is_alive(uint32_t slot);

uint64_t shared_now_ns(void); /* CLOCK_MONOTONIC */
