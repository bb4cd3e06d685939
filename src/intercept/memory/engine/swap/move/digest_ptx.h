/* digest_ptx.h - the kernel that tells whether memory has changed (digester.h). The simulated GPU computes the same
 * (simgpu/code/kernels.c); the two change together.
 *
 * digest  two sums over the 64-bit words of an extent. For word w at place i: sum 0 has mix(w ^ i * K1), sum 1 has
 *         mix(w + i * K2 + C), where mix(x) = x ^ x >> 32, times M1, ^ >> 29, times M2, ^ >> 32. Sums are modulo 2^64
 * part    what one block of threads reads: at most DIGEST_PART_BYTES of one extent. The digest of the extent is the
 *         sum of those of its parts, which the host adds up
 *
 *   gpuslice_digest_parts(u64 parts, u64 sums)   block b reads parts[b] and writes sums[b]
 *
 * A thread adds up its words, a warp its threads by shuffles, a block its warps in shared memory; so there are no
 * atomic additions, and nothing is to be zeroed before. A launch has as many blocks as parts.
 *
 * PTX ISA 6.0 is that of CUDA 9.0, and the first with shfl.sync; drivers translate it for every later card. Before sm_70,
 * the threads of a warp must execute a shfl.sync together: they do, as they meet again behind the loops. */
#pragma once

#include <stdint.h>

#define DIGEST_KERNEL "gpuslice_digest_parts"
#define DIGEST_THREADS 256u /* of a block; the kernel is for no other number */
#define DIGEST_PART_BYTES (UINT64_C(64) << 10)

struct digest_part {
    uint64_t address;    /* a multiple of 16 */
    uint64_t first_word; /* its place in the extent, in words */
    uint64_t pairs;      /* of words */
    uint64_t owner;      /* for the host alone */
};

/* How many parts `bytes` have; and the part with this number. */
static inline uint64_t digest_part_count(uint64_t bytes)
{
    return (bytes + DIGEST_PART_BYTES - 1) / DIGEST_PART_BYTES;
}

static inline struct digest_part digest_part(uint64_t address, uint64_t bytes, uint64_t number)
{
    uint64_t begin = number * DIGEST_PART_BYTES, left = bytes - begin;
    return (struct digest_part){.address = address + begin,
                                .first_word = begin / 8,
                                .pairs = (left < DIGEST_PART_BYTES ? left : DIGEST_PART_BYTES) / 16};
}

/* A line of PTX is a line here. */
/* clang-format off */

/* %x becomes mix(%x), and is added to a sum. */
#define DIGEST_ADD(sum)                                                                                      \
    "    shr.u64 %y, %x, 32;\n"                                                                              \
    "    xor.b64 %x, %x, %y;\n"                                                                              \
    "    mul.lo.u64 %x, %x, 0xBF58476D1CE4E5B9;\n"                                                           \
    "    shr.u64 %y, %x, 29;\n"                                                                              \
    "    xor.b64 %x, %x, %y;\n"                                                                              \
    "    mul.lo.u64 %x, %x, 0x94D049BB133111EB;\n"                                                           \
    "    shr.u64 %y, %x, 32;\n"                                                                              \
    "    xor.b64 %x, %x, %y;\n"                                                                              \
    "    add.u64 " sum ", " sum ", %x;\n"

/* %one is the word's place times K1, %two its place times K2, plus C. */
#define DIGEST_WORD(word, one, two)                                                                          \
    "    xor.b64 %x, " word ", " one ";\n"                                                                   \
    DIGEST_ADD("%sum0")                                                                                      \
    "    add.u64 %x, " word ", " two ";\n"                                                                   \
    DIGEST_ADD("%sum1")

/* The pair of words at %one and %two; then go on to the thread's next one. */
#define DIGEST_PAIR(first, second)                                                                           \
    DIGEST_WORD(first, "%one", "%two")                                                                       \
    "    add.u64 %one_next, %one, 0x9E3779B97F4A7C15;\n"                                                     \
    "    add.u64 %two_next, %two, 0xD1342543DE82EF95;\n"                                                     \
    DIGEST_WORD(second, "%one_next", "%two_next")                                                            \
    "    add.u64 %one, %one, %one_step;\n"                                                                   \
    "    add.u64 %two, %two, %two_step;\n"

/* Add to a sum that of the thread so many places further on in the warp. */
#define DIGEST_SHUFFLE(sum, places)                                                                          \
    "    mov.b64 {%low, %high}, " sum ";\n"                                                                  \
    "    shfl.sync.down.b32 %low, %low, " places ", 31, 0xffffffff;\n"                                       \
    "    shfl.sync.down.b32 %high, %high, " places ", 31, 0xffffffff;\n"                                     \
    "    mov.b64 %x, {%low, %high};\n"                                                                       \
    "    add.u64 " sum ", " sum ", %x;\n"

#define DIGEST_SHUFFLES(sum)                                                                                 \
    DIGEST_SHUFFLE(sum, "16")                                                                                \
    DIGEST_SHUFFLE(sum, "8")                                                                                 \
    DIGEST_SHUFFLE(sum, "4")                                                                                 \
    DIGEST_SHUFFLE(sum, "2")                                                                                 \
    DIGEST_SHUFFLE(sum, "1")

#define DIGEST_ADD_WARP(offset)                                                                              \
    "    ld.shared.u64 %x, [%place+" offset "];\n"                                                           \
    "    add.u64 %sum0, %sum0, %x;\n"

static const char digest_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry " DIGEST_KERNEL "(.param .u64 parts, .param .u64 sums)\n"
    ".reqntid 256, 1, 1\n"
    "{\n"
    "    .shared .align 16 .b8 of_warps[128];\n" /* two sums of each of 8 warps */
    "    .reg .pred %p;\n"
    "    .reg .b32 %block, %thread, %pair, %pairs, %last, %lane, %warp, %place, %low, %high;\n"
    "    .reg .b64 %parts, %sums, %from, %first, %count, %x, %y, %sum0, %sum1;\n"
    "    .reg .b64 %one, %two, %one_next, %two_next, %one_step, %two_step;\n"
    "    .reg .b64 %w0, %w1, %w2, %w3, %w4, %w5, %w6, %w7;\n"
    "    ld.param.u64 %parts, [parts];\n"
    "    ld.param.u64 %sums, [sums];\n"
    "    cvta.to.global.u64 %parts, %parts;\n"
    "    cvta.to.global.u64 %sums, %sums;\n"
    "    mov.u32 %block, %ctaid.x;\n"
    "    mov.u32 %thread, %tid.x;\n"
    "    mul.wide.u32 %x, %block, 32;\n"
    "    add.u64 %parts, %parts, %x;\n"
    "    ld.global.v2.u64 {%from, %first}, [%parts];\n"
    "    ld.global.u64 %count, [%parts+16];\n"
    "    cvta.to.global.u64 %from, %from;\n"
    "    cvt.u32.u64 %pairs, %count;\n"
    "    mul.wide.u32 %x, %thread, 16;\n"
    "    add.u64 %from, %from, %x;\n"
    "    mul.wide.u32 %x, %thread, 2;\n"
    "    add.u64 %x, %first, %x;\n"
    "    mul.lo.u64 %one, %x, 0x9E3779B97F4A7C15;\n"
    "    mul.lo.u64 %two, %x, 0xD1342543DE82EF95;\n"
    "    add.u64 %two, %two, 0x2545F4914F6CDD1D;\n"
    "    mov.u64 %x, 512;\n" /* from a thread's pair to its next one, in words */
    "    mul.lo.u64 %one_step, %x, 0x9E3779B97F4A7C15;\n"
    "    mul.lo.u64 %two_step, %x, 0xD1342543DE82EF95;\n"
    "    mov.u64 %sum0, 0;\n"
    "    mov.u64 %sum1, 0;\n"
    "    mov.u32 %pair, %thread;\n"
    "FOUR:\n" /* loads at once, which the memory needs to be kept busy */
    "    add.u32 %last, %pair, 768;\n"
    "    setp.ge.u32 %p, %last, %pairs;\n"
    "    @%p bra ONE;\n"
    "    ld.global.v2.u64 {%w0, %w1}, [%from];\n"
    "    ld.global.v2.u64 {%w2, %w3}, [%from+4096];\n"
    "    ld.global.v2.u64 {%w4, %w5}, [%from+8192];\n"
    "    ld.global.v2.u64 {%w6, %w7}, [%from+12288];\n"
    DIGEST_PAIR("%w0", "%w1")
    DIGEST_PAIR("%w2", "%w3")
    DIGEST_PAIR("%w4", "%w5")
    DIGEST_PAIR("%w6", "%w7")
    "    add.u64 %from, %from, 16384;\n"
    "    add.u32 %pair, %pair, 1024;\n"
    "    bra FOUR;\n"
    "ONE:\n"
    "    setp.ge.u32 %p, %pair, %pairs;\n"
    "    @%p bra READ;\n"
    "    ld.global.v2.u64 {%w0, %w1}, [%from];\n"
    DIGEST_PAIR("%w0", "%w1")
    "    add.u64 %from, %from, 4096;\n"
    "    add.u32 %pair, %pair, 256;\n"
    "    bra ONE;\n"
    "READ:\n"
    DIGEST_SHUFFLES("%sum0")
    DIGEST_SHUFFLES("%sum1")
    "    and.b32 %lane, %thread, 31;\n"
    "    shr.u32 %warp, %thread, 5;\n"
    "    shl.b32 %warp, %warp, 4;\n"
    "    mov.u32 %place, of_warps;\n"
    "    add.u32 %place, %place, %warp;\n"
    "    setp.eq.u32 %p, %lane, 0;\n"
    "    @%p st.shared.v2.u64 [%place], {%sum0, %sum1};\n"
    "    bar.sync 0;\n"
    "    setp.ge.u32 %p, %thread, 2;\n" /* one thread for each sum */
    "    @%p bra END;\n"
    "    shl.b32 %low, %thread, 3;\n"
    "    mov.u32 %place, of_warps;\n"
    "    add.u32 %place, %place, %low;\n"
    "    mov.u64 %sum0, 0;\n"
    DIGEST_ADD_WARP("0")
    DIGEST_ADD_WARP("16")
    DIGEST_ADD_WARP("32")
    DIGEST_ADD_WARP("48")
    DIGEST_ADD_WARP("64")
    DIGEST_ADD_WARP("80")
    DIGEST_ADD_WARP("96")
    DIGEST_ADD_WARP("112")
    "    mul.wide.u32 %x, %block, 16;\n"
    "    mul.wide.u32 %y, %thread, 8;\n"
    "    add.u64 %sums, %sums, %x;\n"
    "    add.u64 %sums, %sums, %y;\n"
    "    st.global.u64 [%sums], %sum0;\n"
    "END:\n"
    "    ret;\n"
    "}\n";
/* clang-format on */
