/* unknown.S - a function for each place of unknown.c's table. It hands the first arguments to unknown_called(), takes
 * them back, perhaps changed, and jumps to the driver's function with stack and return address as the caller left them. */
#include "intercept/resolve/unknown.h"

    .text
    .hidden unknown_called
    .globl unknown_thunks
    .hidden unknown_thunks

#if defined(__x86_64__)

    .type unknown_enter, @function
    .p2align 4
unknown_enter: /* the thunk's number is in r11 */
    .cfi_startproc
    push %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbp, 0
    mov %rsp, %rbp
    .cfi_def_cfa_register %rbp
    sub $(8 * UNKNOWN_ARGUMENTS + 8 * 16), %rsp
    mov %rdi, (%rsp)
    mov %rsi, 8(%rsp)
    mov %rdx, 16(%rsp)
    mov %rcx, 24(%rsp)
    mov %r8, 32(%rsp)
    mov %r9, 40(%rsp)
    movups %xmm0, 48(%rsp)
    movups %xmm1, 64(%rsp)
    movups %xmm2, 80(%rsp)
    movups %xmm3, 96(%rsp)
    movups %xmm4, 112(%rsp)
    movups %xmm5, 128(%rsp)
    movups %xmm6, 144(%rsp)
    movups %xmm7, 160(%rsp)
    mov %r11d, %edi
    mov %rsp, %rsi
    call unknown_called
    mov %rax, %r11
    mov (%rsp), %rdi
    mov 8(%rsp), %rsi
    mov 16(%rsp), %rdx
    mov 24(%rsp), %rcx
    mov 32(%rsp), %r8
    mov 40(%rsp), %r9
    movups 48(%rsp), %xmm0
    movups 64(%rsp), %xmm1
    movups 80(%rsp), %xmm2
    movups 96(%rsp), %xmm3
    movups 112(%rsp), %xmm4
    movups 128(%rsp), %xmm5
    movups 144(%rsp), %xmm6
    movups 160(%rsp), %xmm7
    leave
    .cfi_def_cfa %rsp, 8
    .cfi_restore %rbp
    jmp *%r11
    .cfi_endproc
    .size unknown_enter, . - unknown_enter

.macro thunk number
    endbr64
    mov $\number, %r11d
    jmp unknown_enter
.endm

#elif defined(__aarch64__)

    .type unknown_enter, %function
    .p2align 4
unknown_enter: /* the thunk's number is in x17 */
    .cfi_startproc
    stp x29, x30, [sp, #-(16 + 8 * UNKNOWN_ARGUMENTS + 8 * 16)]!
    .cfi_adjust_cfa_offset 16 + 8 * UNKNOWN_ARGUMENTS + 8 * 16
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp q0, q1, [sp, #80]
    stp q2, q3, [sp, #112]
    stp q4, q5, [sp, #144]
    stp q6, q7, [sp, #176]
    mov w0, w17
    add x1, sp, #16
    bl unknown_called
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp q0, q1, [sp, #80]
    ldp q2, q3, [sp, #112]
    ldp q4, q5, [sp, #144]
    ldp q6, q7, [sp, #176]
    ldp x29, x30, [sp], #(16 + 8 * UNKNOWN_ARGUMENTS + 8 * 16)
    .cfi_adjust_cfa_offset -(16 + 8 * UNKNOWN_ARGUMENTS + 8 * 16)
    .cfi_restore x29
    .cfi_restore x30
    br x16
    .cfi_endproc
    .size unknown_enter, . - unknown_enter

.macro thunk number
    hint #34 /* bti c */
    mov w17, #\number
    b unknown_enter
.endm

#else
#error "unknown.S knows x86-64 and aarch64"
#endif

    .p2align 4
unknown_thunks:
    .cfi_startproc
    .set number, 0
    .rept UNKNOWN_MOST
    .p2align 4
    thunk number
    .set number, number + 1
    .endr
    .cfi_endproc
    .size unknown_thunks, . - unknown_thunks

    .section .note.GNU-stack, "", %progbits
