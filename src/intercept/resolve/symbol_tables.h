/* symbol_tables.h - the symbol tables of one loaded object, from its dynamic section. Calls no library function. */
#pragma once

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct symbol_tables {
    ElfW(Addr) base;
    const char *names;
    const char *soname; /* NULL when the object has none */
    const ElfW(Sym) * symbols;
    const ElfW(Half) * versions; /* NULL when the object has none */
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash; /* Elf64_Word on both processors that we support */
};

/* glibc's loader writes the loaded addresses into the dynamic section; other loaders leave offsets. */
static inline const void *symbol_tables_address(ElfW(Addr) base, ElfW(Addr) value)
{
    return (const void *)(value < base ? base + value : value);
}

/* False if the object has no symbols. */
static inline bool symbol_tables_read(ElfW(Addr) base, const ElfW(Dyn) * dynamic,
                                      struct symbol_tables *tables)
{
    *tables = (struct symbol_tables){.base = base};
    bool named = false;
    ElfW(Xword) soname = 0;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *address = symbol_tables_address(base, dynamic->d_un.d_ptr);
        switch (dynamic->d_tag) {
        case DT_STRTAB:
            tables->names = address;
            break;
        case DT_SYMTAB:
            tables->symbols = address;
            break;
        case DT_VERSYM:
            tables->versions = address;
            break;
        case DT_GNU_HASH:
            tables->gnu_hash = address;
            break;
        case DT_HASH:
            tables->sysv_hash = address;
            break;
        case DT_SONAME:
            named = true;
            soname = dynamic->d_un.d_val;
            break;
        }
    }
    if (!tables->names || !tables->symbols)
        return false;
    tables->soname = named ? tables->names + soname : NULL;
    return true;
}
