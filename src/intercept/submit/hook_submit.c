/* hook_submit.c - hooks that put the gate in front of every call that gives the GPU work, one for each row of submit.def. */
#include "cuda/driver_more.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/peer_copies.h"
#include "intercept/submit/synchronous.h"

#define PARAMETERS_1(A) A a1
#define PARAMETERS_2(A, B) A a1, B a2
#define PARAMETERS_3(A, B, C) A a1, B a2, C a3
#define PARAMETERS_4(A, B, C, D) A a1, B a2, C a3, D a4
#define PARAMETERS_5(A, B, C, D, E) A a1, B a2, C a3, D a4, E a5
#define PARAMETERS_6(A, B, C, D, E, F) A a1, B a2, C a3, D a4, E a5, F a6
#define PARAMETERS_7(A, B, C, D, E, F, G) PARAMETERS_6(A, B, C, D, E, F), G a7
#define PARAMETERS_8(A, B, C, D, E, F, G, H) PARAMETERS_7(A, B, C, D, E, F, G), H a8
#define PARAMETERS_9(A, B, C, D, E, F, G, H, I) PARAMETERS_8(A, B, C, D, E, F, G, H), I a9
#define PARAMETERS_10(A, B, C, D, E, F, G, H, I, J) PARAMETERS_9(A, B, C, D, E, F, G, H, I), J a10
#define PARAMETERS_11(A, B, C, D, E, F, G, H, I, J, K) PARAMETERS_10(A, B, C, D, E, F, G, H, I, J), K a11
#define ARGUMENTS_1 a1
#define ARGUMENTS_2 a1, a2
#define ARGUMENTS_3 a1, a2, a3
#define ARGUMENTS_4 a1, a2, a3, a4
#define ARGUMENTS_5 a1, a2, a3, a4, a5
#define ARGUMENTS_6 a1, a2, a3, a4, a5, a6
#define ARGUMENTS_7 ARGUMENTS_6, a7
#define ARGUMENTS_8 ARGUMENTS_7, a8
#define ARGUMENTS_9 ARGUMENTS_8, a9
#define ARGUMENTS_10 ARGUMENTS_9, a10
#define ARGUMENTS_11 ARGUMENTS_10, a11
#define COUNT(...) COUNT_OF(__VA_ARGS__, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define COUNT_OF(A, B, C, D, E, F, G, H, I, J, K, n, ...) n
#define JOIN(a, b) JOINED(a, b)
#define JOINED(a, b) a##b

/* The stream to which the work goes, by the row's word. A list of launches counts on the stream of its first launch. */
#define STREAM_AT(n) a##n
#define STREAM_NONE NULL
#define STREAM_CONFIG (a1 ? a1->hStream : NULL)
#define STREAM_LIST (a1 && a2 ? a1->hStream : NULL)
#define STREAM_POINTED (a3 ? *a3 : NULL)
#define DEFAULT_LEGACY CU_STREAM_LEGACY
#define DEFAULT_PER_THREAD CU_STREAM_PER_THREAD

/* Whether the kernel may begin before the work before it in its stream has ended (CUDA programming guide, "Programmatic Dependent
 * Launch and Synchronization"), by the row's word for the stream. */
#define OVERLAPS_AT(n) false
#define OVERLAPS_NONE false
#define OVERLAPS_CONFIG overlaps(a1)
#define OVERLAPS_LIST false

static inline bool overlaps(const CUlaunchConfig *config)
{
    bool is_asked = false;
    for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            is_asked = config->attrs[i].value.programmaticStreamSerializationAllowed;
    return is_asked;
}

#define FUNCTION_ARGUMENT(n) a##n
#define FUNCTION_FIRST (a1 && a2 ? a1->function : NULL)

/* Copies and memsets without a stream are the synchronous ones. */
#define WAITS_AT(n) false
#define WAITS_NONE true
#define WAITS_CONFIG false
#define WAITS_LIST false
#define WAITS_POINTED false

static inline CUresult ended(bool waits, CUstream stream, CUresult result)
{
    return waits && synchronous_is_in_use() ? synchronous_end(stream, result) : result;
}

#define PASSES(symbol, form, stream, waits, call, enters, leave, again, ...)                                 \
    CUresult symbol(JOIN(PARAMETERS_, COUNT(__VA_ARGS__))(__VA_ARGS__))                                      \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        struct gate *gate = gate_of();                                                                       \
        if (!gate)                                                                                           \
            return ended(waits, DEFAULT_##form, call);                                                       \
        CUstream named = STREAM_##stream, to = named ? named : DEFAULT_##form;                               \
        CUresult result;                                                                                     \
        unsigned attempt = 0;                                                                                \
        do {                                                                                                 \
            if (__builtin_expect(!(enters), false))                                                          \
                return CUDA_ERROR_OUT_OF_MEMORY;                                                             \
            result = call;                                                                                   \
            leave;                                                                                           \
        } while (again(result, to, attempt++));                                                              \
        return ended(waits, to, result);                                                                     \
    }
#define PLAINLY(symbol, ...) real(symbol)(JOIN(ARGUMENTS_, COUNT(__VA_ARGS__)))
#define ONCE(result, to, attempt) ((void)(attempt), false)
/* The driver loads code inside the first launch of it, and makes room for what its threads have of their own: on a full card
 * such a launch fails, and may be tried again. */
#define IF_FULL(result, to, attempt)                                                                         \
    (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, false) && gate_wait_for_room(to, attempt))
/* How each kind of work passes the gate. */
#define ENTER_SUBMITS(gate, to) gate_enter(gate, to)
#define ENTER_COPIES_SYNC(gate, to) gate_enter_sync_copy(gate, to)
#define ENTER_COPIES_ASYNC(gate, to) gate_enter_async_copy(gate, to)
#define LEAVE_SUBMITS(gate, to) gate_leave(gate, to)
#define LEAVE_COPIES_SYNC(gate, to) gate_leave(gate, to)
#define LEAVE_COPIES_ASYNC(gate, to) gate_leave_async_copy(gate, to)
#define PASSES_AS(kind, call, symbol, form, stream, ...)                                                     \
    PASSES(symbol, form, stream, WAITS_##stream, call, (ENTER_##kind(gate, to), true),                       \
           LEAVE_##kind(gate, to), ONCE, __VA_ARGS__)
#define SUBMITS(symbol, form, stream, ...)                                                                   \
    PASSES_AS(SUBMITS, PLAINLY(symbol, __VA_ARGS__), symbol, form, stream, __VA_ARGS__)
#define COPIES_SYNC(symbol, form, stream, ...)                                                               \
    PASSES_AS(COPIES_SYNC, PLAINLY(symbol, __VA_ARGS__), symbol, form, stream, __VA_ARGS__)
#define COPIES_ASYNC(symbol, form, stream, ...)                                                              \
    PASSES_AS(COPIES_ASYNC, PLAINLY(symbol, __VA_ARGS__), symbol, form, stream, __VA_ARGS__)
#define REACHES(symbol, form, stream, kind, ...)                                                             \
    PASSES_AS(kind,                                                                                          \
              peer_copies_are_possible() ? peer_copies_##symbol(JOIN(ARGUMENTS_, COUNT(__VA_ARGS__)))        \
                                         : PLAINLY(symbol, __VA_ARGS__),                                     \
              symbol, form, stream, __VA_ARGS__)
#define LAUNCHES(symbol, form, stream, function, ...)                                                        \
    PASSES(symbol, form, stream, false, PLAINLY(symbol, __VA_ARGS__),                                        \
           gate_enter_launch(gate, to, FUNCTION_##function, OVERLAPS_##stream),                              \
           gate_leave_launch(gate, to, OVERLAPS_##stream), IF_FULL, __VA_ARGS__)
#include "intercept/submit/submit.def"
