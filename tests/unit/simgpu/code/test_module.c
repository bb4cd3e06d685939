/* Tests of reading images: PTX text, cubins and fatbins put together here, nvcc's own where it is installed,
 * and damaged ones of every kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels_ptx.h"
#include "simgpu/code/module.h"

#define PTX_HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static struct error error;

static struct sim_image *parse(const void *bytes, size_t length)
{
    struct sim_image *image = NULL;
    CUresult result = sim_image_parse(bytes, length, 90, &image, &error);
    if (result)
        print_message("refused: %d %s\n", result, error.message);
    assert_int_equal(result, CUDA_SUCCESS);
    return image;
}

static struct sim_image *parse_ptx(const char *text)
{
    return parse(text, SIM_IMAGE_UNKNOWN_BYTES);
}

static CUresult refusal(const void *bytes, size_t length)
{
    struct sim_image *image = NULL;
    memset(&error, 0, sizeof(error));
    CUresult result = sim_image_parse(bytes, length, 90, &image, &error);
    assert_null(image);
    assert_int_not_equal(result, CUDA_SUCCESS);
    assert_true(strlen(error.message) > 10);
    return result;
}

static CUresult ptx_refusal(const char *text)
{
    return refusal(text, SIM_IMAGE_UNKNOWN_BYTES);
}

static void assert_parameter(const struct sim_kernel_image *kernel, unsigned index, unsigned offset,
                             unsigned size)
{
    assert_true(index < kernel->parameter_count);
    assert_int_equal(kernel->parameters[index].offset_bytes, offset);
    assert_int_equal(kernel->parameters[index].size_bytes, size);
}

/* --- PTX ------------------------------------------------------------------------------------------- */

static void ptx_tells_kernels_and_their_parameters(void **state)
{
    struct sim_image *image =
        parse_ptx("// a comment with .entry in it\n/* another\n .entry */" PTX_HEAD
                  ".visible .entry b(.param .u32 n, .param .f64 x, .param .u8 c,\n"
                  "  .param .u64 .ptr .global .align 16 p, .param .align 4 .b8 s[20])\n"
                  ".maxntid 128, 2, 1 .minnctapersm 2\n{ .reg .b32 %r<2>; { } ret; /* } */ }\n"
                  ".entry a() { $L: ret; }\n"
                  ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 g);\n"
                  ".func helper(.param .b32 x) { ret; }\n"
                  ".file 1 \"a.cu\", 12, 34\n"
                  ".section .debug_str { .b8 1,2 }\n");
    assert_int_equal(image->kind, SIM_IMAGE_PTX);
    assert_int_equal(image->ptx_version, 70);
    assert_int_equal(image->architecture, 70);
    assert_int_equal(image->kernel_count, 2);
    const struct sim_kernel_image *kernel = sim_image_kernel(image, "b");
    assert_non_null(kernel);
    assert_int_equal(kernel->parameter_count, 5);
    assert_int_equal(kernel->parameter_bytes, 52);
    assert_parameter(kernel, 0, 0, 4);
    assert_parameter(kernel, 1, 8, 8);
    assert_parameter(kernel, 2, 16, 1);
    assert_parameter(kernel, 3, 24, 8);
    assert_parameter(kernel, 4, 32, 20);
    assert_int_equal(kernel->max_threads, 256);
    kernel = sim_image_kernel(image, "a");
    assert_int_equal(kernel->parameter_count, 0);
    assert_int_equal(kernel->max_threads, 0);
    assert_null(sim_image_kernel(image, "helper"));
    assert_int_equal(image->global_count, 0);
    sim_image_free(image);
}

static void ptx_tells_variables_and_their_simple_contents(void **state)
{
    struct sim_image *image =
        parse_ptx(PTX_HEAD ".visible .global .align 4 .u32 one = 5;\n"
                           ".global .align 16 .b8 buffer[400];\n"
                           ".const .align 4 .b8 bytes[6] = {1, 0x2, 0, 255};\n"
                           ".global .attribute(.managed) .align 8 .f64 number = 0d3FF0000000000000, other;\n"
                           ".global .v4 .f32 vector;\n"
                           ".global .s16 rows[2][3] = {{1, 2, 3}, {4, 5, 6}}, minus = -2;\n"
                           ".global .u64 pointer = generic(one);\n"
                           ".global .u8 open[] = {7, 8, 9};\n"
                           ".extern .global .u32 elsewhere;\n"
                           ".shared .align 4 .b8 shared[64];\n");
    const struct sim_global *global = sim_image_global(image, "one");
    assert_int_equal(global->size_bytes, 4);
    assert_memory_equal(global->data, "\5\0\0\0", 4);
    global = sim_image_global(image, "buffer");
    assert_int_equal(global->size_bytes, 400);
    assert_int_equal(global->alignment_bytes, 16);
    assert_null(global->data);
    global = sim_image_global(image, "bytes");
    assert_int_equal(global->size_bytes, 6);
    assert_memory_equal(global->data, "\1\2\0\377\0\0", 6);
    global = sim_image_global(image, "number");
    assert_true(global->is_managed);
    assert_memory_equal(global->data, "\0\0\0\0\0\0\360\77", 8);
    assert_int_equal(sim_image_global(image, "other")->size_bytes, 8);
    assert_int_equal(sim_image_global(image, "vector")->size_bytes, 16);
    assert_int_equal(sim_image_global(image, "vector")->alignment_bytes, 16);
    assert_int_equal(sim_image_global(image, "rows")->size_bytes, 12);
    assert_null(sim_image_global(image, "rows")->data);
    assert_memory_equal(sim_image_global(image, "minus")->data, "\376\377", 2);
    assert_null(sim_image_global(image, "pointer")->data);
    assert_int_equal(sim_image_global(image, "open")->size_bytes, 3);
    assert_memory_equal(sim_image_global(image, "open")->data, "\7\10\11", 3);
    assert_null(sim_image_global(image, "elsewhere"));
    assert_null(sim_image_global(image, "shared"));
    assert_int_equal(image->global_count, 10);
    sim_image_free(image);
}

static void ptx_tells_references_that_are_not_memory(void **state)
{
    struct sim_image *image = parse_ptx(PTX_HEAD ".visible .global .texref picture;\n"
                                                 ".tex .u32 old;\n"
                                                 ".global .surfref canvas;\n"
                                                 ".global .u32 word;\n");
    assert_int_equal(image->global_count, 4);
    assert_int_equal(sim_image_global(image, "picture")->kind, SIM_GLOBAL_TEXTURE);
    assert_int_equal(sim_image_global(image, "picture")->size_bytes, 0);
    assert_int_equal(sim_image_global(image, "old")->kind, SIM_GLOBAL_TEXTURE);
    assert_int_equal(sim_image_global(image, "canvas")->kind, SIM_GLOBAL_SURFACE);
    assert_int_equal(sim_image_global(image, "word")->kind, SIM_GLOBAL_MEMORY);
    sim_image_free(image);
}

static void ptx_of_known_length_needs_no_zero(void **state)
{
    char text[sizeof(PTX_HEAD) + 20];
    snprintf(text, sizeof(text), PTX_HEAD ".entry e(){}");
    size_t length = strlen(text);
    text[length] = '?';
    struct sim_image *image = parse(text, length);
    assert_non_null(sim_image_kernel(image, "e"));
    sim_image_free(image);
}

static void what_is_not_ptx_is_told_with_its_line(void **state)
{
    assert_int_equal(ptx_refusal("hello"), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(ptx_refusal(""), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(ptx_refusal("// only a comment"), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(ptx_refusal(".version 9.1\n.target sm_70\n"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    assert_int_equal(ptx_refusal(".version x\n.target sm_70\n"), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(ptx_refusal(".version 7.0\n"), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(ptx_refusal(".version 7.0\n.target sm_120\n"), CUDA_ERROR_INVALID_PTX);
    assert_non_null(strstr(error.message, "sm_120"));
    assert_int_equal(ptx_refusal(PTX_HEAD "\n\nnonsense;"), CUDA_ERROR_INVALID_PTX);
    assert_non_null(strstr(error.message, "line 6"));
    assert_int_equal(ptx_refusal(PTX_HEAD ".entry e( { }"), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(ptx_refusal(PTX_HEAD ".entry e() { { }"), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(ptx_refusal(PTX_HEAD ".entry e() {} .entry e() {}"), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(ptx_refusal(PTX_HEAD ".entry e(.param .b8 x[99999]) {}"), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(ptx_refusal(PTX_HEAD ".global .b64 x[9999999999999][9999999999999];"),
                     CUDA_ERROR_INVALID_PTX);
    assert_int_equal(ptx_refusal(PTX_HEAD ".global .align 3 .b64 x;"), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(ptx_refusal(PTX_HEAD ".file 1 \"open"), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(sim_image_parse(NULL, 10, 90, &(struct sim_image *){0}, &error),
                     CUDA_ERROR_INVALID_VALUE);
}

/* --- Cubins and fatbins, put together by hand ------------------------------------------------------ */

struct bytes {
    uint8_t data[4096];
    size_t length;
};

static size_t append(struct bytes *bytes, const void *data, size_t length)
{
    size_t offset = bytes->length;
    assert_true(offset + length <= sizeof(bytes->data));
    memcpy(bytes->data + offset, data, length);
    bytes->length += length;
    return offset;
}

enum { NAMES = 1, STRINGS, SYMBOLS, INFO, SHARED, GLOBAL, INITIALISED, CODE, SECTIONS };

/* A cubin for sm_90 with a kernel `k` of (u32, u64), another without parameters, a device function, 100 zero
 * bytes `z`, a managed 4-byte `m` behind a 2-byte `s`, a texture reference `t` and a surface reference `u`. */
static struct bytes make_cubin(void)
{
    static const char names[] = "\0.shstrtab\0.strtab\0.symtab\0.nv.info.k\0.nv.shared.k\0.nv.global\0"
                                ".nv.global.init\0.text.k";
    static const uint32_t name_of[SECTIONS] = {0, 1, 11, 19, 27, 38, 51, 62, 78};
    static const char strings[] = "\0k\0z\0m\0s\0f\0l\0t\0u";
    static const Elf64_Sym symbols[] = {
        {0},
        {.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_other = 0x10, .st_shndx = CODE},
        {.st_name = 3, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), .st_shndx = GLOBAL, .st_size = 100},
        {.st_name = 5,
         .st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
         .st_other = 4,
         .st_shndx = INITIALISED,
         .st_value = 4,
         .st_size = 4},
        {.st_name = 7,
         .st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
         .st_shndx = INITIALISED,
         .st_size = 2},
        {.st_name = 9, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC), .st_shndx = CODE},
        {.st_name = 11, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_other = 0x10, .st_shndx = CODE},
        {.st_name = 13, .st_info = ELF64_ST_INFO(STB_GLOBAL, 10), .st_shndx = SHN_UNDEF},
        {.st_name = 15, .st_info = ELF64_ST_INFO(STB_GLOBAL, 12), .st_shndx = SHN_UNDEF},
    };
    static const uint8_t info[] = {
        4, 0x37, 4,  0, 0x82, 0, 0, 0,                                  /* something else */
        4, 0x17, 12, 0, 0,    0, 0, 0, 1, 0, 8, 0, 0x00, 0xf0, 0x21, 0, /* number 1 at 8, 8 bytes */
        4, 0x17, 12, 0, 0,    0, 0, 0, 0, 0, 0, 0, 0x00, 0xf0, 0x11, 0, /* number 0 at 0, 4 bytes */
        3, 0x19, 16, 0,                                                 /* 16 bytes in all */
        4, 0x05, 12, 0, 64,   0, 0, 0, 2, 0, 0, 0, 1,    0,    0,    0, /* at most 64 x 2 threads */
    };
    static const uint8_t initialised[] = {1, 2, 0, 0, 3, 4, 5, 6};
    Elf64_Ehdr header = {
        .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1, 0x41, 8},
        .e_type = ET_EXEC,
        .e_machine = 190,
        .e_flags = 0x06005a04,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = SECTIONS,
        .e_shstrndx = NAMES,
    };
    struct bytes cubin = {.length = sizeof(header)};
    Elf64_Shdr sections[SECTIONS] = {0};
    const struct {
        uint32_t type;
        const void *data;
        size_t length;
    } contents[SECTIONS] = {
        [NAMES] = {SHT_STRTAB, names, sizeof(names)},
        [STRINGS] = {SHT_STRTAB, strings, sizeof(strings)},
        [SYMBOLS] = {SHT_SYMTAB, symbols, sizeof(symbols)},
        [INFO] = {SHT_LOPROC, info, sizeof(info)},
        [SHARED] = {SHT_NOBITS, NULL, 256},
        [GLOBAL] = {SHT_NOBITS, NULL, 100},
        [INITIALISED] = {SHT_PROGBITS, initialised, sizeof(initialised)},
        [CODE] = {SHT_PROGBITS, "code", 4},
    };
    for (unsigned i = 1; i < SECTIONS; i++) {
        sections[i] = (Elf64_Shdr){.sh_name = name_of[i],
                                   .sh_type = contents[i].type,
                                   .sh_offset = cubin.length,
                                   .sh_size = contents[i].length,
                                   .sh_addralign = 4};
        if (contents[i].data)
            append(&cubin, contents[i].data, contents[i].length);
    }
    sections[SYMBOLS].sh_link = STRINGS;
    sections[SYMBOLS].sh_entsize = sizeof(Elf64_Sym);
    header.e_shoff = append(&cubin, sections, sizeof(sections));
    memcpy(cubin.data, &header, sizeof(header));
    return cubin;
}

static void assert_is_made_cubin(const struct sim_image *image)
{
    assert_int_equal(image->kind, SIM_IMAGE_CUBIN);
    assert_int_equal(image->architecture, 90);
    assert_int_equal(image->kernel_count, 2);
    const struct sim_kernel_image *kernel = sim_image_kernel(image, "k");
    assert_non_null(kernel);
    assert_int_equal(kernel->parameter_count, 2);
    assert_int_equal(kernel->parameter_bytes, 16);
    assert_parameter(kernel, 0, 0, 4);
    assert_parameter(kernel, 1, 8, 8);
    assert_int_equal(kernel->max_threads, 128);
    assert_int_equal(kernel->shared_bytes, 256);
    assert_int_equal(sim_image_kernel(image, "l")->parameter_count, 0);
    assert_null(sim_image_kernel(image, "f"));
    assert_int_equal(image->global_count, 5);
    assert_int_equal(sim_image_global(image, "t")->kind, SIM_GLOBAL_TEXTURE);
    assert_int_equal(sim_image_global(image, "u")->kind, SIM_GLOBAL_SURFACE);
    const struct sim_global *global = sim_image_global(image, "z");
    assert_int_equal(global->size_bytes, 100);
    assert_null(global->data);
    global = sim_image_global(image, "m");
    assert_true(global->is_managed);
    assert_memory_equal(global->data, "\3\4\5\6", 4);
    global = sim_image_global(image, "s");
    assert_false(global->is_managed);
    assert_memory_equal(global->data, "\1\2", 2);
}

static void a_cubin_tells_kernels_and_variables(void **state)
{
    struct bytes cubin = make_cubin();
    struct sim_image *image = parse(cubin.data, cubin.length);
    assert_is_made_cubin(image);
    sim_image_free(image);
    image = parse(cubin.data, SIM_IMAGE_UNKNOWN_BYTES);
    assert_is_made_cubin(image);
    sim_image_free(image);
}

static void a_cubin_runs_on_its_generation_from_its_own_number_on(void **state)
{
    struct bytes cubin = make_cubin();
    struct sim_image *image = NULL;
    Elf64_Ehdr *header = (Elf64_Ehdr *)(void *)cubin.data;
    assert_int_equal(sim_image_parse(cubin.data, cubin.length, 100, &image, &error),
                     CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(sim_image_parse(cubin.data, cubin.length, 89, &image, &error),
                     CUDA_ERROR_NO_BINARY_FOR_GPU);
    header->e_ident[EI_OSABI] = 0x33; /* before CUDA 13 the number stood in the lowest byte */
    header->e_flags = 0x560556;
    assert_int_equal(sim_image_parse(cubin.data, cubin.length, 89, &image, &error), CUDA_SUCCESS);
    assert_int_equal(image->architecture, 86);
    sim_image_free(image);
}

static void two_kernels_of_one_name_are_a_damaged_cubin(void **state)
{
    struct bytes cubin = make_cubin();
    uint8_t *strings = memmem(cubin.data, cubin.length, "\0k\0z\0m\0s\0f\0l", 13);
    assert_non_null(strings);
    strings[11] = 'k';
    assert_int_equal(refusal(cubin.data, cubin.length), CUDA_ERROR_INVALID_IMAGE);
}

static void begin_fatbin(struct bytes *fatbin)
{
    static const uint8_t header[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
    fatbin->length = 0;
    append(fatbin, header, sizeof(header));
}

static void add_entry(struct bytes *fatbin, uint16_t kind, uint32_t architecture, uint64_t flags,
                      const void *payload, size_t length, uint64_t plain_length)
{
    struct {
        uint16_t kind, version;
        uint32_t header_bytes;
        uint64_t padded_bytes;
        uint32_t bytes, options;
        uint16_t minor, major;
        uint32_t architecture, name, name_bytes;
        uint64_t flags, zero, plain_bytes;
    } entry = {.kind = kind,
               .version = 0x101,
               .header_bytes = 64,
               .padded_bytes = (length + 7) & ~(size_t)7,
               .bytes = flags ? (uint32_t)length : 0,
               .architecture = architecture,
               .flags = flags,
               .plain_bytes = plain_length};
    append(fatbin, &entry, sizeof(entry));
    append(fatbin, payload, length);
    append(fatbin, "\0\0\0\0\0\0\0", entry.padded_bytes - length);
    uint64_t total = fatbin->length - 16;
    memcpy(fatbin->data + 8, &total, sizeof(total));
}

/* PTX for sm_70 and sm_80, and a cubin for sm_90. */
static struct bytes make_fatbin(void)
{
    struct bytes fatbin, cubin = make_cubin();
    static const char old[] = PTX_HEAD ".entry old(){}",
                      newer[] = ".version 7.0\n.target sm_80\n.entry newer(){}";
    begin_fatbin(&fatbin);
    add_entry(&fatbin, 1, 70, 0, old, sizeof(old), 0);
    add_entry(&fatbin, 2, 90, 0, cubin.data, cubin.length, 0);
    add_entry(&fatbin, 1, 80, 0, newer, sizeof(newer), 0);
    return fatbin;
}

static void of_a_fatbin_the_best_entry_is_taken(void **state)
{
    struct bytes fatbin = make_fatbin();
    struct sim_image *image = parse(fatbin.data, fatbin.length);
    assert_is_made_cubin(image);
    sim_image_free(image);
    assert_int_equal(sim_image_parse(fatbin.data, SIM_IMAGE_UNKNOWN_BYTES, 120, &image, &error),
                     CUDA_SUCCESS);
    assert_non_null(sim_image_kernel(image, "newer"));
    sim_image_free(image);
    assert_int_equal(sim_image_parse(fatbin.data, fatbin.length, 75, &image, &error), CUDA_SUCCESS);
    assert_non_null(sim_image_kernel(image, "old"));
    sim_image_free(image);
    assert_int_equal(sim_image_parse(fatbin.data, fatbin.length, 61, &image, &error),
                     CUDA_ERROR_NO_BINARY_FOR_GPU);
}

static void nvccs_wrapper_is_followed_but_not_from_a_file(void **state)
{
    struct bytes fatbin = make_fatbin();
    struct {
        uint32_t magic, version;
        const void *fatbin, *linked;
    } wrapper = {0x466243b1, 1, fatbin.data, NULL};
    struct sim_image *image = parse(&wrapper, SIM_IMAGE_UNKNOWN_BYTES);
    assert_is_made_cubin(image);
    sim_image_free(image);
    assert_int_equal(refusal(&wrapper, sizeof(wrapper)), CUDA_ERROR_INVALID_IMAGE);
    wrapper.fatbin = NULL;
    assert_int_equal(refusal(&wrapper, SIM_IMAGE_UNKNOWN_BYTES), CUDA_ERROR_INVALID_IMAGE);
}

/* ".version 7.0\n.target sm_70\n.entry aaaaaaaaaaaaaaaaaaaaaaaaa(){}" as an LZ4 block. */
static size_t make_lz4(uint8_t *out, size_t *plain)
{
    static const char head[] = ".version 7.0\n.target sm_70\n.entry a", tail[] = "(){}";
    size_t length = 0;
    out[length++] = 0xf0 | 15; /* 15 literals and more; a match of 4 + 15 and more */
    out[length++] = (uint8_t)(strlen(head) - 15);
    memcpy(out + length, head, strlen(head));
    length += strlen(head);
    out[length++] = 1; /* from one byte back */
    out[length++] = 0;
    out[length++] = 5;
    out[length++] = (uint8_t)(strlen(tail) << 4);
    memcpy(out + length, tail, strlen(tail));
    *plain = strlen(head) + 24 + strlen(tail);
    return length + strlen(tail);
}

static void an_lz4_entry_is_decompressed(void **state)
{
    uint8_t packed[128];
    size_t plain, length = make_lz4(packed, &plain);
    struct bytes fatbin;
    begin_fatbin(&fatbin);
    add_entry(&fatbin, 1, 70, 0x2011, packed, length, plain);
    struct sim_image *image = parse(fatbin.data, fatbin.length);
    assert_non_null(sim_image_kernel(image, "aaaaaaaaaaaaaaaaaaaaaaaaa"));
    sim_image_free(image);

    begin_fatbin(&fatbin);
    add_entry(&fatbin, 1, 70, 0x2011, packed, length, plain + 1);
    assert_int_equal(refusal(fatbin.data, fatbin.length), CUDA_ERROR_INVALID_IMAGE);
    begin_fatbin(&fatbin);
    add_entry(&fatbin, 1, 70, 0x2011, packed, length - 1, plain);
    assert_int_equal(refusal(fatbin.data, fatbin.length), CUDA_ERROR_INVALID_IMAGE);
    begin_fatbin(&fatbin);
    add_entry(&fatbin, 1, 70, 0x2011, packed, length, UINT64_C(1) << 60);
    assert_int_equal(refusal(fatbin.data, fatbin.length), CUDA_ERROR_INVALID_IMAGE);
}

/* --- Hostile bytes --------------------------------------------------------------------------------- */

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint32_t random_below(uint32_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % limit;
}

/* The last bytes before a page that faults, so that reading one byte too far is seen without a sanitizer too.
 */
static uint8_t *guarded(size_t length)
{
    static uint8_t *end;
    if (!end) {
        uint8_t *pages = mmap(NULL, 5 * 4096 * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(pages, MAP_FAILED);
        end = pages + 4 * 4096 * 4;
        assert_int_equal(mprotect(end, 4096 * 4, PROT_NONE), 0);
    }
    assert_true(length <= 4 * 4096 * 4);
    return end - length;
}

static void try(const uint8_t *bytes, size_t length)
{
    struct sim_image *image = NULL;
    uint8_t *copy = guarded(length);
    memcpy(copy, bytes, length);
    if (sim_image_parse(copy, length, 90, &image, &error) == CUDA_SUCCESS)
        sim_image_free(image);
}

static void try_damaged(const uint8_t *bytes, size_t length, unsigned rounds)
{
    uint8_t copy[16384];
    assert_true(length <= sizeof(copy));
    for (size_t cut = 0; cut < length; cut += 1 + length / 1000)
        try(bytes, cut);
    for (unsigned round = 0; round < rounds; round++) {
        size_t now = length;
        memcpy(copy, bytes, length);
        for (unsigned change = 1 + random_below(4); change; change--) {
            static const uint64_t favourites[] = {
                0, 1, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
            size_t at = random_below((uint32_t)now), wide = (size_t)1 << random_below(4);
            uint64_t value = random_below(2) ? favourites[random_below(10)] : random_state;
            if (wide > now - at)
                wide = now - at;
            switch (random_below(5)) {
            case 0:
                now = at + 1;
                break;
            case 1:
                copy[at] = (uint8_t) " .,;(){}[]=\"0x9a-"[random_below(17)];
                break;
            case 2:
                memmove(copy + at, copy + random_below((uint32_t)(now - wide + 1)), wide);
                break;
            default:
                memcpy(copy + at, &value, wide);
            }
        }
        try(copy, now);
    }
}

static void damaged_images_are_answered_and_nothing_else(void **state)
{
    struct bytes cubin = make_cubin(), fatbin = make_fatbin();
    uint8_t packed[128];
    size_t plain, length = make_lz4(packed, &plain);
    struct bytes compressed;
    static const char variables[] =
        PTX_HEAD ".const .align 4 .b8 c[6] = {1, 0x2, 0, 255}; .global .v2 .f64 d[3][4];"
                 ".global .attribute(.managed) .u64 e[] = {generic(c), 0d3ff0}, f = -1;";
    begin_fatbin(&compressed);
    add_entry(&compressed, 1, 70, 0x2011, packed, length, plain);
    try_damaged(cubin.data, cubin.length, 20000);
    try_damaged(fatbin.data, fatbin.length, 20000);
    try_damaged(compressed.data, compressed.length, 20000);
    try_damaged((const uint8_t *)variables, sizeof(variables), 20000);
    try_damaged((const uint8_t *)kernels_ptx, sizeof(kernels_ptx) < 9000 ? sizeof(kernels_ptx) : 9000, 3000);
}

static void random_bytes_are_answered_and_nothing_else(void **state)
{
    static const char *const magics[] = {"", "\177ELF\2\1\1\101\10", "\120\355\125\272\1\0\20\0",
                                         ".version 7.0\n.target sm_70\n"};
    uint8_t bytes[600];
    for (unsigned round = 0; round < 20000; round++) {
        const char *magic = magics[random_below(4)];
        size_t length = random_below(sizeof(bytes));
        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)random_below(256);
        if (strlen(magic) <= length)
            memcpy(bytes, magic, strlen(magic));
        try(bytes, length);
    }
}

/* Tables that lie over each other would have a reader go through them once for each: it has to give up
 * instead. */
static void tables_that_overlap_do_not_make_work_without_end(void **state)
{
    enum { COUNT = 20000 };
    size_t length = sizeof(Elf64_Ehdr) + COUNT * sizeof(Elf64_Shdr);
    uint8_t *bytes = calloc(1, length);
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1, 0x41, 8},
                         .e_machine = 190,
                         .e_flags = 0x5a00,
                         .e_shoff = sizeof(header),
                         .e_shentsize = sizeof(Elf64_Shdr),
                         .e_shnum = COUNT};
    memcpy(bytes, &header, sizeof(header));
    Elf64_Shdr *sections = (Elf64_Shdr *)(void *)(bytes + sizeof(header));
    sections[0] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_size = length};
    for (unsigned i = 1; i < COUNT; i++)
        sections[i] = (Elf64_Shdr){.sh_type = SHT_SYMTAB, .sh_size = length, .sh_entsize = sizeof(Elf64_Sym)};
    assert_int_equal(refusal(bytes, length), CUDA_ERROR_INVALID_IMAGE);
    free(bytes);
}

/* --- What nvcc makes, where it is installed -------------------------------------------------------- */

static const char source[] =
    "__device__ int number = 5; __device__ float table[100]; __managed__ long shared_number = 9;\n"
    "__constant__ int constants[4] = {1, 2, 3, 4};\n"
    "struct row { int x[5]; char y; };\n"
    "extern \"C\" __global__ void __launch_bounds__(96) work(struct row r, long *p, char c, double d)\n"
    "{ *p = r.x[1] + c + (long)d + number + (long)table[c] + shared_number + constants[c & 3]; }\n";

/* Compile the source in `folder` and look whether everything in it was found. */
static void assert_compiled_is_read(const char *nvcc, const char *folder, const char *options)
{
    static uint8_t bytes[1 << 16];
    char command[600], path[300];
    snprintf(command, sizeof(command), "cd '%s' && %s -o out %s in.cu >log 2>&1", folder, nvcc, options);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof(path), "%s/out", folder);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);

    struct sim_image *image = parse(bytes, length);
    const struct sim_kernel_image *kernel = sim_image_kernel(image, "work");
    assert_non_null(kernel);
    assert_int_equal(kernel->parameter_count, 4);
    assert_parameter(kernel, 0, 0, 24);
    assert_parameter(kernel, 1, 24, 8);
    assert_parameter(kernel, 2, 32, 1);
    assert_parameter(kernel, 3, 40, 8);
    assert_int_equal(kernel->parameter_bytes, 48);
    assert_int_equal(kernel->max_threads, 96);
    assert_int_equal(sim_image_global(image, "table")->size_bytes, 400);
    assert_memory_equal(sim_image_global(image, "number")->data, "\5\0\0\0", 4);
    assert_int_equal(sim_image_global(image, "constants")->size_bytes, 16);
    assert_true(sim_image_global(image, "shared_number")->is_managed);
    sim_image_free(image);
}

static void what_nvcc_makes_is_read(void **state)
{
    char folder[] = "/tmp/gpuslice-test-XXXXXX", path[300];
    static const char *const files[] = {"in.cu", "out", "log"};
    const char *nvcc = "nvcc";
    if (system("command -v nvcc >/dev/null") != 0) {
        nvcc = "/usr/local/cuda/bin/nvcc";
        if (access(nvcc, X_OK) != 0)
            skip();
    }
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/in.cu", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(source, file);
    fclose(file);
    assert_compiled_is_read(nvcc, folder, "-arch=sm_80 -ptx");
    assert_compiled_is_read(nvcc, folder, "-arch=sm_90 -cubin");
    assert_compiled_is_read(
        nvcc, folder, "-gencode arch=compute_90,code=sm_90 -gencode arch=compute_80,code=compute_80 -fatbin");
    /* compressed, with whatever this nvcc compresses with by default */
    assert_compiled_is_read(nvcc, folder, "-gencode arch=compute_80,code=compute_80 -fatbin");
    for (unsigned i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ptx_tells_kernels_and_their_parameters),
        cmocka_unit_test(ptx_tells_variables_and_their_simple_contents),
        cmocka_unit_test(ptx_tells_references_that_are_not_memory),
        cmocka_unit_test(ptx_of_known_length_needs_no_zero),
        cmocka_unit_test(what_is_not_ptx_is_told_with_its_line),
        cmocka_unit_test(a_cubin_tells_kernels_and_variables),
        cmocka_unit_test(a_cubin_runs_on_its_generation_from_its_own_number_on),
        cmocka_unit_test(two_kernels_of_one_name_are_a_damaged_cubin),
        cmocka_unit_test(of_a_fatbin_the_best_entry_is_taken),
        cmocka_unit_test(nvccs_wrapper_is_followed_but_not_from_a_file),
        cmocka_unit_test(an_lz4_entry_is_decompressed),
        cmocka_unit_test(damaged_images_are_answered_and_nothing_else),
        cmocka_unit_test(random_bytes_are_answered_and_nothing_else),
        cmocka_unit_test(tables_that_overlap_do_not_make_work_without_end),
        cmocka_unit_test(what_nvcc_makes_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
