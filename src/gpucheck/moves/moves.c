/* moves.c - memory that leaves the card and comes back. Every byte is compared, and the rates stand beside those of
 * the card's copy engine with page-locked memory. */
#include "gpucheck/moves/moves.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/nvml.h"
#include "gpucheck/part.h"

#define PIECE_BYTES (64 * MIB) /* size of one allocation */
#define CHUNK_BYTES (4 * MIB)  /* size of one pattern */
#define CONTEXT_BYTES GIB      /* the most that a session's context takes */

/* --- The program whose memory moves ----------------------------------------------------------------- */

static CUdeviceptr *pieces;
static uint64_t piece_count;
static uint64_t *pattern, *seen;
static CUfunction sum_kernel;
static CUdeviceptr sum_on_gpu;

static void make_pattern(void)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < CHUNK_BYTES / 8; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        pattern[i] = state;
    }
}

/* Make the chunk different from every other one. */
static void mark(uint64_t *chunk, uint64_t number, uint64_t seed)
{
    chunk[0] = number;
    chunk[CHUNK_BYTES / 8 - 1] = ~number ^ seed;
}

static void fill_all(uint64_t seed)
{
    for (uint64_t i = 0; i < piece_count; i++)
        for (uint64_t at = 0; at < PIECE_BYTES; at += CHUNK_BYTES) {
            mark(pattern, i * PIECE_BYTES + at, seed);
            must(cuMemcpyHtoD_v2(pieces[i] + at, pattern, CHUNK_BYTES));
        }
    must(cuCtxSynchronize());
}

static uint64_t sum_all(void)
{
    uint64_t sum = 0, words = PIECE_BYTES / 8;
    must(cuMemcpyHtoD_v2(sum_on_gpu, &sum, sizeof(sum)));
    for (uint64_t i = 0; i < piece_count; i++) {
        void *parameters[] = {&pieces[i], &words, &sum_on_gpu};
        must(cuLaunchKernel(sum_kernel, 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    }
    must(cuMemcpyDtoH_v2(&sum, sum_on_gpu, sizeof(sum)));
    return sum;
}

/* The first place where a byte is wrong; UINT64_MAX if none is. */
static uint64_t look_at_all(uint64_t seed)
{
    for (uint64_t i = 0; i < piece_count; i++)
        for (uint64_t at = 0; at < PIECE_BYTES; at += CHUNK_BYTES) {
            mark(pattern, i * PIECE_BYTES + at, seed);
            must(cuMemcpyDtoH_v2(seen, pieces[i] + at, CHUNK_BYTES));
            if (memcmp(pattern, seen, CHUNK_BYTES) != 0)
                return i * PIECE_BYTES + at;
        }
    return UINT64_MAX;
}

/* movable BYTES: takes "fill SEED", "sum" and "look SEED", one on each line; answers the device's sum, or where a
 * byte is wrong. */
void part_movable(const char *argument)
{
    open_context();
    piece_count = strtoull(argument, NULL, 10) / PIECE_BYTES;
    pieces = calloc(piece_count, sizeof(*pieces));
    pattern = malloc(CHUNK_BYTES);
    seen = malloc(CHUNK_BYTES);
    if (!pieces || !pattern || !seen)
        not_run("no host memory");
    make_pattern();
    sum_kernel = load_kernel("gs_checksum_u64");
    must(cuMemAlloc_v2(&sum_on_gpu, sizeof(uint64_t)));
    for (uint64_t i = 0; i < piece_count; i++)
        must(cuMemAlloc_v2(&pieces[i], PIECE_BYTES));
    part_tell("ready");
    for (;;) {
        const char *line = part_listen();
        uint64_t seed = 0;
        if (sscanf(line, "fill %llu", (unsigned long long *)&seed) == 1) {
            fill_all(seed);
            part_tell("%llu", (unsigned long long)sum_all());
        } else if (sscanf(line, "look %llu", (unsigned long long *)&seed) == 1) {
            part_tell("%llu", (unsigned long long)look_at_all(seed));
        } else {
            part_tell("%llu", (unsigned long long)sum_all());
        }
    }
}

/* --- The checks -------------------------------------------------------------------------------------- */

struct movable {
    struct part part;
    uint64_t bytes;
    char sum[32]; /* the device's sum after the fill */
    unsigned seed;
};

static void start(struct movable *movable, uint64_t bytes)
{
    char argument[32];
    movable->bytes = bytes / PIECE_BYTES * PIECE_BYTES;
    movable->seed = 0;
    snprintf(argument, sizeof(argument), "%llu", (unsigned long long)movable->bytes);
    part_start(&movable->part, PART_MOVES(movable->bytes + CONTEXT_BYTES), "movable", argument);
    part_hear(&movable->part);
}

static void fill(struct movable *movable)
{
    part_say(&movable->part, "fill %u", ++movable->seed);
    snprintf(movable->sum, sizeof(movable->sum), "%s", part_hear(&movable->part));
}

/* Check that the memory has what was filled in, by the device's sum and byte for byte. */
static void check_bytes(struct movable *movable)
{
    part_say(&movable->part, "sum");
    if (strcmp(part_hear(&movable->part), movable->sum) != 0)
        fail("the device's checksum is %s and was %s", movable->part.line, movable->sum);
    part_say(&movable->part, "look %u", movable->seed);
    if (strtoull(part_hear(&movable->part), NULL, 10) != UINT64_MAX)
        fail("wrong bytes in what begins at %s", movable->part.line);
}

static double order(const char *verb, const char *session)
{
    char path[PATH_MAX], output[1024];
    find_program("gpuslice", path);
    double begin = now_s();
    if (program_run((char *[]){path, (char *)verb, (char *)session, NULL}, 0, true, output, sizeof(output)) ==
        0)
        return now_s() - begin;
    if (strstr(output, "host memory"))
        not_run("'gpuslice %s' says: %s", verb, output);
    fail_and_end("'gpuslice %s' says: %s", verb, output);
}

/* Nearly all of so many bytes: what a context costs is not known to the byte. */
static uint64_t nearly(uint64_t bytes)
{
    return bytes - bytes / 16;
}

/* Wait until the card has so much free; for a second at most, as NVML may tell it late. Returns what is free. */
static uint64_t wait_for_free(uint64_t wanted)
{
    uint64_t is_free;
    double end = now_s() + 1;
    while ((is_free = nvml_free_bytes()) < wanted && now_s() < end)
        sleep_s(0.01);
    return is_free;
}

struct moved moves_suspend(const char *session, uint64_t least_bytes)
{
    struct session_memory memory = session_memory(session);
    uint64_t free_before = nvml_free_bytes();
    uint64_t wanted =
        memory.charged_bytes > memory.context_bytes ? memory.charged_bytes - memory.context_bytes : 0;
    struct moved moved = {.begin_s = now_s()};
    moved.end_s = moved.begin_s + order("suspend", session);
    wanted = wanted > least_bytes ? wanted : least_bytes;
    moved.bytes = session_memory(session).evicted_bytes;
    if (moved.bytes < nearly(wanted))
        fail_and_end("of %llu bytes, %llu left the card", (unsigned long long)wanted,
                     (unsigned long long)moved.bytes);
    uint64_t is_free = wait_for_free(free_before + nearly(moved.bytes));
    if (is_free < free_before + nearly(moved.bytes))
        fail_and_end("%llu bytes left the card, which had %llu bytes free before and has %llu now",
                     (unsigned long long)moved.bytes, (unsigned long long)free_before,
                     (unsigned long long)is_free);
    return moved;
}

static void expect_back(const char *session)
{
    uint64_t evicted = session_memory(session).evicted_bytes;
    if (evicted)
        fail_and_end("%llu bytes are not back on the card", (unsigned long long)evicted);
}

double moves_resume(const char *session)
{
    double seconds = order("resume", session);
    expect_back(session);
    return seconds;
}

static double leave(const struct movable *movable)
{
    struct moved moved = moves_suspend(movable->part.session, movable->bytes);
    return moved.end_s - moved.begin_s;
}

static double come_back(const struct movable *movable)
{
    return moves_resume(movable->part.session);
}

static void rate(const char *name, uint64_t bytes, double seconds)
{
    figure(name, (double)bytes / seconds * 1e-9, "GB/s");
}

static void copy_rate(const char *name, const char *way)
{
    struct part part;
    part_start(&part, PART_OUTSIDE, "copy", way);
    part_hear(&part);
    part_say(&part, settings.simulated ? "0.2" : "1");
    figure(name, part_hear_number(&part), "GB/s");
    part_end(&part);
}

/* Move out and in three times: while host memory must still be made, with host memory that exists, and with nothing
 * changed. */
static void move_there_and_back(uint64_t bytes)
{
    static const char *const out[] = {"out_first", "out", "out_unchanged"}, *const in[] = {"in_first", "in",
                                                                                           "in_unchanged"};
    struct movable movable;
    copy_rate("copy_engine_out", "out");
    copy_rate("copy_engine_in", "in");
    start(&movable, bytes);
    figure("size", (double)movable.bytes, "bytes");
    for (unsigned round = 0; round < 3; round++) {
        if (round < 2)
            fill(&movable);
        rate(out[round], movable.bytes, leave(&movable));
        rate(in[round], movable.bytes, come_back(&movable));
        check_bytes(&movable);
    }
    part_end(&movable.part);
}

static uint64_t need(uint64_t bytes, unsigned programs)
{
    open_context();
    uint64_t is_free = free_bytes();
    if (is_free < bytes + programs * CONTEXT_BYTES)
        not_run("%llu bytes of the GPU are free, and %llu are needed", (unsigned long long)is_free,
                (unsigned long long)(bytes + programs * CONTEXT_BYTES));
    return bytes;
}

/* The same for nine tenths of what is free. */
static uint64_t need_most(unsigned programs)
{
    open_context();
    return need(scaled((free_bytes() - programs * CONTEXT_BYTES) / 10 * 9, 256 * MIB), programs);
}

void check_moves(const struct check *check)
{
    (void)check;
    move_there_and_back(need(scaled(20 * GIB, 128 * MIB), 1));
}

void check_moves_most(const struct check *check)
{
    (void)check;
    move_there_and_back(need_most(1));
}

/* One leaves and the other comes back in its place, both at once as far as there is room. Returns the seconds. */
static double change_places(struct movable *leaves, struct movable *comes)
{
    struct part leaving;
    char path[PATH_MAX];
    find_program("gpuslice", path);
    uint64_t free_before = nvml_free_bytes();
    double begin = now_s();
    part_start_program(&leaving, PART_OUTSIDE, (const char *[]){path, "suspend", leaves->part.session, NULL});
    order("resume", comes->part.session);
    part_end(&leaving);
    double seconds = now_s() - begin;
    expect_back(comes->part.session);
    uint64_t left = session_memory(leaves->part.session).evicted_bytes,
             wanted = free_before > leaves->bytes / 16 ? free_before - leaves->bytes / 16 : 0;
    if (left < nearly(leaves->bytes) || wait_for_free(wanted) < wanted)
        fail_and_end("of %llu bytes, %llu left the card, which had %llu bytes free before and has %llu now",
                     (unsigned long long)leaves->bytes, (unsigned long long)left,
                     (unsigned long long)free_before, (unsigned long long)nvml_free_bytes());
    return seconds;
}

/* The first time one leaves before the other comes, as host memory must still be made. */
static void exchange(uint64_t bytes)
{
    struct movable one, other;
    start(&one, bytes);
    figure("size", (double)one.bytes, "bytes");
    fill(&one);
    leave(&one);
    start(&other, bytes);
    fill(&other);
    double seconds = leave(&other);
    seconds += come_back(&one);
    rate("one_after_the_other", 2 * one.bytes, seconds);
    check_bytes(&one);
    fill(&one);
    rate("exchange", 2 * one.bytes, change_places(&one, &other));
    check_bytes(&other);
    rate("exchange_unchanged", 2 * one.bytes, change_places(&other, &one));
    check_bytes(&one);
    part_end(&one.part);
    part_end(&other.part);
}

void check_moves_exchange(const struct check *check)
{
    (void)check;
    exchange(need(scaled(20 * GIB, 128 * MIB), 2));
}

void check_moves_exchange_most(const struct check *check)
{
    (void)check;
    exchange(need_most(2));
}
