/* charge.h - what a hook does before and after it asks the driver for device memory.
 *
 *   struct charge charge;
 *   switch (charge_take_current(&charge, bytes)) {
 *   case CHARGE_PASS:    the process is in no session, or the driver itself will refuse: call it, do no more
 *   case CHARGE_REFUSED: answer CUDA_ERROR_OUT_OF_MEMORY; the driver is not asked
 *   case CHARGE_TAKEN:   call the driver between charge_enter() and charge_leave(), then
 *                        charge_keep() on success, charge_return() on failure
 *   }
 *
 * No system call and no allocation on this path, but when the process attaches and when records grow. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "intercept/session.h"

struct charge {
    uint64_t bytes;
    CUcontext context; /* that the memory goes with: the caller's; NULL where it does not matter */
    uint32_t gpu;      /* index in the policy */
};

enum charge_answer { CHARGE_PASS, CHARGE_TAKEN, CHARGE_REFUSED };

/* How deep this thread is in hooks of ours: what the driver calls of itself is part of what was charged
 * already. */
extern __thread unsigned charge_depth;

static inline void charge_enter(void)
{
    charge_depth++;
}

static inline void charge_leave(void)
{
    charge_depth--;
}

/* Whether this process may hold something that was charged, and this call is the program's own. Decides
 * nothing: a process that only frees never attaches. */
bool charge_holds(void);

/* Reserve `bytes` on the GPU of the current context, or of `device`. */
enum charge_answer charge_take_current(struct charge *charge, uint64_t bytes);
enum charge_answer charge_take_device(struct charge *charge, CUdevice device, uint64_t bytes);

/* Reserve `bytes` more for a charge that was taken. False, with a line on stderr, if they do not fit. */
bool charge_more(struct charge *charge, uint64_t bytes);

/* The driver took less than what was reserved, or nothing. */
void charge_less(struct charge *charge, uint64_t bytes);
void charge_return(struct charge *charge);

/* Enter the charge in the records. False if there is no memory for that: undo the call. */
bool charge_keep(const struct charge *charge, enum record_kind kind, uint64_t key);

/* Take a record out before the driver is asked to free what it stands for; after that give its bytes back, or
 * put it back. charge_drop() is false when there is none: call the driver, do no more. */
bool charge_drop(enum record_kind kind, uint64_t key, struct record *taken);
void charge_dropped(const struct record *taken, CUresult result);

/* --- Parts of the above, for those whose charges are no plain pointers ---------------------------------- */

/* Where memory would be charged. */
enum charge_place {
    CHARGE_NOWHERE, /* no session, or the driver cannot tell: the call will fail, or is none of ours */
    CHARGE_ON_GPU,
    CHARGE_FORBIDDEN, /* the session does not name the GPU, or the process could not attach */
};
enum charge_place charge_place_current(struct charge *charge);
enum charge_place charge_place_device(struct charge *charge, CUdevice device);

/* Reserve on a GPU of the session, trimming this process's own pools where that helps. Says nothing. */
bool charge_reserve(uint32_t gpu, uint64_t bytes);
void charge_release(uint32_t gpu, uint64_t bytes);

/* Say, the first time in this process, that `bytes` were refused. `named`: the session names the GPU `gpu`.
 */
void charge_say_refused(bool named, uint32_t gpu, uint64_t bytes);
