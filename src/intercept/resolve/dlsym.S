/* dlsym.S - our dlsym and dlvsym.
 *
 * It jumps to the real one for a name that is neither cu[A-Z]... nor nvml[A-Z]..., and for either pseudo-handle
 * (RTLD_DEFAULT 0, RTLD_NEXT -1): stack and arguments are the caller's, so glibc sees the caller's return address. All
 * other calls jump to resolve_dlsym() in C, which then reads the same return address as its own. */

#if defined(__x86_64__)

/* handle rdi, name rsi, version rdx */
.macro resolver symbol, real, chosen, first
    .globl \symbol
    .type \symbol, @function
    .p2align 4
\symbol:
    .cfi_startproc
    endbr64
    lea 1(%rdi), %rax
    cmp $1, %rax
    jbe 9f
    movzbl (%rsi), %eax
    cmp $'c', %al
    je 1f
    cmp $'n', %al
    jne 9f
    cmpb $'v', 1(%rsi)
    jne 9f
    cmpb $'m', 2(%rsi)
    jne 9f
    cmpb $'l', 3(%rsi)
    jne 9f
    movzbl 4(%rsi), %eax
    jmp 2f
1:  cmpb $'u', 1(%rsi)
    jne 9f
    movzbl 2(%rsi), %eax
2:  sub $'A', %eax
    cmp $('Z' - 'A'), %eax
    jbe \chosen
9:  jmp *\real(%rip)
    .cfi_endproc
    .size \symbol, . - \symbol

    /* What \real holds until it has been found. */
    .globl \first
    .hidden \first
    .type \first, @function
    .p2align 4
\first:
    .cfi_startproc
    endbr64
    push %rdi
    .cfi_adjust_cfa_offset 8
    push %rsi
    .cfi_adjust_cfa_offset 8
    push %rdx
    .cfi_adjust_cfa_offset 8
    call resolve_find_dlsym
    pop %rdx
    .cfi_adjust_cfa_offset -8
    pop %rsi
    .cfi_adjust_cfa_offset -8
    pop %rdi
    .cfi_adjust_cfa_offset -8
    jmp *\real(%rip)
    .cfi_endproc
    .size \first, . - \first
.endm

#elif defined(__aarch64__)

/* handle x0, name x1, version x2; x16 and x17 are free between functions */
.macro resolver symbol, real, chosen, first
    .globl \symbol
    .type \symbol, %function
    .p2align 4
\symbol:
    .cfi_startproc
    hint #34 /* bti c */
    add x16, x0, #1
    cmp x16, #1
    b.ls 9f
    ldrb w16, [x1]
    cmp w16, #'c'
    b.eq 1f
    cmp w16, #'n'
    b.ne 9f
    ldrb w16, [x1, #1]
    cmp w16, #'v'
    b.ne 9f
    ldrb w16, [x1, #2]
    cmp w16, #'m'
    b.ne 9f
    ldrb w16, [x1, #3]
    cmp w16, #'l'
    b.ne 9f
    ldrb w16, [x1, #4]
    b 2f
1:  ldrb w16, [x1, #1]
    cmp w16, #'u'
    b.ne 9f
    ldrb w16, [x1, #2]
2:  sub w16, w16, #'A'
    cmp w16, #('Z' - 'A')
    b.hi 9f
    b \chosen
9:  adrp x16, \real
    ldr x16, [x16, #:lo12:\real]
    br x16
    .cfi_endproc
    .size \symbol, . - \symbol

    .globl \first
    .hidden \first
    .type \first, %function
    .p2align 4
\first:
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, #-48]!
    .cfi_adjust_cfa_offset 48
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    bl resolve_find_dlsym
    ldr x2, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #48
    .cfi_adjust_cfa_offset -48
    .cfi_restore x29
    .cfi_restore x30
    adrp x16, \real
    ldr x16, [x16, #:lo12:\real]
    br x16
    .cfi_endproc
    .size \first, . - \first
.endm

#else
#error "dlsym.S knows x86-64 and aarch64"
#endif

    .hidden resolve_find_dlsym
    .hidden resolve_real_dlsym
    .hidden resolve_real_dlvsym
    .hidden resolve_dlsym
    .hidden resolve_dlvsym

    .text
    resolver dlsym, resolve_real_dlsym, resolve_dlsym, resolve_first_dlsym
    resolver dlvsym, resolve_real_dlvsym, resolve_dlvsym, resolve_first_dlvsym

    .section .note.GNU-stack, "", %progbits
