/* unknown_linked.c - finds functions of the driver that a program is linked with and that no table of ours knows. The loader
 * binds such a call to the driver itself, so no thunk can see it. */
#include <string.h>

#include "cuda/entry_points.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/resolve.h"
#include "intercept/resolve/symbol_tables.h"
#include "intercept/resolve/unknown.h"

#define NAMES_MOST 64u
#define NAME_BYTES 80u

/* Copied, since the driver is asked for them when the loader's lock is free again. */
struct names {
    unsigned count;
    char names[NAMES_MOST][NAME_BYTES];
};

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

static bool is_linked_with_driver(const ElfW(Dyn) * dynamic, const struct symbol_tables *tables)
{
    for (; dynamic->d_tag != DT_NULL; dynamic++)
        if (dynamic->d_tag == DT_NEEDED && strncmp(tables->names + dynamic->d_un.d_val, RESOLVE_DRIVER_FILE,
                                                   strlen(RESOLVE_DRIVER_FILE)) == 0)
            return true;
    return false;
}

/* Undefined symbols come first: before those that DT_GNU_HASH has, which tells where they begin. DT_HASH has all. */
static uint32_t symbols_to_see(const struct symbol_tables *tables)
{
    if (tables->gnu_hash)
        return tables->gnu_hash[1];
    return tables->sysv_hash ? tables->sysv_hash[1] : 0;
}

static void see_symbol(const char *name, struct names *names)
{
    if (strncmp(name, "cu", 2) != 0 || name[2] < 'A' || name[2] > 'Z' || strlen(name) >= NAME_BYTES ||
        names->count == NAMES_MOST || cuda_entry_find(name) >= 0)
        return;
    strcpy(names->names[names->count++], name);
}

static int see_object(struct dl_phdr_info *info, size_t size, void *argument)
{
    const ElfW(Dyn) *dynamic = dynamic_of(info);
    struct symbol_tables tables;
    if (!dynamic || !symbol_tables_read(info->dlpi_addr, dynamic, &tables) ||
        !is_linked_with_driver(dynamic, &tables))
        return 0;
    for (uint32_t i = 1, end = symbols_to_see(&tables); i < end; i++)
        if (tables.symbols[i].st_shndx == SHN_UNDEF)
            see_symbol(tables.names + tables.symbols[i].st_name, argument);
    return 0;
}

void unknown_find_linked(void)
{
    struct names names = {0};
    dl_iterate_phdr(see_object, &names);
    for (unsigned i = 0; i < names.count; i++) {
        void *function = real_driver_symbol(names.names[i]);
        if (function)
            unknown_linked(names.names[i], function);
    }
}
