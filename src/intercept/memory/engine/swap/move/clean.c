#include "intercept/memory/engine/swap/move/clean.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "intercept/memory/engine/swap/move/tools.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"

#define COMPARED_BYTES (UINT64_C(8) << 20) /* compared at a time */

enum clean_mode clean_mode_read(void)
{
    static atomic_bool said;
    static const char *const names[] = {
        [CLEAN_TRUST] = "trust", [CLEAN_VERIFY] = "verify", [CLEAN_COPY] = "copy"};
    const char *text = secure_getenv("GPUSLICE_UNCHANGED");
    if (!text || !*text)
        return CLEAN_TRUST;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i]) == 0)
            return (enum clean_mode)i;
    report_once(
        &said,
        "GPUSLICE_UNCHANGED is '%s'; expected 'trust', 'verify' or 'copy': all memory is copied each time it "
        "leaves the GPU",
        text);
    return CLEAN_COPY;
}

bool clean_is_same(const struct swap_tools *tools, CUdeviceptr address, const struct arena *arena,
                   uint64_t place, uint64_t bytes)
{
    unsigned char *seen =
        mmap(NULL, COMPARED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        return false;
    bool is_same = true;
    for (uint64_t at = 0; at < bytes && is_same; at += COMPARED_BYTES) {
        uint64_t part = bytes - at < COMPARED_BYTES ? bytes - at : COMPARED_BYTES;
        is_same = real(cuMemcpyDtoHAsync_v2)(seen, address + at, part, tools->digests) == CUDA_SUCCESS &&
                  real(cuStreamSynchronize)(tools->digests) == CUDA_SUCCESS &&
                  memcmp(seen, arena->base + place + at, part) == 0;
    }
    munmap(seen, COMPARED_BYTES);
    return is_same;
}

/* --- Whether digests are worth it ------------------------------------------------------------------ */

#define SLOW_MOVES 2u /* in a row: once, the GPU may have had other work */
#define MOVES_WITHOUT 16u

static bool takes_longer(const struct pace *one, const struct pace *other)
{
    return one->ns * (double)other->bytes > other->ns * (double)one->bytes;
}

bool clean_begin_move(struct swap_tools *tools)
{
    struct digests_worth *worth = &tools->worth;
    tools->digester.pace = tools->pace = (struct pace){0};
    if (!worth->moves_without)
        return true;
    worth->moves_without--;
    return false;
}

void clean_end_move(struct swap_tools *tools)
{
    struct digests_worth *worth = &tools->worth;
    const struct pace *digests = &tools->digester.pace;
    if (tools->pace.bytes)
        worth->copies = tools->pace;
    if (!digests->bytes || !worth->copies.bytes)
        return;
    worth->slow_moves = takes_longer(digests, &worth->copies) ? worth->slow_moves + 1 : 0;
    if (worth->slow_moves == SLOW_MOVES) {
        worth->slow_moves = SLOW_MOVES - 1; /* then once more is enough */
        worth->moves_without = MOVES_WITHOUT;
    }
}
