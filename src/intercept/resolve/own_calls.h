/* own_calls.h - calls to the driver that GPU Slice makes on its own, in the program's threads.
 *
 *   struct own_calls calls;
 *   if (!own_calls_begin(&calls, context))
 *       return ...;
 *   real(cuMemPoolTrimTo)(pool, 0);
 *   own_calls_end(&calls);
 *
 * The thread may be capturing a stream, and it may have a current context; and the driver may call hooked functions
 * itself. So between own_calls_begin() and own_calls_end() no call invalidates a capture, `context` is current, and
 * hooks know that the program does not call them. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda/driver.h"

/* How deep this thread is in calls that are part of another call: our own, or the driver's inside a hook. At depth 0,
 * the program calls the hook. */
extern __thread unsigned own_calls_depth;
/* Where on the thread's stack the outermost of these calls is. */
extern __thread const void *own_calls_outermost;

/* One deeper. */
static inline void own_calls_enter(void)
{
    if (own_calls_depth++ == 0) {
        /* The address of a variable, not of the frame: that would cost the whole hook a register. The address is only
         * compared, so the compiler need not know that it outlives the variable. */
        char here;
        const void *stack = &here;
        __asm__("" : "+r"(stack));
        own_calls_outermost = stack;
    }
}

/* For a hook that `caller` called at a depth above 0: whether the program called it, and not the driver inside
 * another hook. The program does so in a signal handler, and after it has jumped out of a hook (siglongjmp). The
 * stack shows the second case, where it can, and then the depth becomes 0 again. */
bool own_calls_is_program(const void *caller);

struct own_calls {
    CUstreamCaptureMode mode; /* the thread's own, to be restored */
    bool has_pushed;          /* the context was not current, and was pushed */
};

/* `context` is the context to make current; NULL keeps the current one. False, with nothing begun, if it cannot be
 * made current. */
bool own_calls_begin(struct own_calls *calls, CUcontext context);
void own_calls_end(struct own_calls *calls);

/* How captures limit what this thread may call. */
CUstreamCaptureMode own_calls_capture_mode(void);

/* Whether the context is the thread's current one. */
bool own_calls_is_current(CUcontext context);

/* Between the two, where several contexts are needed one after the other. False: the context cannot be made current. */
bool own_calls_push(CUcontext context);
void own_calls_pop(void);

/* The device of a context, or of the current one (NULL). False if there is no such context. */
bool own_calls_device(CUcontext context, CUdevice *device);

/* Whether the program ever captured a stream; and note that it does. */
extern atomic_bool own_calls_captured;

static inline void own_calls_note_capture(void)
{
    if (!atomic_load_explicit(&own_calls_captured, memory_order_relaxed))
        atomic_store_explicit(&own_calls_captured, true, memory_order_relaxed);
}

static inline bool own_calls_has_captured(void)
{
    return atomic_load_explicit(&own_calls_captured, memory_order_relaxed);
}
