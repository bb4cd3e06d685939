/* resolve_symbols.c - finds the real dlsym and dlvsym in the loaded libraries' own symbol tables.
 *
 * The first dlsym of a process may come from a sanitizer's start-up. The sanitizer has replaced dl_iterate_phdr,
 * strcmp and the like, and cannot answer them yet, so this file calls no library function. It walks the loader's own
 * list of objects. libc and libdl are in it from the start of the program to its end, and objects that are loaded
 * later come behind them. */
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "intercept/resolve/resolve.h"
#include "intercept/resolve/symbol_tables.h"

static bool is_same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

/* Whether this is a definition of `name` that an unversioned lookup takes: the hidden bit marks older versions. */
static bool is_default_definition(const struct symbol_tables *tables, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &tables->symbols[index];
    return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
           !(tables->versions && tables->versions[index] & 0x8000) &&
           is_same(tables->names + symbol->st_name, name);
}

/* DT_GNU_HASH: number of buckets, first hashed symbol, bloom words, shift; bloom; buckets; chains, where the
 * low bit of a hash ends its chain. */
static uint32_t find_by_gnu_hash(const struct symbol_tables *tables, const char *name)
{
    uint32_t hash = 5381;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        hash = hash * 33 + *c;

    const uint32_t *header = tables->gnu_hash;
    uint32_t bucket_count = header[0], first = header[1], bloom_words = header[2];
    const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(header + 4) + bloom_words);
    const uint32_t *chains = buckets + bucket_count;
    uint32_t index = bucket_count ? buckets[hash % bucket_count] : 0;
    if (index < first)
        return 0;
    for (;; index++) {
        uint32_t seen = chains[index - first];
        if ((seen | 1) == (hash | 1) && is_default_definition(tables, index, name))
            return index;
        if (seen & 1)
            return 0;
    }
}

/* DT_HASH: bucket and chain counts, buckets, chains. The chain count is the number of symbols. Looking at all of them
 * needs no hash, and happens once in a process's life. */
static uint32_t find_by_sysv_hash(const struct symbol_tables *tables, const char *name)
{
    uint32_t symbol_count = tables->sysv_hash[1];
    for (uint32_t index = 1; index < symbol_count; index++) {
        if (is_default_definition(tables, index, name))
            return index;
    }
    return 0;
}

void *resolve_symbol_in(const char *soname, const char *symbol)
{
    for (const struct link_map *object = _r_debug.r_map; object; object = object->l_next) {
        struct symbol_tables tables;
        if (!symbol_tables_read(object->l_addr, object->l_ld, &tables) || !tables.soname ||
            !is_same(tables.soname, soname))
            continue;
        uint32_t index = tables.gnu_hash    ? find_by_gnu_hash(&tables, symbol)
                         : tables.sysv_hash ? find_by_sysv_hash(&tables, symbol)
                                            : 0;
        return index ? (void *)(tables.base + tables.symbols[index].st_value) : NULL;
    }
    return NULL;
}

/* In dlsym.S: find the real function, then jump to it. */
extern __attribute__((visibility("hidden"))) resolve_dlsym_function resolve_first_dlsym;
extern __attribute__((visibility("hidden"))) resolve_dlvsym_function resolve_first_dlvsym;

resolve_dlsym_function *resolve_real_dlsym = resolve_first_dlsym;
resolve_dlvsym_function *resolve_real_dlvsym = resolve_first_dlvsym;

static void *absent_dlsym(void *handle, const char *name)
{
    return NULL;
}

static void *absent_dlvsym(void *handle, const char *name, const char *version)
{
    return NULL;
}

/* These functions are in libc since glibc 2.34, and in libdl before. */
static void *find_in_libc(const char *symbol)
{
    void *found = resolve_symbol_in("libc.so.6", symbol);
    return found ? found : resolve_symbol_in("libdl.so.2", symbol);
}

void resolve_find_dlsym(void)
{
    /* dlsym.S reads both words with plain loads; a thread that still sees the old value comes here too. */
    void *dlvsym_found = find_in_libc("dlvsym"), *dlsym_found = find_in_libc("dlsym");
    __atomic_store_n(&resolve_real_dlvsym,
                     dlvsym_found ? (resolve_dlvsym_function *)dlvsym_found : absent_dlvsym,
                     __ATOMIC_RELEASE);
    __atomic_store_n(&resolve_real_dlsym, dlsym_found ? (resolve_dlsym_function *)dlsym_found : absent_dlsym,
                     __ATOMIC_RELEASE);
}

const struct resolve_libc *resolve_libc(void)
{
    static struct resolve_libc libc;
    static atomic_bool found;
    if (!atomic_load_explicit(&found, memory_order_acquire)) {
        /* Threads that come here at once write the same words. */
        __atomic_store_n((void **)&libc.dlopen, find_in_libc("dlopen"), __ATOMIC_RELAXED);
        __atomic_store_n((void **)&libc.dlclose, find_in_libc("dlclose"), __ATOMIC_RELAXED);
        __atomic_store_n((void **)&libc.dlerror, find_in_libc("dlerror"), __ATOMIC_RELAXED);
        __atomic_store_n((void **)&libc.dladdr, find_in_libc("dladdr"), __ATOMIC_RELAXED);
        atomic_store_explicit(&found, true, memory_order_release); /* pairs with the load above */
    }
    return &libc;
}
