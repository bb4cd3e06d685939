/* driver.S - every entry point of the driver as a function of this program that jumps to where driver_open() found it, so
 * that checks call the driver by its own names and yet start where there is none. Callers' registers and stack stay as
 * they are. */

/* Of this program alone, unless it is said that they are a library's. */
#ifndef ENTRY_POINT_VISIBILITY
#define ENTRY_POINT_VISIBILITY .hidden
#endif

        .text
        .set    driver_id, 0

        .macro  entry_point symbol
        .balign 16
        .globl  \symbol
        ENTRY_POINT_VISIBILITY \symbol
        .type   \symbol, %function
\symbol:
#if defined(__x86_64__)
        endbr64
        jmp     *(driver_functions + driver_id * 8)(%rip)
#elif defined(__aarch64__)
        hint    34 // bti c
        adrp    x16, driver_functions + driver_id * 8
        ldr     x16, [x16, :lo12:driver_functions + driver_id * 8]
        br      x16
#else
#error "what a jump through a table is on this machine"
#endif
        .size   \symbol, . - \symbol
        .set    driver_id, driver_id + 1
        .endm

#define CUDA_ENTRY(symbol, name, since, stream, class) entry_point symbol
#include "cuda/entry_points.def"

        .section .note.GNU-stack, "", %progbits
