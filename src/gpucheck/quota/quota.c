/* quota.c - the exact edge of the quota, what a session sees of its GPU, and what dead processes leave behind. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpucheck/checks.h"
#include "gpucheck/nvml.h"
#include "gpucheck/part.h"

/* Runs in the session. */
void check_quota_exact(const struct check *check)
{
    enum { MOST = 4096 };
    static CUdeviceptr blocks[MOST];
    const size_t block_bytes = 2 * MIB;
    CUdeviceptr one;
    unsigned count = 0;
    open_context();
    uint64_t free_before = free_bytes();
    figure("quota", (double)CHECK_QUOTA_BYTES, "bytes");
    figure("free_beside_context", (double)free_before, "bytes");
    if (free_before >= CHECK_QUOTA_BYTES)
        fail("a context and a module cost nothing of the quota");

    CUresult result = CUDA_SUCCESS;
    while (count < MOST && (result = cuMemAlloc_v2(&blocks[count], block_bytes)) == CUDA_SUCCESS)
        count++;
    uint64_t left = free_bytes();
    figure("granted", (double)count * (double)block_bytes, "bytes");
    figure("left_at_refusal", (double)left, "bytes");
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        fail("at the quota cuMemAlloc answered %s", result_name(result));
    if (count * block_bytes > CHECK_QUOTA_BYTES)
        fail("%u blocks of 2 MiB fit into a quota of %llu bytes", count,
             (unsigned long long)CHECK_QUOTA_BYTES);
    if (left >= block_bytes)
        fail("refused with %llu bytes free", (unsigned long long)left);
    if (left && cuMemAlloc_v2(&one, left + 1) == CUDA_SUCCESS)
        fail("one byte more than what is free was granted");
    for (unsigned i = 0; i < count; i++)
        must(cuMemFree_v2(blocks[i]));

    /* Now all that is free in one piece, to the byte. If the driver's own memory changed in between, another amount
     * is free, and it tries again. */
    for (unsigned tries = 0;; tries++) {
        left = settle();
        if ((result = cuMemAlloc_v2(&one, left + 1)) == CUDA_SUCCESS) {
            must(cuMemFree_v2(one));
        } else if ((result = cuMemAlloc_v2(&one, left)) == CUDA_SUCCESS) {
            figure("granted_in_one_piece", (double)left, "bytes");
            must(cuMemFree_v2(one));
            return;
        }
        if (tries == 3 || free_bytes() == left) {
            fail("of %llu bytes that are free, %s", (unsigned long long)left,
                 result == CUDA_SUCCESS ? "one more was granted" : "not all were granted");
            return;
        }
    }
}

/* Runs in the session. */
void check_session_view(const struct check *check)
{
    size_t free_now, total, whole;
    open_context();
    must(cuMemGetInfo_v2(&free_now, &total));
    must(cuDeviceTotalMem_v2(&whole, 0));
    uint64_t nvml_total = nvml_total_bytes();
    figure("cuMemGetInfo_total", (double)total, "bytes");
    figure("cuDeviceTotalMem", (double)whole, "bytes");
    figure("nvml_total", (double)nvml_total, "bytes");
    if (total != CHECK_QUOTA_BYTES || whole != CHECK_QUOTA_BYTES || nvml_total != CHECK_QUOTA_BYTES)
        fail("in a session of %llu bytes cuMemGetInfo says %zu, cuDeviceTotalMem %zu, NVML %llu",
             (unsigned long long)CHECK_QUOTA_BYTES, total, whole, (unsigned long long)nvml_total);
}

/* hold BYTES: takes them, says so, and waits. */
void part_hold(const char *argument)
{
    CUdeviceptr address;
    open_context();
    size_t bytes = strtoull(argument, NULL, 10);
    must(cuMemAlloc_v2(&address, bytes));
    must(cuMemsetD8_v2(address, 1, bytes));
    must(cuCtxSynchronize());
    part_tell("holding");
    for (;;)
        part_listen();
}

/* --- Shared ---------------------------------------------------------------------------------------- */

enum { SHARED_BYTES = 64 << 20, HANDLE_BYTES = sizeof(CUipcMemHandle) };

/* share: takes memory and answers its handle in hexadecimal. */
void part_share(const char *argument)
{
    CUdeviceptr address;
    CUipcMemHandle handle;
    char text[2 * HANDLE_BYTES + 1];
    open_context();
    must(cuMemAlloc_v2(&address, SHARED_BYTES));
    must(cuMemsetD32_v2(address, 0x5ca1ab1e, SHARED_BYTES / 4));
    must(cuCtxSynchronize());
    CUresult result = cuIpcGetMemHandle(&handle, address);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        not_run("the driver shares no memory between processes here");
    must_succeed("cuIpcGetMemHandle", result);
    for (unsigned i = 0; i < HANDLE_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)handle.reserved[i]);
    part_tell("%s", text);
    for (;;)
        part_listen();
}

/* import: opens the handle that it is given, answers the memory's last word, and closes it. */
void part_import(const char *argument)
{
    CUdeviceptr address;
    CUipcMemHandle handle;
    uint32_t word;
    open_context();
    part_tell("0");
    const char *text = part_listen();
    for (unsigned i = 0; i < HANDLE_BYTES; i++) {
        unsigned byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        handle.reserved[i] = (char)byte;
    }
    must(cuIpcOpenMemHandle_v2(&address, handle, 1 /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */));
    must(cuMemcpyDtoH_v2(&word, address + SHARED_BYTES - 4, 4));
    part_tell("%u", word);
    part_listen();
    must(cuIpcCloseMemHandle(address));
    part_tell("0");
    part_listen();
}

void check_shared(const struct check *check)
{
    struct part maker, importer;
    part_start(&maker, PART_IN_SESSION, "share", "");
    char handle[2 * HANDLE_BYTES + 1];
    snprintf(handle, sizeof(handle), "%s", part_hear(&maker));
    part_start(&importer, PART_BESIDE(&maker), "import", "");
    part_hear(&importer);
    uint64_t before = session_use(maker.session).charged_bytes;
    uint64_t nvml_before = nvml_used_bytes(maker.pid);
    part_say(&importer, "%s", handle);
    if ((uint32_t)part_hear_number(&importer) != 0x5ca1ab1e)
        fail("what the importer reads is not what the maker wrote");
    int64_t more = (int64_t)(session_use(maker.session).charged_bytes - before);
    figure("shared", SHARED_BYTES, "bytes");
    figure("charged_more_with_the_import", (double)more, "bytes");
    figure("nvml_more_with_the_import", (double)(int64_t)(nvml_used_bytes(maker.pid) - nvml_before), "bytes");
    if (more != 0)
        fail("a session's own memory, imported by another of its processes, is charged %lld bytes more",
             (long long)more);
    part_say(&importer, "close");
    part_hear(&importer);
    more = (int64_t)(session_use(maker.session).charged_bytes - before);
    if (more != 0)
        fail("after the import's end %lld bytes more are charged", (long long)more);
    part_end(&importer);
    part_end(&maker);
}

/* --- Death ----------------------------------------------------------------------------------------- */

void check_death(const struct check *check)
{
    struct part witness, victim;
    part_start(&witness, PART_IN_SESSION, "hold", "2097152");
    part_hear(&witness);
    uint64_t before = session_use(witness.session).charged_bytes;
    uint64_t nvml_before = nvml_used_bytes(witness.pid);
    part_start(&victim, PART_BESIDE(&witness), "hold", "134217728");
    part_hear(&victim);
    uint64_t held = session_use(witness.session).charged_bytes - before;
    figure("held", (double)held, "bytes");
    if (held < 128 * MIB)
        fail("a second process of the session holds %llu bytes, %llu are charged",
             (unsigned long long)(128 * MIB), (unsigned long long)held);
    double start = now_s();
    part_kill(&victim);
    while (session_use(witness.session).charged_bytes > before && now_s() < start + 10)
        sleep_s(0.002);
    figure("until_back", (now_s() - start) * 1e3, "ms");
    uint64_t left = session_use(witness.session).charged_bytes - before;
    if (left)
        fail("%lld bytes are still charged 10 s after the death of who held them", (long long)left);
    figure("nvml_left", (double)(int64_t)(nvml_used_bytes(witness.pid) - nvml_before), "bytes");
    part_end(&witness);
}
