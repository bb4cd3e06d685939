/* movable - holds GPU memory whose every byte it knows, and looks whether that is what it wrote.
 *
 *   movable BUFFERS BYTES
 *
 * Allocates BUFFERS buffers of up to BYTES, of all sizes, and prints "ready". Of each line on standard input it prints what
 * came of it:
 *
 *   fill SEED      every buffer gets bytes that follow from its number and SEED               "filled"
 *   check          copies every buffer back, and has the GPU sum it up                        "good", or "bad N: ..."
 *   alloc BYTES    one buffer more, of which nothing is known before the next fill            "allocated"
 *   free           the last one goes                                                          "freed"
 *   ask            what of its memory can be asked without the GPU                            "good", or "bad ..."
 *   touch          a kernel that does nothing                                                 "touched"
 *   work MS        the same, time and again for so long                                       "worked N": so often
 *   atexit         a handler of exit() makes "check"                                          "will"
 *
 * Ends at the end of input. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cuda/driver_more.h"
#include "driver_program.h"

#define BUFFERS_MOST 4096
#define PTX_CHECKSUM                                                                                         \
    ".visible .entry gs_checksum_u64(.param .u64 from, .param .u64 count, .param .u64 out)\n{\n ret;\n}\n"

static struct buffer {
    CUdeviceptr address;
    size_t bytes;  /* a multiple of 8 */
    uint64_t seed; /* 0: nothing was written there */
} buffers[BUFFERS_MOST];
static unsigned count;
static uint64_t *host;
static size_t host_bytes;
static CUfunction checksum, nothing;
static CUdeviceptr sum_on_gpu;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* What the buffer should hold; returns its sum. */
static uint64_t make_content(const struct buffer *buffer, uint64_t *to)
{
    uint64_t state = buffer->seed * UINT64_C(0x9e3779b97f4a7c15) | 1, sum = 0;
    for (size_t i = 0; i < buffer->bytes / 8; i++)
        sum += to[i] = next(&state);
    return sum;
}

static void write_buffer(struct buffer *buffer, uint64_t seed)
{
    buffer->seed = seed;
    make_content(buffer, host);
    CHECK(cuMemcpyHtoD_v2(buffer->address, host, buffer->bytes));
}

static void allocate(size_t bytes)
{
    struct buffer *buffer = &buffers[count];
    buffer->bytes = (bytes + 7) / 8 * 8;
    if (buffer->bytes > host_bytes) {
        host_bytes = buffer->bytes;
        host = realloc(host, 2 * host_bytes);
    }
    CHECK(cuMemAlloc_v2(&buffer->address, buffer->bytes));
    buffer->seed = 0;
    count++;
}

static void fill(uint64_t seed)
{
    for (unsigned i = 0; i < count; i++)
        write_buffer(&buffers[i], seed * BUFFERS_MOST + i);
}

static uint64_t sum_by_gpu(const struct buffer *buffer)
{
    uint64_t words = buffer->bytes / 8, sum = 0;
    CHECK(cuMemcpyHtoD_v2(sum_on_gpu, &sum, sizeof(sum)));
    CHECK(cuLaunchKernel(checksum, 1, 1, 1, 1, 1, 1, 0, NULL,
                         (void *[]){(void *)&buffer->address, &words, &sum_on_gpu}, NULL));
    CHECK(cuMemcpyDtoH_v2(&sum, sum_on_gpu, sizeof(sum)));
    return sum;
}

static void look(void)
{
    for (unsigned i = 0; i < count; i++) {
        const struct buffer *buffer = &buffers[i];
        if (!buffer->seed)
            continue;
        uint64_t *expected = host, *found = host + host_bytes / 8, sum = make_content(buffer, expected);
        uint64_t summed = sum_by_gpu(buffer);
        CHECK(cuMemcpyDtoH_v2(found, buffer->address, buffer->bytes));
        if (summed != sum || memcmp(expected, found, buffer->bytes) != 0) {
            printf("bad %u: %zu bytes at %" PRIx64 "\n", i, buffer->bytes, (uint64_t)buffer->address);
            return;
        }
    }
    puts("good");
}

static void ask(void)
{
    for (unsigned i = 0; i < count; i++) {
        CUdeviceptr base;
        size_t bytes;
        CHECK(cuMemGetAddressRange_v2(&base, &bytes, buffers[i].address + buffers[i].bytes / 2));
        if (base != buffers[i].address) {
            printf("bad %u: it begins at %" PRIx64 "\n", i, (uint64_t)base);
            return;
        }
    }
    puts("good");
}

static void touch(void)
{
    CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
}

static unsigned work(uint64_t ms)
{
    uint64_t end_ns = monotonic_ns() + ms * 1000000;
    unsigned done = 0;
    for (; monotonic_ns() < end_ns; done++)
        touch();
    return done;
}

static void obey(const char *line)
{
    if (strncmp(line, "fill ", 5) == 0) {
        fill(strtoull(line + 5, NULL, 10));
        puts("filled");
    } else if (strncmp(line, "alloc ", 6) == 0) {
        allocate(strtoull(line + 6, NULL, 10));
        puts("allocated");
    } else if (strncmp(line, "free", 4) == 0) {
        CHECK(cuMemFree_v2(buffers[--count].address));
        puts("freed");
    } else if (strncmp(line, "check", 5) == 0) {
        look();
    } else if (strncmp(line, "ask", 3) == 0) {
        ask();
    } else if (strncmp(line, "touch", 5) == 0) {
        touch();
        puts("touched");
    } else if (strncmp(line, "atexit", 6) == 0) {
        puts(atexit(look) == 0 ? "will" : "will not");
    } else if (strncmp(line, "work ", 5) == 0) {
        printf("worked %u\n", work(strtoull(line + 5, NULL, 10)));
    }
    fflush(stdout);
}

int main(int argument_count, char **words)
{
    char line[64];
    if (argument_count < 3)
        return 2;
    unsigned wanted = (unsigned)strtoul(words[1], NULL, 10);
    size_t most = strtoull(words[2], NULL, 10);
    uint64_t state = 1;
    CHECK(cuInit(0));
    use_gpu(0);
    CUmodule module = load_module(PTX(PTX_CHECKSUM PTX_NOTHING));
    checksum = find_kernel(module, "gs_checksum_u64");
    nothing = find_kernel(module, "nothing");
    CHECK(cuMemAlloc_v2(&sum_on_gpu, 8));
    for (unsigned i = 0; i < wanted && i < BUFFERS_MOST; i++)
        allocate(i % 4 == 0 ? most : 8 + next(&state) % (i % 4 == 1 ? 4096 : most));
    fill(1);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin))
        obey(line);
    return 0;
}
