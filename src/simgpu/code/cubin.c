/* cubin.c - a cubin is an ELF file for the machine EM_CUDA; what we need of it, as seen in those that
 * ptxas 13.0 writes:
 *
 *   .symtab            an entry point is a function with STO_CUDA_ENTRY; a variable is an object in one of the
 *                      sections of globals, with STO_CUDA_MANAGED where it is managed; texture and surface
 *                      references are symbols of types of their own, in no section
 *   .nv.info.KERNEL    attributes of one kernel: a format and an attribute byte, a 16-bit value or length, and
 *                      with EIFMT_SVAL so many bytes; among them a parameter's number, offset and size
 *   .nv.shared.KERNEL  its static shared memory */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/code/image.h"

#define EM_CUDA_MACHINE 190
#define OSABI_CUDA_BEFORE_13 0x33 /* architecture in the low byte of the flags */
#define OSABI_CUDA_13 0x41        /* architecture in the next byte */
#define STT_CUDA_TEXTURE 10
#define STT_CUDA_SURFACE 12
#define STO_CUDA_ENTRY 0x10
#define STO_CUDA_MANAGED 0x04

#define EIFMT_NVAL 1
#define EIFMT_BVAL 2
#define EIFMT_HVAL 3
#define EIFMT_SVAL 4
#define EIATTR_MAX_THREADS 0x05
#define EIATTR_PARAM_CBANK 0x0a
#define EIATTR_REQNTID 0x10
#define EIATTR_KPARAM_INFO 0x17
#define EIATTR_CBANK_PARAM_SIZE 0x19

#define GLOBAL_BYTES_MAX (UINT64_C(1) << 40)

struct cubin {
    const uint8_t *bytes;
    uint64_t size;
    Elf64_Ehdr header;
    uint64_t names, names_end; /* of sections: offsets into the file */
    uint64_t
        budget; /* bytes we may still look through: tables that overlap could make us read them for ever */
};

/* Whether the file has `count` things of `each` bytes at `offset`. */
static bool has(const struct cubin *cubin, uint64_t offset, uint64_t count, uint64_t each)
{
    uint64_t bytes;
    return !__builtin_mul_overflow(count, each, &bytes) && offset <= cubin->size &&
           bytes <= cubin->size - offset;
}

static bool spend(struct cubin *cubin, uint64_t bytes)
{
    if (bytes > cubin->budget)
        return false;
    cubin->budget -= bytes;
    return true;
}

/* The zero-terminated text at `offset` of a table that ends at `end`, both inside the file; NULL when it does
 * not end there. */
static const char *text_at(const struct cubin *cubin, uint64_t table, uint64_t end, uint64_t offset)
{
    if (offset >= end - table)
        return NULL;
    const uint8_t *text = cubin->bytes + table + offset;
    return memchr(text, 0, end - table - offset) ? (const char *)text : NULL;
}

static bool section_at(const struct cubin *cubin, uint64_t index, Elf64_Shdr *section)
{
    if (index >= cubin->header.e_shnum)
        return false;
    memcpy(section, cubin->bytes + cubin->header.e_shoff + index * sizeof(*section), sizeof(*section));
    return section->sh_type == SHT_NOBITS || has(cubin, section->sh_offset, section->sh_size, 1);
}

static const char *section_name(const struct cubin *cubin, const Elf64_Shdr *section)
{
    return text_at(cubin, cubin->names, cubin->names_end, section->sh_name);
}

/* What follows `prefix` in `name`, or NULL. */
static const char *after(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

static bool open_cubin(struct cubin *cubin, const uint8_t *bytes, size_t limit_bytes)
{
    cubin->bytes = bytes;
    cubin->size = limit_bytes;
    if (!has(cubin, 0, 1, sizeof(cubin->header)))
        return false;
    memcpy(&cubin->header, bytes, sizeof(cubin->header));
    const Elf64_Ehdr *header = &cubin->header;
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != EM_CUDA_MACHINE || header->e_shentsize != sizeof(Elf64_Shdr))
        return false;
    if (limit_bytes == SIM_IMAGE_UNKNOWN_BYTES) {
        /* ptxas writes the two tables of headers last, so they say where the file ends. */
        uint64_t sections_end = header->e_shoff + (uint64_t)header->e_shnum * header->e_shentsize;
        uint64_t programs_end = header->e_phoff + (uint64_t)header->e_phnum * header->e_phentsize;
        if (header->e_shoff > INT64_MAX || header->e_phoff > INT64_MAX)
            return false;
        cubin->size = sections_end > programs_end ? sections_end : programs_end;
    }
    Elf64_Shdr names;
    if (!has(cubin, header->e_shoff, header->e_shnum, sizeof(Elf64_Shdr)) ||
        !section_at(cubin, header->e_shstrndx, &names) || names.sh_type != SHT_STRTAB)
        return false;
    cubin->names = names.sh_offset;
    cubin->names_end = names.sh_offset + names.sh_size;
    cubin->budget = cubin->size > UINT64_MAX / 4 ? UINT64_MAX : cubin->size * 4;
    return true;
}

static unsigned cubin_architecture(const struct cubin *cubin)
{
    uint32_t flags = cubin->header.e_flags;
    return cubin->header.e_ident[EI_OSABI] == OSABI_CUDA_13 ? flags >> 8 & 0xff : flags & 0xff;
}

static CUresult damaged(struct error *error, const char *what)
{
    return image_fail(error, CUDA_ERROR_INVALID_IMAGE, "a damaged cubin: %s", what);
}

static CUresult out_of_memory(struct error *error)
{
    return image_fail(error, CUDA_ERROR_OUT_OF_MEMORY, "no host memory for a cubin's tables");
}

static CUresult read_global(struct cubin *cubin, const Elf64_Sym *symbol, const char *name,
                            struct sim_image *image, struct error *error)
{
    Elf64_Shdr section;
    const char *section_text;
    if (!section_at(cubin, symbol->st_shndx, &section) || !(section_text = section_name(cubin, &section)))
        return damaged(error, "a symbol without a section");
    if (strcmp(section_text, ".nv.global") != 0 && strcmp(section_text, ".nv.global.init") != 0 &&
        strcmp(section_text, ".nv.constant3") != 0)
        return CUDA_SUCCESS;
    uint64_t offset = symbol->st_value;
    if (offset > section.sh_size || symbol->st_size > section.sh_size - offset ||
        symbol->st_size > GLOBAL_BYTES_MAX)
        return damaged(error, "a variable beyond its section");
    struct sim_global *global = image_add_global(image, name, strlen(name));
    if (!global)
        return out_of_memory(error);
    uint64_t alignment = section.sh_addralign;
    while (alignment > 1 && offset % alignment)
        alignment /= 2;
    global->alignment_bytes =
        alignment && alignment <= 4096 && !(alignment & (alignment - 1)) ? (uint32_t)alignment : 1;
    global->size_bytes = symbol->st_size;
    global->is_managed = symbol->st_other & STO_CUDA_MANAGED;
    if (section.sh_type != SHT_NOBITS && symbol->st_size) {
        if (!spend(cubin, symbol->st_size))
            return damaged(error, "variables that overlap");
        global->data = malloc(symbol->st_size);
        if (!global->data)
            return out_of_memory(error);
        memcpy(global->data, cubin->bytes + section.sh_offset + offset, symbol->st_size);
    }
    return CUDA_SUCCESS;
}

static CUresult read_symbols(struct cubin *cubin, const Elf64_Shdr *table, struct sim_image *image,
                             struct error *error)
{
    Elf64_Shdr strings;
    if (table->sh_entsize != sizeof(Elf64_Sym) || !spend(cubin, table->sh_size) ||
        !section_at(cubin, table->sh_link, &strings) || strings.sh_type != SHT_STRTAB)
        return damaged(error, "its symbol table");
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, cubin->bytes + table->sh_offset + i * sizeof(symbol), sizeof(symbol));
        unsigned type = ELF64_ST_TYPE(symbol.st_info);
        bool is_reference = type == STT_CUDA_TEXTURE || type == STT_CUDA_SURFACE; /* in no section */
        if (!is_reference && (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_OBJECT)))
            continue;
        const char *name =
            text_at(cubin, strings.sh_offset, strings.sh_offset + strings.sh_size, symbol.st_name);
        if (!name || !name[0] || !spend(cubin, strlen(name)))
            return damaged(error, "a symbol without a name");
        if (is_reference) {
            struct sim_global *global = image_add_global(image, name, strlen(name));
            if (!global)
                return out_of_memory(error);
            global->kind = type == STT_CUDA_TEXTURE ? SIM_GLOBAL_TEXTURE : SIM_GLOBAL_SURFACE;
        } else if (type == STT_OBJECT) {
            CUresult result = read_global(cubin, &symbol, name, image, error);
            if (result)
                return result;
        } else if (symbol.st_other & STO_CUDA_ENTRY) {
            if (!image_add_kernel(image, name, strlen(name)))
                return out_of_memory(error);
        }
    }
    return CUDA_SUCCESS;
}

static uint32_t word_at(const uint8_t *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

static uint16_t half_at(const uint8_t *bytes)
{
    uint16_t half;
    memcpy(&half, bytes, sizeof(half));
    return half;
}

static int compare_offsets(const void *left, const void *right)
{
    uint32_t a = ((const struct sim_parameter *)left)->offset_bytes;
    uint32_t b = ((const struct sim_parameter *)right)->offset_bytes;
    return a < b ? -1 : a > b;
}

/* Add the parameter that an EIATTR_KPARAM_INFO describes: number (16 bits) and offset (16 bits) in the second
 * word, the size in the upper 14 bits of the third. They come in any order. */
static CUresult read_parameter(struct sim_kernel_image *kernel, const uint8_t *value)
{
    uint32_t size = word_at(value + 8) >> 18;
    uint16_t offset = half_at(value + 6);
    CUresult result = image_add_parameter(kernel, 0, 1);
    if (result)
        return result;
    if (size > SIM_IMAGE_PARAMETER_BYTES || offset > SIM_IMAGE_PARAMETER_BYTES - size)
        return CUDA_ERROR_INVALID_IMAGE;
    kernel->parameters[kernel->parameter_count - 1] = (struct sim_parameter){offset, size};
    return CUDA_SUCCESS;
}

static CUresult read_attributes(struct cubin *cubin, const Elf64_Shdr *section,
                                struct sim_kernel_image *kernel)
{
    uint32_t declared_bytes = 0;
    if (section->sh_type == SHT_NOBITS || kernel->parameter_count || !spend(cubin, section->sh_size))
        return CUDA_ERROR_INVALID_IMAGE;
    const uint8_t *at = cubin->bytes + section->sh_offset, *end = at + section->sh_size;
    while (end - at >= 4) {
        uint8_t format = at[0], attribute = at[1];
        uint16_t number = half_at(at + 2);
        const uint8_t *value = at + 4;
        at = value;
        if (format == EIFMT_SVAL) {
            if (number > end - at)
                return CUDA_ERROR_INVALID_IMAGE;
            at += number;
        } else if (format < EIFMT_NVAL || format > EIFMT_HVAL) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
        if (attribute == EIATTR_CBANK_PARAM_SIZE && format == EIFMT_HVAL) {
            declared_bytes = number;
        } else if (attribute == EIATTR_PARAM_CBANK && format == EIFMT_SVAL && number >= 8) {
            declared_bytes = half_at(value + 6);
        } else if (attribute == EIATTR_KPARAM_INFO && format == EIFMT_SVAL && number >= 12) {
            CUresult result = read_parameter(kernel, value);
            if (result)
                return result;
        } else if ((attribute == EIATTR_MAX_THREADS || attribute == EIATTR_REQNTID) && format == EIFMT_SVAL &&
                   number >= 12) {
            uint64_t threads = 1;
            for (unsigned i = 0; i < 3; i++)
                if (__builtin_mul_overflow(threads, word_at(value + i * 4), &threads) || threads > UINT32_MAX)
                    return CUDA_ERROR_INVALID_IMAGE;
            kernel->max_threads = (uint32_t)threads;
        }
    }
    if (kernel->parameter_count)
        qsort(kernel->parameters, kernel->parameter_count, sizeof(struct sim_parameter), compare_offsets);
    uint32_t end_bytes = 0;
    for (uint32_t i = 0; i < kernel->parameter_count; i++) {
        if (kernel->parameters[i].offset_bytes < end_bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        end_bytes = kernel->parameters[i].offset_bytes + kernel->parameters[i].size_bytes;
    }
    if (declared_bytes > SIM_IMAGE_PARAMETER_BYTES)
        return CUDA_ERROR_INVALID_IMAGE;
    kernel->parameter_bytes = declared_bytes > end_bytes ? declared_bytes : end_bytes;
    return CUDA_SUCCESS;
}

static CUresult read_kernels(struct cubin *cubin, struct sim_image *image, struct error *error)
{
    for (uint64_t i = 0; i < cubin->header.e_shnum; i++) {
        Elf64_Shdr section;
        const char *name, *owner;
        if (!section_at(cubin, i, &section) || !(name = section_name(cubin, &section)))
            return damaged(error, "a section beyond its end");
        /* sim_image_kernel() finds a const row, but we fill this table. */
        if ((owner = after(name, ".nv.info."))) {
            struct sim_kernel_image *kernel = (struct sim_kernel_image *)sim_image_kernel(image, owner);
            CUresult result = kernel ? read_attributes(cubin, &section, kernel) : CUDA_SUCCESS;
            if (result == CUDA_ERROR_OUT_OF_MEMORY)
                return out_of_memory(error);
            if (result)
                return damaged(error, "a kernel's attributes");
        } else if ((owner = after(name, ".nv.shared."))) {
            struct sim_kernel_image *kernel = (struct sim_kernel_image *)sim_image_kernel(image, owner);
            if (kernel)
                kernel->shared_bytes = section.sh_size > UINT32_MAX ? UINT32_MAX : (uint32_t)section.sh_size;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cubin_parse(const uint8_t *bytes, size_t limit_bytes, unsigned architecture,
                     struct sim_image **parsed, struct error *error)
{
    struct cubin cubin;
    if (!open_cubin(&cubin, bytes, limit_bytes))
        return damaged(error, "not a 64-bit ELF file for CUDA, or cut short");
    unsigned code = cubin_architecture(&cubin);
    if (!image_code_runs(code, architecture))
        return image_fail(error, CUDA_ERROR_NO_BINARY_FOR_GPU,
                          "the cubin is for sm_%u, the GPU is sm_%u: build for that, or give PTX", code,
                          architecture);
    struct sim_image *image = image_new(SIM_IMAGE_CUBIN);
    if (!image)
        return out_of_memory(error);
    image->architecture = code;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; !result && i < cubin.header.e_shnum; i++) {
        Elf64_Shdr section;
        if (!section_at(&cubin, i, &section))
            result = damaged(error, "a section beyond its end");
        else if (section.sh_type == SHT_SYMTAB)
            result = read_symbols(&cubin, &section, image, error);
    }
    if (!result && !image_finish(image))
        result = damaged(error, "two kernels of one name");
    if (!result)
        result = read_kernels(&cubin, image, error);
    if (result) {
        sim_image_free(image);
        return result;
    }
    *parsed = image;
    return CUDA_SUCCESS;
}
