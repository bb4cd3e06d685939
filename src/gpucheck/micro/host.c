/* host.c - the two works that moving memory rests on: page-locking host memory beside a program that launches, and
 * digests of what is on the GPU. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpucheck/checks.h"
#include "gpucheck/micro/micro.h"
#include "intercept/memory/engine/swap/move/digest_ptx.h"

/* --- Page-locking --------------------------------------------------------------------------------------- */

#define REGISTER_PIECE_BYTES (16 * MIB)

/* A thread that launches all the time, and notes the longest that it was held up. */
static struct {
    CUcontext context;
    atomic_bool ends, has_begun;
    _Atomic double longest_s;
} launcher;

static void *launch_all_the_time(void *nothing)
{
    uint64_t steps = 1, nowhere = 0;
    void *parameters[] = {&steps, &nowhere};
    must(cuCtxSetCurrent(launcher.context));
    CUfunction kernel = load_kernel("gs_steps_u32");
    CUstream stream;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!launcher.ends) {
        double begin_s = now_s();
        must(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        must(cuStreamSynchronize(stream));
        double took_s = now_s() - begin_s;
        if (took_s > launcher.longest_s)
            launcher.longest_s = took_s;
        launcher.has_begun = true;
    }
    must(cuStreamDestroy_v2(stream));
    return nothing;
}

/* Register it all in pieces while the other thread launches; seconds of all, and the longest that one launch took. */
static void register_beside_launches(void *memory, size_t bytes, size_t piece, const char *name)
{
    pthread_t thread;
    char figure_name[80];
    launcher.ends = launcher.has_begun = false;
    launcher.longest_s = 0;
    if (pthread_create(&thread, NULL, launch_all_the_time, NULL) != 0)
        not_run("no second thread");
    while (!launcher.has_begun)
        sleep_s(0.001);
    launcher.longest_s = 0;
    double begin_s = now_s();
    CUresult result = CUDA_SUCCESS;
    size_t done = 0;
    for (; done < bytes && result == CUDA_SUCCESS; done += result == CUDA_SUCCESS ? piece : 0)
        result = cuMemHostRegister_v2((char *)memory + done, piece, 0);
    double seconds = now_s() - begin_s;
    launcher.ends = true;
    pthread_join(thread, NULL);
    for (size_t at = 0; at < done; at += piece)
        must(cuMemHostUnregister((char *)memory + at));
    snprintf(figure_name, sizeof(figure_name), "%s_is_registered", name);
    figure_text(figure_name, "%s", result == CUDA_SUCCESS ? "yes" : result_name(result));
    if (result != CUDA_SUCCESS)
        return;
    snprintf(figure_name, sizeof(figure_name), "%s_rate", name);
    figure(figure_name, (double)bytes / seconds * 1e-9, "GB/s");
    snprintf(figure_name, sizeof(figure_name), "%s_longest_stall", name);
    figure(figure_name, launcher.longest_s * 1e3, "ms");
}

/* How much of a mapping of ours is in huge pages, by /proc/self/smaps. */
static size_t huge_bytes_of(const void *memory)
{
    char line[256], begin[32];
    size_t bytes = 0;
    bool is_ours = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    snprintf(begin, sizeof(begin), "%lx-", (unsigned long)(uintptr_t)memory);
    while (file && fgets(line, sizeof(line), file)) {
        unsigned long kib;
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
            is_ours = strncmp(line, begin, strlen(begin)) == 0;
        else if (is_ours && (sscanf(line, "ShmemPmdMapped: %lu", &kib) == 1 ||
                             sscanf(line, "Shared_Hugetlb: %lu", &kib) == 1 ||
                             sscanf(line, "Private_Hugetlb: %lu", &kib) == 1))
            bytes += (size_t)kib << 10;
    }
    if (file)
        fclose(file);
    return bytes;
}

/* Memory of a memfd, all of it there: in small pages, or in huge ones as far as the kernel gives them, as it gives
 * them to GPU Slice's own host memory. NULL where there is none. */
static void *make_pages(size_t bytes, int advice)
{
    int fd = memfd_create("gpu-check-pages", MFD_CLOEXEC);
    void *memory = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
                       ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, advice);
    memset(memory, 1, bytes);
    return memory;
}

void check_registering(const struct check *check)
{
    size_t bytes = scaled(GIB, 64 * MIB);
    (void)check;
    open_context();
    must(cuCtxGetCurrent(&launcher.context));
    figure("size", (double)bytes, "bytes");
    void *memory = make_pages(bytes, MADV_NOHUGEPAGE);
    if (!memory)
        not_run("no host memory");
    register_beside_launches(memory, bytes, bytes, "small_pages_at_once");
    register_beside_launches(memory, bytes, REGISTER_PIECE_BYTES, "small_pages_in_16MiB");
    munmap(memory, bytes);
    memory = make_pages(bytes, MADV_HUGEPAGE);
    size_t huge = memory ? huge_bytes_of(memory) : 0;
    figure("in_huge_pages", (double)huge, "bytes");
    if (huge < bytes / 2) {
        could_not_try("huge_pages_in_16MiB_is_registered",
                      "the kernel gives a memfd no huge pages here: "
                      "/sys/kernel/mm/transparent_hugepage/shmem_enabled is to be 'advise'");
        return;
    }
    register_beside_launches(memory, bytes, bytes, "huge_pages_at_once");
    register_beside_launches(memory, bytes, REGISTER_PIECE_BYTES, "huge_pages_in_16MiB");
}

/* --- Digests --------------------------------------------------------------------------------------------- */

enum { DIGEST_ROUNDS = 5 };

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 29) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 32;
}

/* What the kernel has to compute (digest_ptx.h). */
static void digest_on_host(const uint64_t *words, uint64_t count, uint64_t sums[static 2])
{
    sums[0] = sums[1] = 0;
    for (uint64_t i = 0; i < count; i++) {
        sums[0] += mix(words[i] ^ i * UINT64_C(0x9E3779B97F4A7C15));
        sums[1] += mix(words[i] + i * UINT64_C(0xD1342543DE82EF95) + UINT64_C(0x2545F4914F6CDD1D));
    }
}

struct digester {
    CUfunction kernel;
    CUdeviceptr from;
    struct digest_part *parts; /* page-locked, as the sums of each are */
    uint64_t (*sums)[2];
    CUevent begin, end;
};

/* As the engine launches it (digester.c). */
static void launch_digest(const struct digester *digester, size_t bytes)
{
    unsigned blocks = (unsigned)digest_part_count(bytes);
    void *parameters[] = {(void *)&digester->parts, (void *)&digester->sums};
    for (unsigned i = 0; i < blocks; i++)
        digester->parts[i] = digest_part(digester->from, bytes, i);
    must(cuLaunchKernel(digester->kernel, blocks, 1, 1, DIGEST_THREADS, 1, 1, 0, NULL, parameters, NULL));
}

static bool digests_are(const struct digester *digester, size_t bytes, const uint64_t expected[static 2])
{
    bool is_right = true;
    for (unsigned round = 0; round < DIGEST_ROUNDS; round++) {
        uint64_t sums[2] = {0};
        launch_digest(digester, bytes);
        must(cuCtxSynchronize());
        for (uint64_t i = 0; i < digest_part_count(bytes); i++) {
            sums[0] += digester->sums[i][0];
            sums[1] += digester->sums[i][1];
        }
        is_right &= memcmp(sums, expected, sizeof(sums)) == 0;
    }
    return is_right;
}

/* What the GPU's own time between two events is, in milliseconds: of a digest, or a copy to `pinned` if that is not
 * NULL. They wait behind another kernel, so that what the calls take on the CPU does not count. NAN if even a long one had
 * always ended before. */
static double time_on_device(const struct digester *digester, size_t bytes, void *pinned)
{
    float ms = NAN;
    bool was_late = true;
    for (unsigned busy_ms = MICRO_BUSY_MS; was_late && busy_ms <= 8 * MICRO_BUSY_MS; busy_ms *= 2) {
        micro_start_spin(busy_ms, NULL);
        must(cuEventRecord(digester->begin, NULL));
        if (pinned)
            must(cuMemcpyDtoHAsync_v2(pinned, digester->from, bytes, NULL));
        else
            launch_digest(digester, bytes);
        must(cuEventRecord(digester->end, NULL));
        was_late = cuEventQuery(digester->begin) == CUDA_SUCCESS;
        must(cuCtxSynchronize());
        must(cuEventElapsedTime(&ms, digester->begin, digester->end));
    }
    return was_late ? (double)NAN : (double)ms;
}

static void fill_words(uint64_t *words, uint64_t count)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    for (uint64_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words[i] = state;
    }
}

static void ask_digest(const struct digester *digester, unsigned mib, uint64_t *words)
{
    size_t bytes = mib * MIB;
    uint64_t expected[2];
    char name[64];
    digest_on_host(words, bytes / sizeof(uint64_t), expected);
    snprintf(name, sizeof(name), "of_%uMiB", mib);
    figure_text(name, "%s", digests_are(digester, bytes, expected) ? "right" : "wrong");
    double digest_ms = time_on_device(digester, bytes, NULL),
           copy_ms = time_on_device(digester, bytes, words);
    if (isnan(digest_ms) || isnan(copy_ms)) {
        snprintf(name, sizeof(name), "of_%uMiB_by_the_copy", mib);
        could_not_try(name, "the CPU is too slow to keep the GPU busy meanwhile");
        return;
    }
    snprintf(name, sizeof(name), "of_%uMiB_takes", mib);
    figure(name, digest_ms * 1e3, "us");
    snprintf(name, sizeof(name), "of_%uMiB_by_the_copy", mib);
    figure(name, digest_ms / copy_ms, "ratio");
}

void check_digests(const struct check *check)
{
    const size_t most = 256 * MIB;
    struct digester digester;
    uint64_t *words;
    CUmodule module;
    (void)check;
    open_context();
    must(cuModuleLoadData(&module, digest_ptx));
    must(cuModuleGetFunction(&digester.kernel, module, DIGEST_KERNEL));
    must(cuMemHostAlloc((void **)&words, most, 0));
    must(cuMemAlloc_v2(&digester.from, most));
    must(cuMemHostAlloc((void **)&digester.parts, digest_part_count(most) * sizeof(*digester.parts), 0));
    must(cuMemHostAlloc((void **)&digester.sums, digest_part_count(most) * sizeof(*digester.sums), 0));
    must(cuEventCreate(&digester.begin, CU_EVENT_DEFAULT));
    must(cuEventCreate(&digester.end, CU_EVENT_DEFAULT));
    fill_words(words, most / sizeof(uint64_t));
    must(cuMemcpyHtoD_v2(digester.from, words, most));
    ask_digest(&digester, 2, words);
    ask_digest(&digester, 20, words);
    ask_digest(&digester, 256, words);
}
