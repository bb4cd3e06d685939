/* unknown_linked.c - finds functions of the driver that a program is linked with and that no table of ours knows. The loader
 * binds such a call to the driver itself, so no thunk can see it. */
#include <elf.h>
#include <link.h>
#include <string.h>

#include "cuda/entry_points.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/resolve.h"
#include "intercept/resolve/unknown.h"

#define NAMES_MOST 64u
#define NAME_BYTES 80u

/* Copied, since the driver is asked for them when the loader's lock is free again. */
struct names {
    unsigned count;
    char names[NAMES_MOST][NAME_BYTES];
};

struct object {
    ElfW(Addr) base;
    const ElfW(Dyn) * dynamic;
    const char *strings;
    const ElfW(Sym) * symbols;
    const uint32_t *gnu_hash, *sysv_hash;
};

/* glibc's loader writes the loaded addresses into the dynamic section; other loaders leave offsets. */
static const void *loaded_address(const struct object *object, ElfW(Addr) value)
{
    return (const void *)(value < object->base ? object->base + value : value);
}

static bool read_object(const struct dl_phdr_info *info, struct object *object)
{
    *object = (struct object){.base = info->dlpi_addr};
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            object->dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (const ElfW(Dyn) *at = object->dynamic; at && at->d_tag != DT_NULL; at++) {
        const void *address = loaded_address(object, at->d_un.d_ptr);
        if (at->d_tag == DT_STRTAB)
            object->strings = address;
        else if (at->d_tag == DT_SYMTAB)
            object->symbols = address;
        else if (at->d_tag == DT_GNU_HASH)
            object->gnu_hash = address;
        else if (at->d_tag == DT_HASH)
            object->sysv_hash = address;
    }
    return object->strings && object->symbols;
}

static bool is_linked_with_driver(const struct object *object)
{
    for (const ElfW(Dyn) *at = object->dynamic; at->d_tag != DT_NULL; at++)
        if (at->d_tag == DT_NEEDED &&
            strncmp(object->strings + at->d_un.d_val, RESOLVE_DRIVER_FILE, strlen(RESOLVE_DRIVER_FILE)) == 0)
            return true;
    return false;
}

/* Undefined symbols come first: before those that DT_GNU_HASH has, which tells where they begin. DT_HASH has all. */
static uint32_t symbols_to_see(const struct object *object)
{
    if (object->gnu_hash)
        return object->gnu_hash[1];
    return object->sysv_hash ? object->sysv_hash[1] : 0;
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
    struct object object;
    if (!read_object(info, &object) || !is_linked_with_driver(&object))
        return 0;
    for (uint32_t i = 1, end = symbols_to_see(&object); i < end; i++)
        if (object.symbols[i].st_shndx == SHN_UNDEF)
            see_symbol(object.strings + object.symbols[i].st_name, argument);
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
