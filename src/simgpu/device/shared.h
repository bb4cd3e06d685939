/* shared.h - the layout of the file that the processes on a simulated GPU share; for the files of the device and
 * those that run its timelines. */
#pragma once

#include <limits.h>

#include "base/clock.h"
#include "simgpu/device/constant_names.h"
#include "simgpu/device/device.h"
#include "simgpu/device/published.h"
#include "simgpu/time/timeline.h"

_Static_assert(DEVICE_SLOTS == TIMELINE_SLOTS, "one slot a process");

/* One process that holds a share; SHARE_NOBODY: none does, but a descriptor is on its way to one. */
struct account_share {
    uint64_t bytes;      /* of the share: counted once, however many rows it has */
    uint64_t generation; /* tells shares with the same index apart */
    uint32_t index;
    uint32_t slot;
};
#define SHARE_NOBODY UINT32_MAX
#define SHARE_ROWS 2048u

/* Who holds how much of one GPU. */
struct account {
    uint64_t used_bytes; /* the sum */
    uint32_t slot_count; /* no slot from here on holds anything of its own */
    uint32_t share_count;
    uint64_t bytes[DEVICE_SLOTS];
    struct account_share shares[SHARE_ROWS];
};

struct shared_gpu {
    published_current account_current;
    struct account accounts[DEVICE_SLOTS * 2];
    _Alignas(4096) struct timeline timeline;
};

struct shared_header {
    _Atomic uint32_t ready; /* SHARED_LAYOUT once the parameters are written */
    struct device_parameters parameters;
    struct device_shape shapes[DEVICE_GPUS];
    double constants[SIM_CONSTANTS];      /* those of scope MACHINE (constants.def) */
    _Atomic uint64_t kernel_lock_free_ns; /* when the last in the queue leaves the kernel's lock (costs.h) */
    _Atomic uint64_t xids[DEVICE_CARDS];  /* how many there were, above 16 bits of the last one's number */
    _Atomic uint64_t paged_in_bytes[DEVICE_GPUS]; /* by all, ever (paging.h) */
    _Atomic uint64_t busy_since_ns[DEVICE_GPUS];  /* since when the clock rises (RAMP_NS) */
    _Atomic uint64_t busy_until_ns[DEVICE_GPUS];
    _Atomic uint32_t lost; /* a bit for each card that is lost */
    _Atomic uint64_t
        hung; /* the slot that hung the driver, from 1, above 48 bits of its generation; 0: none */
    struct shared_slot {
        _Atomic uint64_t generation; /* counts owners; the owner raises it before it does anything else */
        _Atomic uint64_t owner;      /* its pid, below the pid namespace that it is of: shared_slot_pid() */
        _Atomic uint64_t hidden_bytes[DEVICE_GPUS]; /* device_hide() */
        _Atomic uint64_t paged_bytes[DEVICE_GPUS];  /* managed memory that it brought there (paging.h) */
        _Atomic uint32_t checkpoint_state;          /* CUprocessState (checkpoints.h) */
        _Atomic uint64_t checkpointed_bytes[DEVICE_GPUS]; /* what it held as it was checkpointed */
        /* How its checkpoints go (faults.h), how often they were tried, and whether it hangs since a peer's. */
        _Atomic uint32_t kills_at, restore_fails_at, peers, checkpoints, failed_restores, is_stuck;
    } slots[DEVICE_SLOTS];
};
#define SHARED_LAYOUT 14u

/* This process's view; valid after device_attach(). */
struct shared_view {
    struct shared_header *header;
    struct shared_gpu *gpus;
    uint32_t slot;
};
const struct shared_view *shared_view(void);

/* Whether the owner that the slot names lives. Our own is alive. */
bool shared_slot_is_alive(uint32_t slot);

/* The owner's pid in the outermost namespace that anybody has looked from: the kernel tells it to a process there, which
 * notes it for all. */
pid_t shared_slot_pid(uint32_t slot);

/* A whole copy of the account as it is now; returns its tag. */
uint64_t account_read(struct shared_gpu *gpu, struct account *copy);

/* Change an account: account_begin() returns our buffer with a copy in which `slot` has a line; account_end()
 * makes it the account. Begin again when that fails. */
struct account *account_begin(struct shared_gpu *gpu, uint32_t slot, uint64_t *seen);
bool account_end(struct shared_gpu *gpu, uint64_t seen);

/* Drop a slot's line, unless the slot has a new owner by now: its generation is then another. */
void account_drop(struct shared_gpu *gpu, uint32_t slot, uint64_t generation);
/* A forked child's locks are its own. */
void account_forget_in_child(void);

/* One thread of this process at a time changes a GPU's account. */
void device_account_lock(unsigned gpu);
void device_account_unlock(unsigned gpu);

/* What FAKECUDA_ variables ask for (settings.c); -EINVAL for what cannot be. */
int settings_read(struct device_parameters *parameters, struct device_shape shapes[static DEVICE_GPUS],
                  double constants[static SIM_CONSTANTS], struct error *error);

/* The path of the file of the simulated machine whose name has this ending. */
#define SHARED_PATH_BYTES (PATH_MAX + NAME_MAX)
const char *shared_path(const char *ending, char path[static SHARED_PATH_BYTES]);

/* Open a file of the simulated machine, and make it if it is ours to make (`create`). It is the file of the
 * user that FAKECUDA_OWNER names, for all users, or else the caller's own. A file that somebody else put in
 * its place is refused (-1, EPERM). */
int shared_open(const char *path, bool create);

/* Make the file of the shares' locks: other users' programs cannot. */
void shares_make_file(void);

/* Whether any share of any GPU is held. */
bool shares_are_held(void);

/* Take a row out, and the share with its last row unless the share's byte is held (share.c). `freed`: what the
 * share's end gives back. True if the share has ended. */
bool share_row_drop(struct account *account, unsigned gpu, uint32_t row, uint64_t *freed);
/* Drop the shares that nobody holds any more. Returns whether there were any. */
bool shares_tidy(struct account *account, unsigned gpu);
/* Close what a forked child has of its parent's. */
void shares_forget_in_child(void);
