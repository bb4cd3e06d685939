/* device.h - the simulated GPUs that the processes of one user share.
 *
 * They live in one shared memory file, /dev/shm/fakecuda-UID-NAME. What keeps them safe from a process that
 * is stopped or killed at any instruction is that no process holds a lock there while it works:
 *
 * slot      what a process has in the file. It is owned by a POSIX record lock on the slot's own byte, so the
 *           kernel says who lives: the lock goes with the process (exit, kill or exec), and a forked child
 *           has none of it. A second lock, of an open file, stays with the process's forked children until
 *           they exit or exec: as on a card, memory stays taken, under the dead process's pid, while
 *           somebody has the device open
 * account   how many bytes of a GPU each process holds: a small table that changes as one (published.h)
 * reaping   before a process tells, refuses or lists anything, it drops what the account says of slots whose
 *           owner is gone
 *
 * The first process alive decides how many GPUs there are and how big; the others find them so. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define DEVICE_CARDS 16u    /* most cards there can be */
#define DEVICE_GPUS 128u    /* most GPUs: cards, and MIG instances of them (mig.h) */
#define DEVICE_SLOTS 1024u  /* most processes at a time */
#define DEVICE_SHARES 1024u /* most shares of a GPU */
#define DEVICE_NAME "GPU Slice Simulated GPU"

/* What the environment asks for, or what the first process made of it. */
struct device_parameters {
    unsigned card_count;  /* FAKECUDA_GPUS, 1 .. DEVICE_CARDS; default 1 */
    unsigned gpu_count;   /* cards, and behind them the MIG instances of them all (FAKECUDA_MIG) */
    unsigned profile;     /* FAKECUDA_DEVICE: which card it looks like (profile.h) */
    uint64_t total_bytes; /* FAKECUDA_TOTAL_MEM, of each card; default is the card's */
};

/* Attach this process: map the file, own a slot. Does nothing when it has one; attaches anew in a forked
 * child. Everything below needs it. Thread-safe. */
int device_attach(struct error *error);
bool device_is_attached(void);

struct device_parameters device_parameters(void);

/* What a GPU is: a card, or a MIG instance of one. */
struct device_shape {
    uint32_t card;     /* the GPU whose instance this is; of a card, itself */
    uint32_t instance; /* of a MIG instance its number on the card, from 0, and DEVICE_WHOLE of a card */
    uint32_t instance_count; /* of a card: what it is partitioned into. 0: MIG mode is off */
    uint32_t first_instance; /* of a partitioned card: its first one's GPU */
    uint32_t mig_profile;    /* of a MIG instance (mig.h) */
    uint64_t total_bytes;
};
#define DEVICE_WHOLE UINT32_MAX

/* GPU `gpu` is 0 .. gpu_count-1, the same in all processes (CUDA_VISIBLE_DEVICES does not count here). */
const struct device_shape *device_shape(unsigned gpu);
bool device_is_instance(unsigned gpu);
/* Whether a GPU reaches another one's memory: cards do, MIG instances do not. */
bool device_reaches(unsigned gpu, unsigned other);

/* A UUID derives from FAKECUDA_NAME and what the GPU is. */
void device_uuid(unsigned gpu, uint8_t uuid[static 16]);

/* "0000:01:00.0" and following: the bus number of card 0 is 1. Domain and device are 0. */
unsigned device_pci_bus(unsigned gpu);

/* Bytes that are not free: taken by living processes, after the dead were reaped, and managed memory on the GPU. */
uint64_t device_used_bytes(unsigned gpu);
/* Bytes taken with device_charge(), without reaping. */
uint64_t device_account_bytes(unsigned gpu);

struct device_process {
    pid_t pid;
    uint64_t bytes;
};

/* The living processes that hold memory on `gpu`, after the dead were reaped. Fills up to `capacity` and
 * returns how many there are. */
unsigned device_processes(unsigned gpu, struct device_process *processes, unsigned capacity);

/* Take `bytes` of the GPU's memory for this process; false if they do not fit, also after the dead were
 * reaped. Give them back with device_credit(). Thread-safe; never waits for another process. */
bool device_charge(unsigned gpu, uint64_t bytes);
void device_credit(unsigned gpu, uint64_t bytes);

/* Memory that several processes hold: counted once, until the last of them lets go or dies, and the
 * descriptors that carry it are closed. It shows with the process that has held it longest.
 *
 * A share is held while its byte of /dev/shm/fakecuda-UID-NAME.shares is locked. The lock is of an open file
 * description: the kernel drops it with the last descriptor, wherever that is, also on its way through a
 * socket. */
struct device_share {
    struct device_share *next, **link; /* all of this process */
    unsigned gpu;
    uint32_t index;
    uint64_t generation;
    uint64_t bytes;
    int token; /* the descriptor with the lock */
};

/* Make a share of `bytes` that this process holds already. NULL when there are too many shares. */
struct device_share *device_share_begin(unsigned gpu, uint64_t bytes);
/* Hold another process's share too. NULL when it is gone. */
struct device_share *device_share_join(unsigned gpu, uint32_t index, uint64_t generation);
/* Stop holding it. True if nobody else holds it: then its bytes are free, or this process's alone again with
 * `take_back`. */
bool device_share_leave(struct device_share *share, bool take_back);

/* Of what this process holds, `bytes` more (or less) are not shown for it by device_processes(). */
void device_hide(unsigned gpu, uint64_t bytes);
void device_unhide(unsigned gpu, uint64_t bytes);

/* An Xid of the GPU's card: the driver's number for what went wrong there (faults.h). For all processes to see: how
 * many there were, and the last one's number. */
void device_note_xid(unsigned gpu, unsigned number);
uint64_t device_xid_count(unsigned gpu);
unsigned device_xid(unsigned gpu);

/* The GPU's card fell off the bus (faults.h): for all processes, until none of them is left. */
void device_lose(unsigned gpu);
bool device_is_lost(unsigned gpu);

/* Say that this process hung the driver (faults.h); wait while a process, this or another, has hung it. */
void device_hang(void);
void device_wait_while_hung(void);

/* What this process holds. */
uint64_t device_own_bytes(unsigned gpu);
