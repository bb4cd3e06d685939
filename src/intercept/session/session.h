/* session.h - whether this process is in a session, and its slot in that session's ledger.
 *
 * Decided at the first context, allocation or memory query, never before:
 *
 *   GPUSLICE_SESSION       attach to the daemon at GPUSLICE_IPC_SOCK, with GPUSLICE_IPC_TOKEN
 *   GPUSLICE_MEMORY_LIMIT  (or TENSOR_FUSION_CUDA_MEM_LIMIT) a ledger of our own, for this process alone
 *   GPUSLICE_COMPUTE_LIMIT (or TENSOR_FUSION_CUDA_UP_LIMIT) the same, with a cap on GPU time
 *                          (more variables, of HAMi and vgpu.rs: foreign.h)
 *   none of these          ask the system daemon (or the one at GPUSLICE_IPC_SOCK) once whether a rule of its
 *                          sessions.conf puts this process into a session; if none does, or no daemon serves
 *                          there, every call goes straight to the driver
 *
 * A process that should be in a session but cannot attach is refused all device memory, and says so once. It tries
 * again, at most once a second. A process that has attached keeps its ledger whatever becomes of the daemon, and
 * attaches again when it sees another epoch in the ledger, or hears that the daemon does not know its slot. */
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

/* Valid once session_mode() has decided. */
const struct session_settings *session_settings(void);

enum session_mode session_mode_slow(void);

/* Whether this process is in a session. Only when it is inside may session_slot() and session_gpu() be called. */
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

/* The daemon does not know the slot that this process holds: attach again at the next session_mode(). A ledger whose
 * file has lost its name is one that no daemon finds again and writes another epoch to. Only when this process is inside. */
void session_doubt(void);

/* This process's slot. */
static inline struct ledger_slot *session_slot(void)
{
    struct private_area *area = atomic_load_explicit(&private_area, memory_order_acquire);
    return &atomic_load_explicit(&area->attachment, memory_order_acquire)->slot;
}

/* Where this process's memory on a device is charged. */
enum gpu_place {
    PLACE_NOWHERE, /* no session; or the driver cannot tell, and the call will fail or does not concern us */
    PLACE_ON_GPU,
    PLACE_FORBIDDEN, /* the session does not name the GPU, or the process could not attach */
};

/* The ledger's index of a GPU; -1: the session does not name that GPU. `ordinal` is CUDA's, or -1. */
int session_gpu(const uint8_t uuid[static 16], int ordinal);

/* What the first context on `gpu` cost: measured by the daemon, or by NVML in a process on its own; 0 when it cannot
 * be told. May take 200 ms. */
uint64_t session_context_cost(uint32_t gpu);

/* Tell the daemon that the driver took (or may have taken) memory on its own, or that memory was refused: the daemon
 * compares the ledger with the card within 100 ms. Call this after the driver has answered. Never waits; may be
 * called in any mode, and as often as wanted. */
void session_notice(enum wire_notice_kind kind);

/* Tell the daemon of a request for memory that was refused. Never waits; what is refused within 20 ms of another refusal is
 * only counted, in the ledger. */
void session_tell_refusal(const struct wire_refusal_told *refusal);

bool session_is_standalone(void);
/* Whether the session is one of simulated GPUs, which `gpuslice run` says in the environment. */
bool session_is_simulated(void);

/* Register `charge`, which is called when the daemon gave this process another slot than it had: it charges the new
 * slot for what the process holds. What threads reserve or release in the old slot meanwhile is not carried over to
 * the new one, until the process ends. */
void session_when_slot_changes(void (*charge)(struct ledger_slot *slot));

/* Changes whenever what threads remember about contexts and GPUs may have become wrong. */
extern _Atomic uint64_t session_memory;
void session_forget(void);
