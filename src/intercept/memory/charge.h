/* charge.h - charging the session's ledger for what the driver takes.
 *
 * charge   bytes that this process reserved on a GPU of its session, before the driver is asked or after
 *
 * The road (road.h) takes a charge, has the driver called, and then keeps the charge as a record or returns it:
 *
 *   switch (charge_take_current(&charge, bytes)) {
 *   case CHARGE_PASS:    the process is in no session, or the driver itself will refuse: call it, and do nothing else
 *   case CHARGE_REFUSED: answer CUDA_ERROR_OUT_OF_MEMORY, or charge_refused(); do not ask the driver
 *   case CHARGE_TAKEN:   call the driver between charge_enter() and charge_leave(). In there call
 *                        charge_keep() on success, charge_return() on failure
 *   }
 *
 * This path makes no system call and allocates nothing, except when the process attaches and when records grow. */
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
    uint64_t asked_bytes; /* of these, where the driver rounds up what a program asks for; else 0 */
    CUcontext context; /* the caller's context, which the memory goes with; NULL where that does not matter */
    uint32_t gpu;      /* index in the policy */
    bool is_hidden;    /* NVML does not show the bytes for the process: charge_hide() */
    uint8_t joint;     /* not 0: charged to a joint place of the session, as in a record */
};

enum charge_answer { CHARGE_PASS, CHARGE_TAKEN, CHARGE_REFUSED };

/* The slot that this thread is changing, from before it asks the ledger or the driver until both agree again
 * (ledger_move_begin()), so that nobody compares the two meanwhile. NULL: none. */
extern __thread struct ledger_slot *charge_moved;
void charge_end_move_slow(void);

static inline void charge_end_move(void)
{
    if (charge_moved)
        charge_end_move_slow();
}

/* Around the driver call of a hook: what the driver itself calls in there is part of what was charged. */
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

/* When the program calls a hook from inside another hook (own_calls_is_program()), these put aside what the thread
 * was doing, so that the call is like any other, and take it up again afterwards. */
struct charge_aside {
    unsigned depth;
    struct ledger_slot *moved;
};
void charge_set_aside(struct charge_aside *aside);
void charge_take_up(const struct charge_aside *aside);

/* Whether this process may hold something that was charged, and the program itself made this call. Does not attach: a
 * process that only frees never does. */
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

/* What to answer where linear memory was refused: CUDA_ERROR_OUT_OF_MEMORY. If an open capture forbids such calls
 * (cuThreadExchangeStreamCaptureMode), it is the driver's answer to that, which also invalidates the capture: where
 * one does, as far as we know, the driver is asked for more than any card has. */
CUresult charge_refused(void);

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED where an open capture forbids calls for linear memory; else CUDA_SUCCESS. */
CUresult charge_capture_forbids(void);

/* Reserve `bytes` more for a charge that was taken. False, with a line on stderr, if they do not fit. */
bool charge_more(struct charge *charge, uint64_t bytes);

/* Say that NVML does not show the charged memory for the process, since it is managed memory. Once, after the charge
 * was taken and before charge_keep(). */
void charge_hide(struct charge *charge);

/* The driver took nothing. */
void charge_return(struct charge *charge);

/* Enter the charge in the records, with `flags` and RECORD_HIDDEN if it is hidden. False without memory for that:
 * undo the driver's call. */
bool charge_keep(const struct charge *charge, enum record_kind kind, uint64_t key, unsigned flags);

/* Give back what a record was charged. What a descriptor may keep (RECORD_SHARED) counts in the session until the card shows it
 * gone. Without a daemon it does not count any more, since nothing compares with the card. */
void charge_release_record(const struct record *record);

/* --- Joint memory: charge_joint.c ------------------------------------------------------------------ */

/* Reserve `bytes` on `device` for memory that another process made, once for all processes of the session that import
 * it under `name` (hook_joint.c). `name` 0: it has none, and each import is charged by itself. */
enum charge_answer charge_take_import(struct charge *charge, CUdevice device, uint64_t bytes, uint64_t name);

/* The same before the driver is asked, on the current GPU: reserve what the joint place of this name lacks of `bytes`, and
 * join it: `*joint`; -1: there is none. If the driver then gives the memory, charge_settle_import() moves the charge to the
 * place; if not, charge_return_import() takes it back, and the place has what it had. */
enum charge_answer charge_ask_import(struct charge *charge, uint64_t bytes, uint64_t name, int *joint);
void charge_settle_import(struct charge *charge, uint64_t bytes, int joint);
void charge_return_import(struct charge *charge, int joint);

/* The same for memory on a GPU of the session that is entered already: raise the joint place of this name to at least
 * `bytes`. If `*joint` is 0, join the place first; it stays 0 if there is no joint place, and then nothing is
 * reserved. False if the bytes do not fit. Prints nothing. */
bool charge_reserve_import(uint32_t gpu, uint64_t bytes, uint64_t name, uint8_t *joint);

/* This process has exported, under `name`, the memory that this record stands for: from now on the session is charged
 * for it, as long as any of its processes holds it. False if that is not possible, or if it is joint memory under
 * another name. */
bool charge_make_joint(enum record_kind kind, uint64_t key, uint64_t name);

/* --- Parts of the above, for what is charged in steps ---------------------------------------------- */

/* Where memory would be charged. `*charge` is empty but for its GPU and context. The last function is for use inside
 * own calls. */
enum gpu_place charge_place_current(struct charge *charge);
enum gpu_place charge_place_device(struct charge *charge, CUdevice device);
enum gpu_place charge_place_inside(struct charge *charge);
/* The UUID that the driver gives a device. False: there is no such device. */
bool charge_device_uuid(CUdevice device, CUuuid *uuid);

/* This thread is about to reserve, or to have the driver take memory that is charged afterwards. It ends with
 * charge_leave() or charge_return() at depth 0. charge_take_...() calls it. Only inside a session. */
void charge_begin_move(void);

/* Reserve `bytes` on a GPU of the session. If they do not fit, have the shortage relieved (charge_on_shortage()) and
 * try again. Prints nothing. */
bool charge_reserve(uint32_t gpu, uint64_t bytes);
/* Only that: reserve `bytes` once what this process has let go of is seen to be gone. Waits some seconds at most. */
bool charge_reserve_once_seen_gone(uint32_t gpu, uint64_t bytes);
/* Before `bytes` are released that other processes, or a descriptor, may keep: they count until the card shows them gone. */
void charge_let_go(uint32_t gpu, uint64_t bytes);
void charge_release(uint32_t gpu, uint64_t bytes);

/* A function that frees reserves of this process on `gpu` for a request of `bytes` that did not fit. Returns whether
 * it freed any. Pools register theirs here. */
typedef bool charge_relief(uint32_t gpu, uint64_t bytes);
void charge_on_shortage(charge_relief *relief);
bool charge_relieve(uint32_t gpu, uint64_t bytes);
