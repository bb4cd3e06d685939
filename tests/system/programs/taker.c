/* taker - takes much GPU memory in parts, as allocators of frameworks do, and knows what it wrote to each part.
 *
 *   taker HOW BYTES PART [SEED]
 *
 * Takes BYTES in parts of PART; with SEED, of sizes by chance up to PART. HOW is linear (cuMemAlloc), physical (cuMemCreate, mapped),
 * async (cuMemAllocAsync) or in-turn (each part by the next of these). Then prints "got BYTES" and the result of the last request.
 * For each line on standard input it looks at every part and prints "good", or "bad N". Ends at the end of input. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "cuda/driver_more.h"
#include "driver_program.h"

#define PARTS_MOST 65536u
#define STEP (UINT64_C(2) << 20) /* physical memory is a multiple of this */

enum how { LINEAR, PHYSICAL, ASYNC, HOWS };

static const char *const how_names[] = {[LINEAR] = "linear", [PHYSICAL] = "physical", [ASYNC] = "async"};

static struct part {
    CUdeviceptr address;
    size_t bytes;
} parts[PARTS_MOST];
static unsigned count;

static CUresult take_physical(struct part *part)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    part->bytes = (part->bytes + STEP - 1) & ~(size_t)(STEP - 1);
    CUresult result = cuMemCreate(&handle, part->bytes, &prop, 0);
    if (result != CUDA_SUCCESS)
        return result;
    CHECK(cuMemAddressReserve(&part->address, part->bytes, 0, 0, 0));
    CHECK(cuMemMap(part->address, part->bytes, 0, handle, 0));
    CHECK(cuMemSetAccess(part->address, part->bytes, &access, 1));
    return CUDA_SUCCESS;
}

static CUresult take(enum how how, struct part *part)
{
    switch (how) {
    case PHYSICAL:
        return take_physical(part);
    case ASYNC:
        return cuMemAllocAsync(&part->address, part->bytes, NULL);
    default:
        return cuMemAlloc_v2(&part->address, part->bytes);
    }
}

/* A size by chance, up to `most`. */
static size_t chance(uint64_t *state, size_t most)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    size_t bytes = (size_t)(*state >> 33) % most & ~(size_t)3;
    return bytes ? bytes : 4;
}

static enum how how_of(const char *name)
{
    for (unsigned i = 0; i < HOWS; i++)
        if (strcmp(name, how_names[i]) == 0)
            return i;
    return count % HOWS;
}

/* `seed` 0: all parts have the same size. */
static CUresult take_all(const char *how, uint64_t wanted, size_t most, uint64_t seed, uint64_t *got)
{
    for (*got = 0; *got < wanted && count < PARTS_MOST; *got += parts[count++].bytes) {
        struct part *part = &parts[count];
        part->bytes = seed ? chance(&seed, most) : most;
        CUresult result = take(how_of(how), part);
        if (result != CUDA_SUCCESS)
            return result;
        CHECK(cuMemsetD32_v2(part->address, count, part->bytes / 4));
    }
    return CUDA_SUCCESS;
}

/* The first part whose first or last word is not its number; -1: none. */
static int find_bad(void)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned first, last;
        CHECK(cuMemcpyDtoH_v2(&first, parts[i].address, sizeof(first)));
        CHECK(cuMemcpyDtoH_v2(&last, parts[i].address + parts[i].bytes - sizeof(last), sizeof(last)));
        if (first != i || last != i)
            return (int)i;
    }
    return -1;
}

int main(int words, char **word)
{
    char line[64];
    uint64_t got;
    if (words < 4)
        return 2;
    CHECK(cuInit(0));
    use_gpu(0);
    CUresult result = take_all(word[1], strtoull(word[2], NULL, 10), strtoull(word[3], NULL, 10),
                               words > 4 ? strtoull(word[4], NULL, 10) : 0, &got);
    printf("got %" PRIu64 " %d\n", got, (int)result);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        int bad = find_bad();
        if (bad < 0)
            printf("good\n");
        else
            printf("bad %d\n", bad);
        fflush(stdout);
    }
    return 0;
}
