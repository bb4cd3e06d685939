/* ptx.c - the declarations of a PTX module (PTX ISA 9.0): its version and target, its entry points with their
 * parameters, its variables. Bodies are skipped by their braces; nothing looks at an instruction. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/code/ptx_tokens.h"
#include "simgpu/device/cuda_release.h"

#define LOCAL_BYTES_MAX                                                                                      \
    (UINT64_C(512) << 10) /* of a thread (CUDA programming guide, "Technical Specifications") */
#define VARIABLE_BYTES_MAX (UINT64_C(1) << 40)
#define INITIAL_BYTES_MAX (UINT64_C(1) << 28)

/* Bytes of a fundamental or opaque type, 0 if the current token is not one. */
static uint32_t type_bytes(const struct ptx *ptx)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } types[] = {
        {".b8", 1},     {".u8", 1},      {".s8", 1},         {".b16", 2}, {".u16", 2}, {".s16", 2},
        {".f16", 2},    {".bf16", 2},    {".b32", 4},        {".u32", 4}, {".s32", 4}, {".f32", 4},
        {".f16x2", 4},  {".b64", 8},     {".u64", 8},        {".s64", 8}, {".f64", 8}, {".b128", 16},
        {".texref", 8}, {".surfref", 8}, {".samplerref", 8},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (ptx_is(ptx, types[i].name))
            return types[i].bytes;
    return 0;
}

/* One array dimension's count, or 0 for an empty []. */
static uint64_t read_dimension(struct ptx *ptx)
{
    uint64_t count = 0;
    ptx_expect(ptx, "[");
    if (!ptx_is(ptx, "]"))
        count = ptx_number(ptx);
    ptx_expect(ptx, "]");
    return count;
}

static void read_parameter(struct ptx *ptx, struct sim_kernel_image *kernel)
{
    uint32_t alignment = 0, type = 0;
    ptx_expect(ptx, ".param");
    while (!ptx->result && !ptx_is_name(ptx)) {
        uint32_t bytes = type_bytes(ptx);
        if (bytes) {
            type = bytes;
            ptx_next(ptx);
        } else if (ptx_accept(ptx, ".align")) {
            alignment = ptx_alignment(ptx);
        } else if (ptx_accept(ptx, ".ptr")) {
            /* What a pointer points at: a space and an alignment, neither of them the parameter's own. */
            if (ptx_is(ptx, ".global") || ptx_is(ptx, ".shared") || ptx_is(ptx, ".const") ||
                ptx_is(ptx, ".local"))
                ptx_next(ptx);
            if (ptx_accept(ptx, ".align"))
                ptx_alignment(ptx);
        } else {
            ptx_expected(ptx, "a parameter's type or name");
        }
    }
    if (!ptx->result && !type)
        ptx_expected(ptx, "a parameter's type before its name");
    ptx_next(ptx);
    uint64_t bytes = type;
    while (ptx_is(ptx, "[") && !ptx->result)
        if (__builtin_mul_overflow(bytes, read_dimension(ptx), &bytes) || bytes > SIM_IMAGE_PARAMETER_BYTES)
            ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "a parameter that is too large");
    if (ptx->result)
        return;
    CUresult result = image_add_parameter(kernel, (uint32_t)bytes, alignment > type ? alignment : type);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        ptx_fail(ptx, result, "no host memory");
    else if (result)
        ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "too many parameters, or too large together");
}

static uint32_t read_thread_count(struct ptx *ptx)
{
    uint64_t threads = 1;
    do {
        uint64_t count = ptx_number(ptx);
        if (__builtin_mul_overflow(threads, count, &threads) || threads > UINT32_MAX)
            ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "a block that is too large");
    } while (!ptx->result && ptx_accept(ptx, ","));
    return (uint32_t)threads;
}

/* What `.local .align 16 .b8 name[64]` takes, behind `.local`; 0 where something else follows, as in st.local. */
static uint64_t local_bytes(struct ptx ptx)
{
    uint64_t bytes = 0, count;
    ptx.error = NULL;
    while (!ptx_is_name(&ptx)) {
        if (type_bytes(&ptx))
            bytes = type_bytes(&ptx);
        else if (ptx.kind == TOKEN_END || ptx_is(&ptx, ";") || ptx_is(&ptx, "["))
            return 0;
        ptx_next(&ptx);
    }
    ptx_next(&ptx);
    if (!bytes || !ptx_is(&ptx, "["))
        return 0;
    while (ptx_accept(&ptx, "[")) {
        if (ptx.kind != TOKEN_NUMBER)
            return 0;
        count = ptx_number(&ptx);
        if (!ptx_accept(&ptx, "]") || __builtin_mul_overflow(bytes, count, &bytes) || bytes > LOCAL_BYTES_MAX)
            return 0;
    }
    return bytes;
}

/* Skip an entry point's body, and add up its local memory. */
static void skip_body(struct ptx *ptx, struct sim_kernel_image *kernel)
{
    unsigned depth = 0, line = ptx->line;
    do {
        if (ptx->kind == TOKEN_END) {
            if (!ptx->result)
                ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "the { of line %u is never closed", line);
            return;
        }
        bool is_local = ptx_is(ptx, ".local");
        if (ptx_is(ptx, "{"))
            depth++;
        else if (ptx_is(ptx, "}"))
            depth--;
        ptx_next(ptx);
        if (is_local)
            kernel->local_bytes += local_bytes(*ptx);
    } while (depth);
    if (kernel->local_bytes > LOCAL_BYTES_MAX)
        kernel->local_bytes = LOCAL_BYTES_MAX;
}

/* After .entry. */
static void read_entry(struct ptx *ptx)
{
    if (!ptx_is_name(ptx)) {
        ptx_expected(ptx, "an entry point's name");
        return;
    }
    struct sim_kernel_image *kernel = image_add_kernel(ptx->image, ptx->token, ptx->length);
    if (!kernel) {
        ptx_fail(ptx, CUDA_ERROR_OUT_OF_MEMORY, "no host memory");
        return;
    }
    ptx_next(ptx);
    if (ptx_accept(ptx, "(") && !ptx_accept(ptx, ")")) {
        do
            read_parameter(ptx, kernel);
        while (!ptx->result && ptx_accept(ptx, ","));
        ptx_expect(ptx, ")");
    }
    while (!ptx->result && !ptx_is(ptx, "{") && !ptx_is(ptx, ";")) {
        if (ptx->kind == TOKEN_END)
            ptx_expected(ptx, "an entry point's body");
        else if (ptx_accept(ptx, ".maxntid") || ptx_accept(ptx, ".reqntid"))
            kernel->max_threads = read_thread_count(ptx);
        else
            ptx_next(ptx);
    }
    if (ptx_is(ptx, "{")) {
        skip_body(ptx, kernel);
        return;
    }
    /* A declaration alone: what it declares is elsewhere, or later here. */
    ptx_expect(ptx, ";");
    free(kernel->name);
    free(kernel->parameters);
    ptx->image->kernel_count--;
}

/* Fill the variable's first elements from `{1, 2, ...}` or a single number. What is not that simple (names,
 * floats in decimal, rows within rows) is left as not known. */
static void read_initial(struct ptx *ptx, struct sim_global *global, uint32_t element_bytes)
{
    bool is_list = ptx_accept(ptx, "{");
    uint64_t offset = 0;
    if (global->size_bytes > INITIAL_BYTES_MAX) {
        ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "an initialised variable that is too large");
        return;
    }
    global->data = calloc(1, global->size_bytes ? global->size_bytes : 1);
    if (!global->data) {
        ptx_fail(ptx, CUDA_ERROR_OUT_OF_MEMORY, "no host memory");
        return;
    }
    bool is_simple = element_bytes <= 8;
    while (is_simple && !ptx->result && !ptx_is(ptx, "}")) {
        bool is_negative = ptx_accept(ptx, "-");
        if (ptx->kind != TOKEN_NUMBER || memchr(ptx->token, '.', ptx->length) ||
            offset + element_bytes > global->size_bytes) {
            is_simple = false;
            break;
        }
        uint64_t value;
        bool is_float = ptx->length > 2 && ptx->token[0] == '0' && memchr("fFdD", ptx->token[1], 4);
        if (is_float) {
            char digits[20] = {0};
            if (ptx->length > 18) {
                ptx_expected(ptx, "a number");
                return;
            }
            memcpy(digits, ptx->token + 2, ptx->length - 2);
            value = strtoull(digits, NULL, 16);
            ptx_next(ptx);
        } else {
            value = ptx_number(ptx);
        }
        if (is_negative)
            value = is_float ? value ^ UINT64_C(1) << (element_bytes * 8 - 1) : -value;
        memcpy(global->data + offset, &value, element_bytes);
        offset += element_bytes;
        if (!is_list || !ptx_accept(ptx, ","))
            break;
    }
    if (is_simple && is_list && !ptx_is(ptx, "}"))
        is_simple = false;
    if (!is_simple) {
        free(global->data);
        global->data = NULL;
        unsigned depth = is_list;
        while (ptx->kind != TOKEN_END && !ptx_is(ptx, ";") && (depth || !ptx_is(ptx, ","))) {
            if (ptx_is(ptx, "{") || ptx_is(ptx, "("))
                depth++;
            else if ((ptx_is(ptx, "}") || ptx_is(ptx, ")")) && depth)
                depth--;
            ptx_next(ptx);
        }
    } else if (is_list) {
        ptx_expect(ptx, "}");
    }
}

/* How many elements an initial value has, without moving on: what `x[] = {...}` leaves to us. */
static uint64_t count_elements(struct ptx ptx)
{
    uint64_t count = 1;
    if (!ptx_is(&ptx, "{"))
        return 1;
    ptx.error = NULL;
    for (; ptx.kind != TOKEN_END && !ptx_is(&ptx, "}"); ptx_next(&ptx))
        count += ptx_is(&ptx, ",");
    return count;
}

/* After .global, .const or .tex: a variable of the last is a texture reference whatever its type (PTX ISA,
 * "Texture State Space"). */
static void read_variables(struct ptx *ptx, bool is_extern, enum sim_global_kind kind)
{
    uint32_t alignment = 0, type = 0, lanes = 1;
    bool is_managed = false;
    while (!ptx->result && !ptx_is_name(ptx)) {
        uint32_t bytes = type_bytes(ptx);
        if (bytes) {
            if (ptx_is(ptx, ".texref"))
                kind = SIM_GLOBAL_TEXTURE;
            else if (ptx_is(ptx, ".surfref"))
                kind = SIM_GLOBAL_SURFACE;
            type = bytes;
            ptx_next(ptx);
        } else if (ptx_accept(ptx, ".align")) {
            alignment = ptx_alignment(ptx);
        } else if (ptx_accept(ptx, ".v2")) {
            lanes = 2;
        } else if (ptx_accept(ptx, ".v4")) {
            lanes = 4;
        } else if (ptx_accept(ptx, ".attribute")) {
            ptx_expect(ptx, "(");
            while (ptx->kind != TOKEN_END && !ptx_is(ptx, ")")) {
                is_managed = is_managed || ptx_is(ptx, ".managed");
                ptx_next(ptx);
            }
            ptx_expect(ptx, ")");
        } else {
            ptx_expected(ptx, "a variable's type or name");
        }
    }
    if (!ptx->result && !type)
        ptx_expected(ptx, "a variable's type before its name");
    do {
        if (ptx->result)
            return;
        if (!ptx_is_name(ptx)) {
            ptx_expected(ptx, "a variable's name");
            return;
        }
        const char *name = ptx->token;
        size_t name_bytes = ptx->length;
        uint64_t bytes = (uint64_t)type * lanes;
        bool is_open = false;
        ptx_next(ptx);
        while (ptx_is(ptx, "[") && !ptx->result) {
            uint64_t count = read_dimension(ptx);
            is_open = is_open || !count;
            if (__builtin_mul_overflow(bytes, count ? count : 1, &bytes) || bytes > VARIABLE_BYTES_MAX)
                ptx_fail(ptx, CUDA_ERROR_INVALID_PTX, "a variable that is too large");
        }
        bool has_value = ptx_accept(ptx, "=");
        if (is_open)
            bytes = has_value ? bytes * count_elements(*ptx) : 0;
        struct sim_global unused = {0}, *global = &unused;
        if (!ptx->result && !is_extern && !(global = image_add_global(ptx->image, name, name_bytes))) {
            ptx_fail(ptx, CUDA_ERROR_OUT_OF_MEMORY, "no host memory");
            return;
        }
        global->kind = kind;
        global->size_bytes = kind == SIM_GLOBAL_MEMORY ? bytes : 0;
        global->alignment_bytes = alignment > type * lanes ? alignment : type * lanes;
        global->is_managed = is_managed;
        if (has_value && !ptx->result)
            read_initial(ptx, global, type);
        if (global == &unused)
            free(unused.data);
    } while (ptx_accept(ptx, ","));
    ptx_expect(ptx, ";");
}

/* After .func: a program cannot ask for such a function by name. */
static void skip_function(struct ptx *ptx)
{
    while (ptx->kind != TOKEN_END && !ptx_is(ptx, "{") && !ptx_is(ptx, ";"))
        ptx_next(ptx);
    if (ptx_is(ptx, "{"))
        ptx_skip_brackets(ptx, "{", "}");
    else
        ptx_expect(ptx, ";");
}

/* After .file: a number, a name, and maybe `, time, size`. */
static void skip_file(struct ptx *ptx)
{
    ptx_number(ptx);
    if (ptx->kind != TOKEN_STRING)
        ptx_expected(ptx, "a file's name");
    ptx_next(ptx);
    while (ptx_accept(ptx, ","))
        ptx_number(ptx);
}

/* After .target: `sm_80` or `sm_90a`, then platform options. */
static void read_target(struct ptx *ptx)
{
    char digits[16] = {0};
    if (ptx->kind != TOKEN_WORD || ptx->length < 5 || ptx->length > 12 || memcmp(ptx->token, "sm_", 3)) {
        ptx_expected(ptx, "a target such as sm_80");
        return;
    }
    memcpy(digits, ptx->token + 3, ptx->length - 3);
    char *stop;
    unsigned long architecture = strtoul(digits, &stop, 10);
    if (stop == digits || stop - digits > 4 || (*stop && strcmp(stop, "a") && strcmp(stop, "f"))) {
        ptx_expected(ptx, "a target such as sm_80");
        return;
    }
    if (architecture > ptx->architecture) {
        ptx_fail(ptx, CUDA_ERROR_INVALID_PTX,
                 "its target is sm_%lu, the GPU is sm_%u: build for that or an older one", architecture,
                 ptx->architecture);
        return;
    }
    ptx->image->architecture = (uint32_t)architecture;
    ptx_next(ptx);
    while (ptx_accept(ptx, ","))
        ptx_next(ptx);
}

/* After .version, e.g. 7.0: one token, as numbers take their dot. */
static void read_version(struct ptx *ptx)
{
    unsigned major = 0, minor = 0;
    char text[8] = {0};
    int used = 0;
    if (ptx->length < sizeof(text))
        memcpy(text, ptx->token, ptx->length);
    if (ptx->kind != TOKEN_NUMBER || sscanf(text, "%2u.%1u%n", &major, &minor, &used) != 2 ||
        (size_t)used != ptx->length) {
        ptx_expected(ptx, "a PTX version such as 7.0");
        return;
    }
    unsigned newest = cuda_release()->ptx_newest;
    if (major * 10 + minor > newest)
        ptx_fail(ptx, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "version %u.%u is newer than this driver's %u.%u",
                 major, minor, newest / 10, newest % 10);
    ptx->image->ptx_version = major * 10 + minor;
    ptx_next(ptx);
}

static void read_declaration(struct ptx *ptx)
{
    bool is_extern = false;
    while (ptx_is(ptx, ".visible") || ptx_is(ptx, ".extern") || ptx_is(ptx, ".weak") ||
           ptx_is(ptx, ".common")) {
        is_extern = is_extern || ptx_is(ptx, ".extern");
        ptx_next(ptx);
    }
    if (ptx_accept(ptx, ".entry"))
        read_entry(ptx);
    else if (ptx_accept(ptx, ".func"))
        skip_function(ptx);
    else if (ptx_accept(ptx, ".global") || ptx_accept(ptx, ".const"))
        read_variables(ptx, is_extern, SIM_GLOBAL_MEMORY);
    else if (ptx_accept(ptx, ".tex"))
        read_variables(ptx, is_extern, SIM_GLOBAL_TEXTURE);
    else if (ptx_accept(ptx, ".shared") || ptx_accept(ptx, ".local") || ptx_accept(ptx, ".pragma") ||
             ptx_accept(ptx, ".alias"))
        ptx_skip_statement(ptx);
    else if (ptx_accept(ptx, ".address_size"))
        ptx_number(ptx);
    else if (ptx_accept(ptx, ".file"))
        skip_file(ptx);
    else if (ptx_accept(ptx, ".section")) {
        ptx_next(ptx);
        if (ptx_is(ptx, "{"))
            ptx_skip_brackets(ptx, "{", "}");
        else
            ptx_expected(ptx, "a section's contents");
    } else if (!ptx_accept(ptx, ";"))
        ptx_expected(ptx, "a declaration");
}

CUresult ptx_parse(const char *text, size_t bytes, unsigned architecture, struct sim_image **parsed,
                   struct error *error)
{
    struct ptx ptx = {.at = text,
                      .end = text + bytes,
                      .line = 1,
                      .architecture = architecture,
                      .error = error,
                      .image = image_new(SIM_IMAGE_PTX)};
    if (!ptx.image)
        return image_fail(error, CUDA_ERROR_OUT_OF_MEMORY, "no host memory for a PTX module");
    ptx_next(&ptx);
    if (!ptx_accept(&ptx, ".version")) {
        sim_image_free(ptx.image);
        return image_fail(error, CUDA_ERROR_INVALID_IMAGE,
                          "expected PTX (beginning with .version), a cubin or a fatbin; found none of them");
    }
    read_version(&ptx);
    ptx_expect(&ptx, ".target");
    read_target(&ptx);
    while (!ptx.result && ptx.kind != TOKEN_END)
        read_declaration(&ptx);
    if (!ptx.result && !image_finish(ptx.image))
        ptx_fail(&ptx, CUDA_ERROR_INVALID_PTX, "two entry points of one name");
    if (ptx.result) {
        sim_image_free(ptx.image);
        return ptx.result;
    }
    *parsed = ptx.image;
    return CUDA_SUCCESS;
}
