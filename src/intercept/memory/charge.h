/* charge.h - charging the session's ledger for what the driver takes.
 *
 * charge   bytes that this process reserved on a GPU of its session, before the driver is asked or after
 *
 * The road (road.h) takes a charge, has the driver called, and keeps the charge as a record or returns it:
 *
 *   switch (charge_take_current(&charge, bytes)) {
 *   case CHARGE_PASS:    the process is in no session, or the driver itself will refuse: call it, do no more
 *   case CHARGE_REFUSED: answer CUDA_ERROR_OUT_OF_MEMORY, or charge_refused(); the driver is not asked
 *   case CHARGE_TAKEN:   call the driver between charge_enter() and charge_leave(), and in there
 *                        charge_keep() on success, charge_return() on failure
 *   }
 *
 * No system call and no allocation on this path, but when the process attaches and when records grow. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "cuda/driver.h"
#include "intercept/memory/area.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/session/session.h"

struct charge {
    uint64_t bytes;
    CUcontext context; /* that the memory goes with: the caller's; NULL where it does not matter */
    uint32_t gpu;      /* index in the policy */
    bool is_hidden;    /* NVML does not show them for the process: charge_hide() */
    uint8_t joint;     /* not 0: charged to a joint place of the session, as of a record */
};

enum charge_answer { CHARGE_PASS, CHARGE_TAKEN, CHARGE_REFUSED };

/* What this thread has begun to change: from before the ledger or the driver is asked until both agree again
 * (ledger_move_begin()), so that nobody compares the two meanwhile. */
extern __thread struct ledger_slot *charge_moved;
void charge_end_move_slow(void);

static inline void charge_end_move(void)
{
    if (charge_moved)
        charge_end_move_slow();
}

/* Around the driver call of a hook: what the driver calls of itself in there is part of what was charged. */
static inline void charge_enter(void)
{
    own_calls_enter();
}

static inline void charge_leave(void)
{
    GS_CHECK(own_calls_depth);
    if (--own_calls_depth == 0)
        charge_end_move();
}

/* What a thread was doing when the program called a hook out of it (own_calls_is_program()): the call is one like
 * any other, and what it interrupted goes on afterwards. */
struct charge_aside {
    unsigned depth;
    struct ledger_slot *moved;
};
void charge_set_aside(struct charge_aside *aside);
void charge_take_up(const struct charge_aside *aside);

/* Whether this process may hold something that was charged, and this call is the program's own. Decides
 * nothing: a process that only frees never attaches. */
static inline bool charge_has_any(void)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    return own_calls_depth == 0 && area &&
           atomic_load_explicit(&area->attachment, memory_order_acquire); /* attach() in session.c */
}

/* Reserve `bytes` on the GPU of the current context, or of `device`. */
enum charge_answer charge_take_current(struct charge *charge, uint64_t bytes);
enum charge_answer charge_take_device(struct charge *charge, CUdevice device, uint64_t bytes);
/* Reserve what a context costs on the device's GPU. */
enum charge_answer charge_take_context(struct charge *charge, CUdevice device);

/* What to answer where linear memory was refused: CUDA_ERROR_OUT_OF_MEMORY, but where an open capture forbids
 * such calls (cuThreadExchangeStreamCaptureMode) the driver's own answer to that, which also invalidates the
 * capture. Only the driver knows whether one does: in a program that has captured, it is asked for what no
 * card has. */
CUresult charge_refused(void);

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED where an open capture forbids calls for linear memory; else CUDA_SUCCESS. */
CUresult charge_capture_forbids(void);

/* Reserve `bytes` more for a charge that was taken. False, with a line on stderr, if they do not fit. */
bool charge_more(struct charge *charge, uint64_t bytes);

/* What was taken is of a kind that NVML does not show for the process: managed memory. Once, after it was
 * taken and before charge_keep(). */
void charge_hide(struct charge *charge);

/* The driver took nothing. */
void charge_return(struct charge *charge);

/* Enter the charge in the records, with these flags beside RECORD_HIDDEN. False if there is no memory for that:
 * undo the call. */
bool charge_keep(const struct charge *charge, enum record_kind kind, uint64_t key, unsigned flags);

/* Give back what a record stands for. */
void charge_release_record(const struct record *record);

/* --- Joint memory: charge_joint.c ------------------------------------------------------------------ */

/* Reserve `bytes` on `device` for memory that another process made, once for all of the session that import
 * it under `name`: of hook_joint.c, 0: it has none, and each is charged. */
enum charge_answer charge_take_import(struct charge *charge, CUdevice device, uint64_t bytes, uint64_t name);

/* The same of what is entered already, on a GPU of the session: let the joint place of this name, joined where
 * `*joint` is 0, stand for at least `bytes`. 0 stays where there is no joint place: then nothing is reserved.
 * False if they do not fit. Says nothing. */
bool charge_reserve_import(uint32_t gpu, uint64_t bytes, uint64_t name, uint8_t *joint);

/* This process hands out what it has a record of, under this name: from now on the session is charged for it,
 * as long as any process of it holds it. False if that cannot be, or is so under another name. */
bool charge_make_joint(enum record_kind kind, uint64_t key, uint64_t name);

/* --- Parts of the above, for what is charged in steps ---------------------------------------------- */

/* Where memory would be charged; `*charge` is empty but for that. The last one is for use inside own calls. */
enum gpu_place charge_place_current(struct charge *charge);
enum gpu_place charge_place_device(struct charge *charge, CUdevice device);
enum gpu_place charge_place_inside(struct charge *charge);

/* This thread is about to reserve, or to have the driver take memory that is charged afterwards; until
 * charge_leave() or charge_return() at depth 0. charge_take_...() does it itself. Only inside a session. */
void charge_begin_move(void);

/* Reserve on a GPU of the session. Where that does not fit, ask for shortage to be relieved and try again. Says
 * nothing. */
bool charge_reserve(uint32_t gpu, uint64_t bytes);
void charge_release(uint32_t gpu, uint64_t bytes);

/* What gives back reserves of this process's own on `gpu`, for a request of `bytes` that did not fit. Returns whether
 * that was anything. Pools register themselves here. */
typedef bool charge_relief(uint32_t gpu, uint64_t bytes);
void charge_on_shortage(charge_relief *relief);
bool charge_relieve(uint32_t gpu, uint64_t bytes);

/* Say, the first time in this process, that `bytes` were refused. `is_named`: the session names the GPU `gpu`. */
void charge_say_refused(bool is_named, uint32_t gpu, uint64_t bytes);
