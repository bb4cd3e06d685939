/* sim.h - what a process has of the simulated driver: devices it sees, contexts, streams, events.
 *
 * Handles are pointers to structs that are never given back to the C library, so that a destroyed one is told
 * from a living one by its `kind`, as the driver does by its own means.
 *
 * Data moves when a call is made, in the order of the program: copies, memsets and built-in kernels are
 * applied by the submitting thread at submission. Simulated time is what hosts wait for and events measure.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "cuda/driver.h"
#include "cuda/prototypes.h"
#include "simgpu/device/costs.h"
#include "simgpu/device/device.h"
#include "simgpu/driver/kept_handles.h"
#include "simgpu/time/timeline.h"

enum sim_kind {
    SIM_DESTROYED = 0x0dead000,
    SIM_CONTEXT = 0x51c0de01,
    SIM_STREAM = 0x51c0de02,
    SIM_EVENT = 0x51c0de03,
    SIM_MODULE = 0x51c0de04,
    SIM_FUNCTION = 0x51c0de05,
    SIM_POOL = 0x51c0de06,
    SIM_ARRAY = 0x51c0de0a,
    SIM_MIPMAP = 0x51c0de0b,
    SIM_TEXTURE = 0x51c0de0c,
    SIM_SURFACE = 0x51c0de0d,
    SIM_EXTERNAL = 0x51c0de0e,
    SIM_SEMAPHORE = 0x51c0de11,
};

struct simulator {
    atomic_bool initialised;
    unsigned device_count;         /* of those below */
    unsigned visible[DEVICE_GPUS]; /* the GPU (device.h) behind each device ordinal */
};
extern struct simulator simulator;

struct CUctx_st {
    _Atomic unsigned kind; /* SIM_CONTEXT while it is alive */
    CUdevice device;
    unsigned gpu;
    bool primary;
    unsigned flags, api_version, attach_count;
    unsigned long long id;
    atomic_int sticky; /* a CUresult: what went wrong on the device; stays until the context goes */
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
    size_t limits[CU_LIMIT_MAX];
    uint64_t charged_bytes;       /* what the context itself costs */
    _Atomic uint64_t local_bytes; /* the most that a kernel needed of local memory, a thread */
    atomic_bool ends_with_kernel; /* as of a stream, of the legacy one */
    uint64_t peers;               /* a bit for each GPU whose memory it may reach (peers.c) */
    CUcontext next;               /* all contexts of the process */

    /* Under execution_lock(gpu). */
    struct timeline_marks legacy;   /* the legacy stream's last work */
    struct timeline_marks blocking; /* that of all streams which synchronise with it */
    struct timeline_marks made;     /* of those: of streams that are no thread's own */
    struct timeline_marks all;
    LIST_HEAD(, CUstream_st) streams;
};

struct CUstream_st {
    _Atomic unsigned kind;
    CUcontext context;
    unsigned flags;
    int priority;
    unsigned long long id;
    unsigned long long thread;      /* whose own default stream it is; 0: a program made it */
    struct timeline_marks last;     /* under execution_lock() */
    atomic_bool ends_with_kernel;   /* the last that was put on it is a kernel, without a mark behind it */
    LIST_ENTRY(CUstream_st) entry;  /* of the context's */
    struct kept_handle kept;        /* once it is destroyed */
    struct capture_stream *capture; /* what is captured of it (capture.c); NULL: nothing */
};

struct CUevent_st {
    _Atomic unsigned kind;
    CUcontext context;
    unsigned flags;

    /* Under execution_lock(). */
    bool recorded, pending;
    struct timeline_marks marks; /* what it waits for */
    uint64_t recorded_ns;
    uint64_t done_ns;             /* 0 until it is known */
    LIST_ENTRY(CUevent_st) entry; /* of those pending */
    struct kept_handle kept;      /* once it is destroyed */
    struct event_place *place;    /* of an interprocess event, instead of the above; NULL: it is not one */
    struct capture_event
        *capture; /* last recorded in a stream being captured (capture.c); NULL: it was not */
};

/* CUDA_SUCCESS once cuInit has succeeded in this process (not in a parent), until its exit handler has run. */
CUresult sim_ready(void);
/* A call looks into the struct of a stream, event or context: after the exit handler that crashes. */
void sim_touch_handle(void);

/* The calling thread's current context: INVALID_CONTEXT if there is none, CONTEXT_IS_DESTROYED, or its sticky
 * error. */
CUresult context_current(CUcontext *context);
/* The same for a context handle. */
CUresult context_check(CUcontext context);
/* The context that a call's argument means, where NULL is the current one. */
CUresult context_named(CUcontext *context);
/* What a new context's settings are (context_settings.c). */
void context_settings_begin(CUcontext context);
/* Take local memory for a kernel that needs `bytes` a thread. OUT_OF_MEMORY. */
CUresult context_need_local(CUcontext context, uint64_t bytes);
/* INVALID_DEVICE unless the ordinal is a device's. */
CUresult device_check(CUdevice device);

/* Whether any of the process's contexts on `gpu` is alive; its newest. NULL if none is. */
CUcontext context_of_gpu(unsigned gpu);

/* Define an entry point and its form for a thread's own default stream. `call` is what both do; it says `per_thread`. */
#define SIM_FORMS(name, suffix, parameters, call)                                                            \
    CUresult name parameters                                                                                 \
    {                                                                                                        \
        const bool per_thread = false;                                                                       \
        return call;                                                                                         \
    }                                                                                                        \
    CUresult name##suffix parameters                                                                         \
    {                                                                                                        \
        const bool per_thread = true;                                                                        \
        return call;                                                                                         \
    }

#define SIM_TRY(call)                                                                                        \
    do {                                                                                                     \
        CUresult result_ = (call);                                                                           \
        if (result_ != CUDA_SUCCESS)                                                                         \
            return result_;                                                                                  \
    } while (0)

#define SIM_REQUIRE(condition)                                                                               \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
    } while (0)
