/* old_start.S - crt1.o's _start as it was before glibc 2.34, for programs that must run there too. It calls the old
 * version of __libc_start_main, which newer glibcs still have. It runs no constructors, so it is for programs that
 * have none. */

#if defined(__x86_64__)

    .symver __libc_start_main, __libc_start_main@GLIBC_2.2.5
    .text
    .globl _start
    .type _start, @function
_start:
    .cfi_startproc
    .cfi_undefined rip
    endbr64
    xor %ebp, %ebp
    mov %rdx, %r9 /* the loader's function for exit */
    pop %rsi
    mov %rsp, %rdx
    and $-16, %rsp
    push %rax
    push %rsp
    xor %r8d, %r8d
    xor %ecx, %ecx
    lea main(%rip), %rdi
    call *__libc_start_main@GOTPCREL(%rip)
    hlt
    .cfi_endproc
    .size _start, . - _start

#elif defined(__aarch64__)

    .symver __libc_start_main, __libc_start_main@GLIBC_2.17
    .text
    .globl _start
    .type _start, %function
_start:
    .cfi_startproc
    .cfi_undefined x30
    hint #34 /* bti c */
    mov x29, #0
    mov x30, #0
    mov x5, x0 /* the loader's function for exit */
    ldr x1, [sp]
    add x2, sp, #8
    mov x6, sp
    adrp x0, main
    add x0, x0, #:lo12:main
    mov x3, #0
    mov x4, #0
    bl __libc_start_main
    brk #0
    .cfi_endproc
    .size _start, . - _start

#else
#error "old_start.S knows x86-64 and aarch64"
#endif

    .section .note.GNU-stack, "", %progbits
