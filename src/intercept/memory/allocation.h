/* allocation.h - what a program wants, as data.
 *
 * way          a driver call that gives memory or takes it back: a row of alloc.def
 * allocation   what a program wants by one way: the call's arguments, and what the road must know about them */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/driver_more.h"
#include "cuda/prototypes.h"
#include "intercept/memory/records.h"

enum alloc_way {
#define ALLOCATES(symbol, ...) WAY_##symbol,
#include "intercept/memory/alloc.def"
    WAY_COUNT
};

enum release_way {
#define RELEASES(symbol, ...) RELEASE_##symbol,
#include "intercept/memory/alloc.def"
    RELEASE_COUNT
};

enum alloc_charged {
    ALLOC_SIZED,
    ALLOC_SIZED_ON_DEVICE,
    ALLOC_NAMED,
    ALLOC_MAPPED,
    ALLOC_POOLED,
    ALLOC_CONTEXT,
    ALLOC_PRIMARY_CONTEXT,
};

/* A row of alloc.def. */
struct alloc_row {
    uint16_t call;   /* row of the driver's entry points (cuda/entry_points.h) */
    uint8_t undo;    /* enum release_way */
    uint8_t record;  /* enum record_kind */
    uint8_t charged; /* enum alloc_charged */
    bool is_hidden;  /* NVML's figure for the process leaves it out */
    bool can_move;
};
extern const struct alloc_row alloc_rows[WAY_COUNT];

struct release_row {
    uint16_t call;
    uint8_t record;
};
extern const struct release_row release_rows[RELEASE_COUNT];

/* What a program wants. The call's arguments are laid out by the form of its row. Nobody changes it. */
struct allocation {
    enum alloc_way way;
    /* Charge nothing: the driver will refuse the call, in its own order of checks, or the call takes memory of the
     * host. */
    bool is_uncharged;
    /* The device that the call names, if it names one. */
    CUdevice device;
    /* How many bytes to charge, where the size is known. */
    uint64_t bytes;
    /* Where the driver writes the address or handle that the program gets. */
    void *got;
    union {
        unsigned managed_flags;
        struct {
            size_t *pitch, width, height;
            unsigned element_bytes;
        } pitched;
        struct {
            const CUmemAllocationProp *properties;
            unsigned long long flags;
        } physical;
        struct {
            CUmemoryPool pool; /* NULL: the current pool of the stream's device */
            CUstream stream;
            bool is_per_thread; /* stream 0 means the thread's own */
        } pooled;
        struct {
            const void *descriptor;
            unsigned levels;
        } array;
        struct {
            const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor;
            uint64_t name; /* under which the session knows the memory; 0: it has none of its own */
        } external;
        struct {
            /* Returns the name under which the session knows the memory; 0: it has none. `*is_its_own`: no other
             * allocation has that name. */
            uint64_t (*name)(const struct allocation *wanted, bool *is_its_own);
            void *handle; /* CUipcMemHandle, CUmemPoolPtrExportData, or a shareable handle */
            union {
                CUmemoryPool pool;
                unsigned flags;
                CUmemAllocationHandleType type;
            };
        } import;
        struct {
            unsigned flags;
            union {
                int affinity_count;
                VdpDevice vdpau;
            };
            union {
                CUexecAffinityParam *affinity;
                CUctxCreateParams *params;
                VdpGetProcAddress *vdpau_lookup;
                CUdevResourceDesc resources;
            };
        } context;
    };
};
