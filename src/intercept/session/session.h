/* session.h - whether this process is in a session, and its slot in that session's ledger.
 *
 * Decided at the first context, allocation or memory query, never before:
 *
 *   GPUSLICE_SESSION       attach to the daemon at GPUSLICE_IPC_SOCK, with GPUSLICE_IPC_TOKEN
 *   GPUSLICE_MEMORY_LIMIT  (or TENSOR_FUSION_CUDA_MEM_LIMIT) a ledger of our own, for this process alone
 *   GPUSLICE_COMPUTE_LIMIT (or TENSOR_FUSION_CUDA_UP_LIMIT) the same, with a cap on GPU time
 *                          (HAMi's and vgpu.rs's further variables: foreign.h)
 *   none of these          ask the system daemon once (or the one at GPUSLICE_IPC_SOCK) whether a rule of its
 *                          sessions.conf puts this process into a session; where none does, or nobody serves
 *                          there, the process passes straight through
 *
 * A process that should be in a session and cannot is refused all device memory, and says so once; it tries
 * again, at most once a second. One that is attached keeps its ledger whatever becomes of the daemon, and
 * attaches anew when it sees another epoch in it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "intercept/session/attachment.h"
#include "intercept/session/private.h"
#include "ledger/ledger.h"
#include "wire/wire.h"

enum session_mode {
    SESSION_UNDECIDED, /* never returned */
    SESSION_INSIDE,
    SESSION_REFUSED,
    SESSION_OUTSIDE,
};

extern atomic_bool session_outside;

/* After session_mode() has decided. */
const struct session_settings *session_settings(void);

enum session_mode session_mode_slow(void);

/* Where this process stands. When inside, session_slot() and session_gpu() may be called. */
static inline enum session_mode session_mode(void)
{
    if (atomic_load_explicit(&session_outside, memory_order_relaxed))
        return SESSION_OUTSIDE;
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    if (area) {
        struct attachment *attachment = atomic_load_explicit(&area->attachment, memory_order_acquire);
        if (attachment && ledger_epoch(attachment->slot.ledger.usage) == attachment->epoch)
            return SESSION_INSIDE;
    }
    return session_mode_slow();
}

/* This process's slot. */
static inline struct ledger_slot *session_slot(void)
{
    struct private_area *area = atomic_load_explicit(&private_area, memory_order_acquire);
    return &atomic_load_explicit(&area->attachment, memory_order_acquire)->slot;
}

/* Where this process's memory on a device is charged. */
enum gpu_place {
    PLACE_NOWHERE, /* no session, or the driver cannot tell: the call will fail, or is none of ours */
    PLACE_ON_GPU,
    PLACE_FORBIDDEN, /* the session does not name the GPU, or the process could not attach */
};

/* The ledger's index of a GPU, or -1: the session does not name it. `ordinal` is CUDA's, or -1. */
int session_gpu(const uint8_t uuid[static 16], int ordinal);

/* What a first context on `gpu` cost, by the daemon's measure or, in a process on its own, by NVML; 0 when nobody can
 * tell. May take 200 ms. */
uint64_t session_context_cost(uint32_t gpu);

/* Tell the daemon that the driver took (or may have taken) memory of its own accord, or that memory was
 * refused: it compares with the card within 100 ms. Call it after the driver has answered. Never waits; may
 * be called in any mode, as often as one likes. */
void session_notice(enum wire_notice_kind kind);

bool session_is_standalone(void);

/* The daemon gave this process another slot than it had: `charge` enters there what the process holds. What threads
 * reserve or release in the old one meanwhile is lost to the new one; it ends with the process. */
void session_when_slot_changes(void (*charge)(struct ledger_slot *slot));

/* This process has attached anew, to a daemon that may be another: `meet` is called. */
void session_when_attached_anew(void (*meet)(void));

/* Changes whenever what threads remember of contexts and GPUs may have become wrong. */
extern _Atomic uint64_t session_memory;
void session_forget(void);
