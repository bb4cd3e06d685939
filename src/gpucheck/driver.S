/* driver.S - every entry point of the driver as a function of this program, which jumps to the address that
 * driver_open() found. So checks call the driver by its own names, and the program still starts where there is no
 * driver. The caller's registers and stack are untouched. */

/* Hidden, unless the build asks for another visibility, as for a library's entry points. */
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
        hint    34 /* bti c */
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
