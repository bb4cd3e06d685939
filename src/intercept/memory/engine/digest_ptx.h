/* digest_ptx.h - the kernel that tells whether memory has changed (clean.h). The simulated GPU computes the same
 * (simgpu/code/kernels.c); the two change together.
 *
 * For each 64-bit word w at place i: out[0] += mix(w ^ i * K1), out[1] += mix(w + i * K2 + C), where
 * mix(x) = x ^ x >> 32, times M1, ^ >> 29, times M2, ^ >> 32. Sums are modulo 2^64, in any order. */
#pragma once

#define DIGEST_KERNEL "gpuslice_digest_u64"

#define DIGEST_MIX                                                                                           \
    "    shr.u64 %d9, %d8, 32;\n"                                                                            \
    "    xor.b64 %d8, %d8, %d9;\n"                                                                           \
    "    mul.lo.u64 %d8, %d8, 0xBF58476D1CE4E5B9;\n"                                                         \
    "    shr.u64 %d9, %d8, 29;\n"                                                                            \
    "    xor.b64 %d8, %d8, %d9;\n"                                                                           \
    "    mul.lo.u64 %d8, %d8, 0x94D049BB133111EB;\n"                                                         \
    "    shr.u64 %d9, %d8, 32;\n"                                                                            \
    "    xor.b64 %d8, %d8, %d9;\n"

static const char digest_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry " DIGEST_KERNEL "(.param .u64 from, .param .u64 count, .param .u64 out)\n"
    "{\n"
    "    .reg .pred %p<2>;\n"
    "    .reg .b32 %r<5>;\n"
    "    .reg .b64 %d<13>;\n"
    "    ld.param.u64 %d1, [from];\n"
    "    ld.param.u64 %d2, [count];\n"
    "    ld.param.u64 %d3, [out];\n"
    "    cvta.to.global.u64 %d1, %d1;\n"
    "    cvta.to.global.u64 %d3, %d3;\n"
    "    mov.u32 %r1, %ctaid.x;\n"
    "    mov.u32 %r2, %ntid.x;\n"
    "    mov.u32 %r3, %tid.x;\n"
    "    mov.u32 %r4, %nctaid.x;\n"
    "    mul.wide.u32 %d4, %r1, %r2;\n"
    "    cvt.u64.u32 %d5, %r3;\n"
    "    add.u64 %d4, %d4, %d5;\n"
    "    mul.wide.u32 %d5, %r4, %r2;\n"
    "    mov.u64 %d11, 0;\n"
    "    mov.u64 %d12, 0;\n"
    "NEXT:\n"
    "    setp.ge.u64 %p1, %d4, %d2;\n"
    "    @%p1 bra DONE;\n"
    "    shl.b64 %d6, %d4, 3;\n"
    "    add.u64 %d6, %d1, %d6;\n"
    "    ld.global.u64 %d7, [%d6];\n"
    "    mul.lo.u64 %d10, %d4, 0x9E3779B97F4A7C15;\n"
    "    xor.b64 %d8, %d7, %d10;\n" DIGEST_MIX "    add.u64 %d11, %d11, %d8;\n"
    "    mul.lo.u64 %d10, %d4, 0xD1342543DE82EF95;\n"
    "    add.u64 %d8, %d7, %d10;\n"
    "    add.u64 %d8, %d8, 0x2545F4914F6CDD1D;\n" DIGEST_MIX "    add.u64 %d12, %d12, %d8;\n"
    "    add.u64 %d4, %d4, %d5;\n"
    "    bra NEXT;\n"
    "DONE:\n"
    "    red.global.add.u64 [%d3], %d11;\n"
    "    red.global.add.u64 [%d3+8], %d12;\n"
    "    ret;\n"
    "}\n";
