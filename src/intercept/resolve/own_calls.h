/* own_calls.h - calls of the driver that GPU Slice makes of its own accord, inside the program's threads.
 *
 *   struct own_calls calls;
 *   if (!own_calls_begin(&calls, context))
 *       return ...;
 *   real(cuMemPoolTrimTo)(pool, 0);
 *   own_calls_end(&calls);
 *
 * A thread may be capturing a stream, it has a current context, and the driver may call hooked functions itself. So
 * between these two no call invalidates a capture, `context` is current, and hooks know that the program does not
 * call them. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda/driver.h"

/* How deep this thread is in calls that are part of another call: of our own, or of the driver inside a hook. Hooks
 * at depth 0 are called by the program. */
extern __thread unsigned own_calls_depth;
/* Where the outermost of these calls stands on the thread's stack. */
extern __thread const void *own_calls_outermost;

/* One deeper. */
static inline void own_calls_enter(void)
{
    if (own_calls_depth++ == 0) {
        /* The place of a variable, not the frame's address: that would cost the whole hook a register. It is only
         * compared, so the compiler need not know that it outlives the variable. */
        char here;
        const void *stack = &here;
        __asm__("" : "+r"(stack));
        own_calls_outermost = stack;
    }
}

/* At a hook that `caller` called at a depth: whether the program did, and not the driver inside another hook. It does in
 * a handler of a signal, and after it has jumped out of a hook (siglongjmp). The second is seen by the stack, where it can be: then
 * the depth is 0 again. */
bool own_calls_is_program(const void *caller);

struct own_calls {
    CUstreamCaptureMode mode; /* the thread's own, to be restored */
    bool has_pushed;          /* a context that was not current */
};

/* `context`: to be current meanwhile; NULL: whichever is. False, with nothing begun, if it cannot be made current. */
bool own_calls_begin(struct own_calls *calls, CUcontext context);
void own_calls_end(struct own_calls *calls);

/* Between them, where several contexts are needed one after the other. False: the context cannot be made current. */
bool own_calls_push(CUcontext context);
void own_calls_pop(void);

/* The program captures a stream; and whether it ever did. */
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
