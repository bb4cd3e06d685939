/* forwards.c - runtime calls that are a driver call with the same arguments (rows: forwards.def). */
#include "simcudart/simcudart.h"

#define NEED_DRIVER runtime_need_driver
#define NEED_CONTEXT runtime_need_context

#define CALL(needs, target, types, arguments)                                                                \
    cudaError_t error = NEED_##needs();                                                                      \
    if (error == cudaSuccess)                                                                                \
        error = runtime_translate(((CUresult(*) types)driver_entry(CUDA_ID_##target))arguments);             \
    return runtime_answer(error);

#define FORWARD0(needs, symbol, target)                                                                      \
    cudaError_t symbol(void)                                                                                 \
    {                                                                                                        \
        CALL(needs, target, (void), ())                                                                      \
    }
#define FORWARD1(needs, symbol, target, A)                                                                   \
    cudaError_t symbol(A a)                                                                                  \
    {                                                                                                        \
        CALL(needs, target, (A), (a))                                                                        \
    }
#define FORWARD2(needs, symbol, target, A, B)                                                                \
    cudaError_t symbol(A a, B b)                                                                             \
    {                                                                                                        \
        CALL(needs, target, (A, B), (a, b))                                                                  \
    }
#define FORWARD3(needs, symbol, target, A, B, C)                                                             \
    cudaError_t symbol(A a, B b, C c)                                                                        \
    {                                                                                                        \
        CALL(needs, target, (A, B, C), (a, b, c))                                                            \
    }
#define FORWARD4(needs, symbol, target, A, B, C, D)                                                          \
    cudaError_t symbol(A a, B b, C c, D d)                                                                   \
    {                                                                                                        \
        CALL(needs, target, (A, B, C, D), (a, b, c, d))                                                      \
    }
#define FORWARD5(needs, symbol, target, A, B, C, D, E)                                                       \
    cudaError_t symbol(A a, B b, C c, D d, E e)                                                              \
    {                                                                                                        \
        CALL(needs, target, (A, B, C, D, E), (a, b, c, d, e))                                                \
    }
#define FORWARD6(needs, symbol, target, A, B, C, D, E, F)                                                    \
    cudaError_t symbol(A a, B b, C c, D d, E e, F f)                                                         \
    {                                                                                                        \
        CALL(needs, target, (A, B, C, D, E, F), (a, b, c, d, e, f))                                          \
    }
#define FORWARD7(needs, symbol, target, A, B, C, D, E, F, G)                                                 \
    cudaError_t symbol(A a, B b, C c, D d, E e, F f, G g)                                                    \
    {                                                                                                        \
        CALL(needs, target, (A, B, C, D, E, F, G), (a, b, c, d, e, f, g))                                    \
    }
#define FORWARD8(needs, symbol, target, A, B, C, D, E, F, G, H)                                              \
    cudaError_t symbol(A a, B b, C c, D d, E e, F f, G g, H h)                                               \
    {                                                                                                        \
        CALL(needs, target, (A, B, C, D, E, F, G, H), (a, b, c, d, e, f, g, h))                              \
    }
#define FORWARD9(needs, symbol, target, A, B, C, D, E, F, G, H, I)                                           \
    cudaError_t symbol(A a, B b, C c, D d, E e, F f, G g, H h, I i)                                          \
    {                                                                                                        \
        CALL(needs, target, (A, B, C, D, E, F, G, H, I), (a, b, c, d, e, f, g, h, i))                        \
    }
#define FORWARD_FORMS1(needs, symbol, target, A)                                                             \
    FORWARD1(needs, symbol, target, A)                                                                       \
    FORWARD1(needs, symbol##_ptsz, target##_ptsz, A)
#define FORWARD_FORMS2(needs, symbol, target, A, B)                                                          \
    FORWARD2(needs, symbol, target, A, B)                                                                    \
    FORWARD2(needs, symbol##_ptsz, target##_ptsz, A, B)
#define FORWARD_FORMS3(needs, symbol, target, A, B, C)                                                       \
    FORWARD3(needs, symbol, target, A, B, C)                                                                 \
    FORWARD3(needs, symbol##_ptsz, target##_ptsz, A, B, C)
#define FORWARD_FORMS4(needs, symbol, target, A, B, C, D)                                                    \
    FORWARD4(needs, symbol, target, A, B, C, D)                                                              \
    FORWARD4(needs, symbol##_ptsz, target##_ptsz, A, B, C, D)
#define FORWARD_FORMS5(needs, symbol, target, A, B, C, D, E)                                                 \
    FORWARD5(needs, symbol, target, A, B, C, D, E)                                                           \
    FORWARD5(needs, symbol##_ptsz, target##_ptsz, A, B, C, D, E)
#define FORWARD_FORMS6(needs, symbol, target, A, B, C, D, E, F)                                              \
    FORWARD6(needs, symbol, target, A, B, C, D, E, F)                                                        \
    FORWARD6(needs, symbol##_ptsz, target##_ptsz, A, B, C, D, E, F)
#define FORWARD_FORMS7(needs, symbol, target, A, B, C, D, E, F, G)                                           \
    FORWARD7(needs, symbol, target, A, B, C, D, E, F, G)                                                     \
    FORWARD7(needs, symbol##_ptsz, target##_ptsz, A, B, C, D, E, F, G)
#define FORWARD_FORMS8(needs, symbol, target, A, B, C, D, E, F, G, H)                                        \
    FORWARD8(needs, symbol, target, A, B, C, D, E, F, G, H)                                                  \
    FORWARD8(needs, symbol##_ptsz, target##_ptsz, A, B, C, D, E, F, G, H)
#define FORWARD_FORMS9(needs, symbol, target, A, B, C, D, E, F, G, H, I)                                     \
    FORWARD9(needs, symbol, target, A, B, C, D, E, F, G, H, I)                                               \
    FORWARD9(needs, symbol##_ptsz, target##_ptsz, A, B, C, D, E, F, G, H, I)

#include "simcudart/forwards.def"
