/* gallery.c - contents that are known, points to wait at, and what is said of both. */
#include "gallery.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PTX                                                                                                  \
    ".version 7.0\n.target sm_70\n.address_size 64\n"                                                        \
    ".visible .entry gs_checksum_u64(.param .u64 at, .param .u64 count, .param .u64 out)\n{\n ret;\n}\n"     \
    ".visible .entry gs_fill_u32(.param .u64 at, .param .u32 value, .param .u64 count)\n{\n ret;\n}\n"

static const char *const kind_names[KINDS] = {"memory", "kept",  "exported", "pooled",
                                              "bound",  "graph", "pinned"};

size_t wanted_bytes;
uint64_t program_seed;
const char *how = "";

static uint64_t chance, digest = UINT64_C(0xcbf29ce484222325), seeds_given;
static size_t held_bytes[KINDS];
static unsigned refused_count;
static pid_t child_pid;
static CUfunction checksum, fill;
static CUmodule kernels;
/* Where the GPU writes its sums: memory of the host, so that the program has none on the card but its allocator's. */
static uint64_t *sum;
static CUdeviceptr sum_on_gpu;

void gallery_fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(1);
}

void gallery_must(CUresult result, const char *call)
{
    const char *name = "?";
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    gallery_fail("%s answered %d, %s", call, (int)result, name);
}

size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

uint64_t up_to(uint64_t number)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance % number;
}

int device_attribute(CUdevice_attribute attribute)
{
    int value = 0;
    CUdevice device;
    MUST(cuCtxGetDevice(&device));
    MUST(cuDeviceGetAttribute(&value, attribute, device));
    return value;
}

CUfunction gallery_kernel(const char *name)
{
    CUfunction function;
    MUST(cuModuleGetFunction(&function, kernels, name));
    return function;
}

/* --- Begin and end ---------------------------------------------------------------------------------------- */

void gallery_begin_child(void)
{
    CUdevice device;
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&kernels, PTX));
    checksum = gallery_kernel("gs_checksum_u64");
    fill = gallery_kernel("gs_fill_u32");
    MUST(cuMemHostAlloc((void **)&sum, sizeof(*sum), HOST_MEMORY_MAPPED));
    MUST(cuMemHostGetDevicePointer_v2(&sum_on_gpu, sum, 0));
}

static void read_words(int count, char **words)
{
    if (count < 3)
        gallery_fail("expected MIB SEED [HOW]");
    wanted_bytes = strtoull(words[1], NULL, 10) * MIB;
    program_seed = strtoull(words[2], NULL, 10);
    chance = program_seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    if (count > 3)
        how = words[3];
}

void gallery_begin(int argument_count, char **words)
{
    read_words(argument_count, words);
    gallery_begin_child();
}

int gallery_end(void)
{
    MUST(cuCtxSynchronize());
    printf("digest %016" PRIx64 " refused %u\n", digest, refused_count);
    return fflush(stdout) == 0 ? 0 : 1;
}

/* --- A second process --------------------------------------------------------------------------------------- */

int gallery_fork(void (*child)(int socket))
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 || (child_pid = fork()) < 0)
        gallery_fail("no second process: %s", strerror(errno));
    if (child_pid > 0) {
        close(ends[1]);
        return ends[0];
    }
    close(ends[0]);
    close(STDIN_FILENO);
    child(ends[1]);
    exit(0);
}

void gallery_join(void)
{
    int status;
    if (waitpid(child_pid, &status, 0) != child_pid || status != 0)
        gallery_fail("the second process ended with %#x", (unsigned)status);
}

void send_bytes(int socket, const void *bytes, size_t count)
{
    if (send(socket, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
        gallery_fail("the other process is gone");
}

void receive_bytes(int socket, void *bytes, size_t count)
{
    if (recv(socket, bytes, count, MSG_WAITALL) != (ssize_t)count)
        gallery_fail("the other process is gone");
}

/* --- Points ------------------------------------------------------------------------------------------------ */

void hold(enum kind kind, ptrdiff_t bytes)
{
    held_bytes[kind] += (size_t)bytes;
}

size_t held(enum kind kind)
{
    return held_bytes[kind];
}

void gallery_pause(const char *point)
{
    char line[64];
    MUST(cuCtxSynchronize());
    printf("at %s", point);
    for (int kind = 0; kind < KINDS; kind++)
        printf(" %s=%zu", kind_names[kind], held_bytes[kind]);
    putchar('\n');
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        clearerr(stdin); /* nobody leads it: it goes on */
}

void gallery_refused(void)
{
    refused_count++;
}

/* --- Contents ------------------------------------------------------------------------------------------------ */

void digest_add(uint64_t number)
{
    digest = (digest ^ number) * UINT64_C(0x100000001b3);
}

/* Room of the host for twice the largest tensor: what should be there, and what is. */
static void *scratch(size_t bytes)
{
    static void *room;
    static size_t size;
    if (bytes > size) {
        free(room);
        room = malloc(bytes);
        size = bytes;
    }
    if (!room)
        gallery_fail("no memory of the host");
    return room;
}

void tensor_content(const struct tensor *tensor, void *to)
{
    uint64_t *words = to, seed = tensor->seed * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < tensor->bytes / 8; i++) {
        uint64_t word = (seed + i) * UINT64_C(0xff51afd7ed558ccd);
        words[i] = word ^ word >> 33;
    }
    uint32_t *tail = (uint32_t *)((char *)to + tensor->bytes - tensor->tail);
    for (size_t i = 0; i < tensor->tail / 4; i++)
        tail[i] = (uint32_t)tensor->seed;
}

void tensor_expect(struct tensor *tensor, uint64_t seed)
{
    tensor->seed = seed;
    tensor->tail = 0;
}

void tensor_fill(struct tensor *tensor)
{
    void *host = scratch(tensor->bytes);
    tensor_expect(tensor, (program_seed << 32) + ++seeds_given);
    tensor_content(tensor, host);
    MUST(cuMemcpyHtoD_v2(tensor->at, host, tensor->bytes));
    tensor->tail = tensor->bytes / 4 / 4 * 4;
    CUdeviceptr tail = tensor->at + tensor->bytes - tensor->tail;
    uint32_t value = (uint32_t)tensor->seed;
    uint64_t count = tensor->tail / 4;
    MUST(cuLaunchKernel(fill, 64, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&tail, &value, &count}, NULL));
}

static uint64_t sum_by_gpu(const struct tensor *tensor)
{
    CUdeviceptr at = tensor->at;
    uint64_t count = tensor->bytes / 8;
    *sum = 0;
    MUST(cuLaunchKernel(checksum, 64, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&at, &count, &sum_on_gpu}, NULL));
    MUST(cuCtxSynchronize());
    return *sum;
}

void tensor_check(const struct tensor *tensor)
{
    uint64_t *expected = scratch(2 * tensor->bytes), *found = expected + tensor->bytes / 8, total = 0;
    tensor_content(tensor, expected);
    for (size_t i = 0; i < tensor->bytes / 8; i++)
        total += expected[i];
    MUST(cuMemcpyDtoH_v2(found, tensor->at, tensor->bytes));
    if (memcmp(expected, found, tensor->bytes) != 0)
        gallery_fail("%zu bytes at %" PRIx64 " are not what they were", tensor->bytes, (uint64_t)tensor->at);
    uint64_t summed = sum_by_gpu(tensor);
    if (summed != total)
        gallery_fail("the GPU sees other bytes than the host at %" PRIx64, (uint64_t)tensor->at);
    digest_add(tensor->bytes);
    digest_add(summed);
}
