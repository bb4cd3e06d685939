/* resolve.c - cuGetProcAddress, and what the library exports: every row of the table has an address here. */
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/entry_points.h"

/* This file and stubs.c see the entry points as untyped symbols, so they do not include prototypes.h. */
#define CUDA_ENTRY(symbol, name, since, stream, class) extern CUresult symbol(void);
#pragma GCC visibility push(default)
#include "cuda/entry_points.def"
#pragma GCC visibility pop
#undef CUDA_ENTRY

#include "simgpu/device/constants.h"
#include "simgpu/device/cuda_release.h"
#include "simgpu/driver/resolve.h"

/* Another address for each entry point, as cuGetProcAddress may give: code that jumps to the exported function. The
 * linker leads it there within the library (-Bsymbolic-functions), whatever other library defines the name. */
#if defined(__x86_64__)
#define GO_TO(symbol) "jmp " #symbol "@PLT\n"
#elif defined(__aarch64__)
#define GO_TO(symbol) "b " #symbol "\n"
#endif
#define CUDA_ENTRY(symbol, name, since, stream, class)                                                       \
    __asm__(".pushsection .text\n.balign 16\n.type apart_" #symbol ", %function\napart_" #symbol             \
            ":\n" GO_TO(symbol) ".size apart_" #symbol ", .-apart_" #symbol "\n.popsection");                \
    extern __attribute__((visibility("hidden"))) CUresult apart_##symbol(void);
#include "cuda/entry_points.def"
#undef CUDA_ENTRY

static CUresult (*const apart[CUDA_ENTRY_COUNT])(void) = {
#define CUDA_ENTRY(symbol, name, since, stream, class) apart_##symbol,
#include "cuda/entry_points.def"
#undef CUDA_ENTRY
};

static CUresult (*const addresses[CUDA_ENTRY_COUNT])(void) = {
#define CUDA_ENTRY(symbol, name, since, stream, class) symbol,
#include "cuda/entry_points.def"
#undef CUDA_ENTRY
};

/* --- What the library exports ---------------------------------------------------------------------- */

/* The entries of this library's symbol table for what came after its release, and where the first and the last are. */
struct hidden {
    ElfW(Sym) * symbols[CUDA_ENTRY_COUNT];
    size_t count;
    uintptr_t first, end;
};

extern const char __ehdr_start[] __attribute__((visibility("hidden")));

/* What an entry of the dynamic section points to. glibc has added where the library is loaded to most of them. */
static uintptr_t of_dynamic(ElfW(Sxword) tag)
{
    uintptr_t base = (uintptr_t)__ehdr_start;
    for (const ElfW(Dyn) *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag)
            return entry->d_un.d_ptr < base ? base + entry->d_un.d_ptr : entry->d_un.d_ptr;
    return 0;
}

/* The linker puts the strings of the symbol table right behind it. */
static void find_hidden(struct hidden *hidden)
{
    int newest = cuda_release()->number;
    const char *names = (const char *)of_dynamic(DT_STRTAB);
    ElfW(Sym) *symbol = (ElfW(Sym) *)of_dynamic(DT_SYMTAB);
    for (; symbol && (uintptr_t)(symbol + 1) <= (uintptr_t)names; symbol++) {
        int row = symbol->st_shndx != SHN_UNDEF ? cuda_entry_find(names + symbol->st_name) : -1;
        if (row < 0 || cuda_entries[row].since <= newest || hidden->count == CUDA_ENTRY_COUNT)
            continue;
        uintptr_t at = (uintptr_t)symbol;
        hidden->symbols[hidden->count++] = symbol;
        hidden->first = !hidden->first || at < hidden->first ? at : hidden->first;
        hidden->end = at + sizeof(*symbol) > hidden->end ? at + sizeof(*symbol) : hidden->end;
    }
}

/* A driver does not export what came after its release, and programs ask for symbols to see what it has. So when the library
 * is loaded, those symbols become undefined ones in its table. */
__attribute__((constructor)) static void hide_newer(void)
{
    static struct hidden hidden;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    find_hidden(&hidden);
    void *pages = (void *)(hidden.first & ~(page - 1));
    size_t bytes = ((hidden.end + page - 1) & ~(page - 1)) - (uintptr_t)pages;
    if (!hidden.count || mprotect(pages, bytes, PROT_READ | PROT_WRITE) != 0)
        return;
    for (size_t i = 0; i < hidden.count; i++) {
        hidden.symbols[i]->st_shndx = SHN_UNDEF;
        hidden.symbols[i]->st_value = 0;
    }
    mprotect(pages, bytes, PROT_READ);
}

/* --- Answers --------------------------------------------------------------------------------------- */

/* A driver has the names and forms of its own release and of those before: others it does not know at all. */
static int find(const char *name, int version, cuuint64_t flags)
{
    int newest = cuda_release()->number;
    int row = cuda_entry_resolve(name, version < newest ? version : newest, flags);
    if (row == CUDA_ENTRY_TOO_NEW && cuda_entry_resolve(name, newest, flags) < 0)
        return CUDA_ENTRY_UNKNOWN;
    return row;
}

CUresult resolve_entry(const char *name, void **address, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status)
{
    const cuuint64_t both = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!name || !address || (flags & ~both) != 0 || flags == both)
        return CUDA_ERROR_INVALID_VALUE;
    int row = find(name, version, flags);
    if (status)
        *status = row >= 0                    ? CU_GET_PROC_ADDRESS_SUCCESS
                  : row == CUDA_ENTRY_TOO_NEW ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    bool is_apart = constant_early(SIM_APART_POINTERS) != 0;
    *address = row < 0 ? NULL : is_apart ? (void *)apart[row] : (void *)addresses[row];
    return CUDA_SUCCESS; /* cuda.h 13.0: also with NULL */
}
