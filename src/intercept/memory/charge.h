/* charge.h - what a hook does before and after it asks the driver for device memory.
 *
 *   struct charge charge;
 *   switch (charge_take_current(&charge, bytes)) {
 *   case CHARGE_PASS:    the process is in no session, or the driver itself will refuse: call it, do no more
 *   case CHARGE_REFUSED: answer CUDA_ERROR_OUT_OF_MEMORY, or charge_refused(); the driver is not asked
 *   case CHARGE_TAKEN:   call the driver between charge_enter() and charge_leave(), then
 *                        charge_keep() on success, charge_return() on failure
 *   }
 *
 * No system call and no allocation on this path, but when the process attaches and when records grow. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/session/session.h"

struct charge {
    uint64_t bytes;
    CUcontext context; /* that the memory goes with: the caller's; NULL where it does not matter */
    uint32_t gpu;      /* index in the policy */
    bool hidden;       /* NVML does not show them for the process: charge_hide() */
    uint8_t share;     /* not 0: charged to a share of the session, as of a record */
};

enum charge_answer { CHARGE_PASS, CHARGE_TAKEN, CHARGE_REFUSED };

/* How deep this thread is in hooks of ours: what the driver calls of itself is part of what was charged
 * already. */
extern __thread unsigned charge_depth;

static inline void charge_enter(void)
{
    charge_depth++;
}

/* What this thread has begun to change: from before the ledger or the driver is asked until both agree again
 * (ledger_move_begin()), so that nobody compares the two meanwhile. */
extern __thread struct ledger_slot *charge_moved;
void charge_settled_slow(void);

static inline void charge_settled(void)
{
    if (charge_moved)
        charge_settled_slow();
}

static inline void charge_leave(void)
{
    if (--charge_depth == 0)
        charge_settled();
}

/* Whether this process may hold something that was charged, and this call is the program's own. Decides
 * nothing: a process that only frees never attaches. */
bool charge_holds(void);

/* Reserve `bytes` on the GPU of the current context, or of `device`. */
enum charge_answer charge_take_current(struct charge *charge, uint64_t bytes);
enum charge_answer charge_take_device(struct charge *charge, CUdevice device, uint64_t bytes);

/* What to answer where linear memory was refused: CUDA_ERROR_OUT_OF_MEMORY, but where an open capture forbids
 * such calls (cuThreadExchangeStreamCaptureMode) the driver's own answer to that, which also invalidates the
 * capture. Only the driver knows whether one does: in a program that has captured, it is asked for what no
 * card has. */
CUresult charge_refused(void);
/* The program begins a capture. */
void charge_capturing(void);

/* Reserve `bytes` on `device` for memory that another process made, once for all of the session that import
 * it under `name`: of hook_joint.c, 0: it has none, and each is charged. */
enum charge_answer charge_take_import(struct charge *charge, CUdevice device, uint64_t bytes, uint64_t name);

/* The same of what is entered already, on a GPU of the session: have the share of this name, joined where
 * `*share` is 0, stand for at least `bytes`. 0 stays where there is no share: then nothing is reserved. False
 * if they do not fit. Says nothing. */
bool charge_reserve_import(uint32_t gpu, uint64_t bytes, uint64_t name, uint8_t *share);

/* This process hands out what it has a record of, under this name: from now on the session is charged for it,
 * as long as any process of it holds it. False if that cannot be, or is so under another name. */
bool charge_make_joint(enum record_kind kind, uint64_t key, uint64_t name);

/* Reserve `bytes` more for a charge that was taken. False, with a line on stderr, if they do not fit. */
bool charge_more(struct charge *charge, uint64_t bytes);

/* What was taken is of a kind that NVML does not show for the process: managed memory. Once, after it was
 * taken and before charge_keep(). */
void charge_hide(struct charge *charge);

/* The driver took less than what was reserved, or nothing. */
void charge_less(struct charge *charge, uint64_t bytes);
void charge_return(struct charge *charge);

/* Enter the charge in the records. False if there is no memory for that: undo the call. */
bool charge_keep(const struct charge *charge, enum record_kind kind, uint64_t key);

/* Take a record out before the driver is asked to free what it stands for; after that give its bytes back, or
 * put it back. charge_drop() is false when there is none: call the driver, do no more. */
bool charge_drop(enum record_kind kind, uint64_t key, struct record *taken);
void charge_dropped(const struct record *taken, CUresult result);

/* --- Parts of the above, for those whose charges are no plain pointers ----------------------------- */

/* Where memory would be charged; `*charge` is empty but for that. */
enum charge_place {
    CHARGE_NOWHERE, /* no session, or the driver cannot tell: the call will fail, or is none of ours */
    CHARGE_ON_GPU,
    CHARGE_FORBIDDEN, /* the session does not name the GPU, or the process could not attach */
};
enum charge_place charge_place_current(struct charge *charge);
enum charge_place charge_place_device(struct charge *charge, CUdevice device);

/* This thread is about to reserve, or to have the driver take memory that is charged afterwards; until
 * charge_leave(), charge_return() or charge_dropped(). charge_take_...() and charge_drop() do it themselves.
 * Only inside. */
void charge_moving(void);

/* Reserve on a GPU of the session, trimming this process's own pools where that helps. Says nothing. */
bool charge_reserve(uint32_t gpu, uint64_t bytes);
void charge_release(uint32_t gpu, uint64_t bytes);
/* Give back what a record stands for. */
void charge_release_record(const struct record *record);

/* Say, the first time in this process, that `bytes` were refused. `named`: the session names the GPU `gpu`.
 */
void charge_say_refused(bool named, uint32_t gpu, uint64_t bytes);
