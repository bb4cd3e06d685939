/* ptx.c - the declarations of a PTX module (PTX ISA 9.0): its version and target, its entry points with their
 * parameters, its variables. Bodies are skipped by their braces; nothing looks at an instruction. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/image.h"

#define PTX_VERSION_NEWEST 90 /* of CUDA 13.0 */
#define VARIABLE_BYTES_MAX (UINT64_C(1) << 40)
#define INITIAL_BYTES_MAX (UINT64_C(1) << 28)

enum token_kind {
    TOKEN_END,
    TOKEN_WORD, /* a name, or a directive with its dot */
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_OTHER, /* one character */
};

struct ptx {
    const char *at, *end; /* behind the current token; of the text */
    unsigned line;
    enum token_kind kind; /* of the current token */
    const char *token;
    size_t length;
    unsigned architecture;
    struct sim_image *image;
    CUresult result; /* the first failure; from then on there are no tokens */
    struct error *error;
};

static void fail(struct ptx *ptx, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail(struct ptx *ptx, CUresult result, const char *format, ...)
{
    char text[256];
    va_list arguments;
    if (ptx->result)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    ptx->result = image_fail(ptx->error, result, "PTX, line %u: %s", ptx->line, text);
    ptx->at = ptx->end;
    ptx->kind = TOKEN_END;
    ptx->length = 0;
}

static bool is_word_character(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static void skip_blanks(struct ptx *ptx)
{
    while (ptx->at < ptx->end) {
        char next = ptx->at + 1 < ptx->end ? ptx->at[1] : 0;
        if (ptx->at[0] == '/' && next == '/') {
            while (ptx->at < ptx->end && *ptx->at != '\n')
                ptx->at++;
        } else if (ptx->at[0] == '/' && next == '*') {
            for (ptx->at += 2; ptx->at < ptx->end; ptx->at++) {
                ptx->line += *ptx->at == '\n';
                if (ptx->at[-1] == '*' && ptx->at[0] == '/')
                    break;
            }
            if (ptx->at == ptx->end)
                return;
            ptx->at++;
        } else if (isspace((unsigned char)ptx->at[0])) {
            ptx->line += *ptx->at == '\n';
            ptx->at++;
        } else {
            return;
        }
    }
}

static void next(struct ptx *ptx)
{
    if (ptx->result)
        return;
    skip_blanks(ptx);
    ptx->token = ptx->at;
    if (ptx->at == ptx->end) {
        ptx->kind = TOKEN_END;
    } else if (is_word_character(*ptx->at) || *ptx->at == '.') {
        /* A number takes its dot and letters with it (0x1f, 4U, 1.5, 0f3F800000); a directive begins with a
         * dot. */
        bool is_number = isdigit((unsigned char)*ptx->at);
        ptx->kind = is_number ? TOKEN_NUMBER : TOKEN_WORD;
        ptx->at++;
        while (ptx->at < ptx->end && (is_word_character(*ptx->at) || (is_number && *ptx->at == '.')))
            ptx->at++;
    } else if (*ptx->at == '"') {
        ptx->kind = TOKEN_STRING;
        ptx->at++;
        while (ptx->at < ptx->end && *ptx->at != '"' && *ptx->at != '\n')
            ptx->at++;
        if (ptx->at == ptx->end || *ptx->at == '\n') {
            fail(ptx, CUDA_ERROR_INVALID_PTX, "a string that does not end");
            return;
        }
        ptx->at++;
    } else {
        ptx->kind = TOKEN_OTHER;
        ptx->at++;
    }
    ptx->length = (size_t)(ptx->at - ptx->token);
}

static bool is(const struct ptx *ptx, const char *text)
{
    return ptx->kind != TOKEN_END && ptx->length == strlen(text) && !memcmp(ptx->token, text, ptx->length);
}

static bool accept(struct ptx *ptx, const char *text)
{
    bool found = is(ptx, text);
    if (found)
        next(ptx);
    return found;
}

static void expected(struct ptx *ptx, const char *what)
{
    if (ptx->kind == TOKEN_END)
        fail(ptx, CUDA_ERROR_INVALID_PTX, "expected %s, found the end", what);
    else
        fail(ptx, CUDA_ERROR_INVALID_PTX, "expected %s, found '%.*s'", what,
             (int)(ptx->length < 60 ? ptx->length : 60), ptx->token);
}

static void expect(struct ptx *ptx, const char *text)
{
    if (!accept(ptx, text))
        expected(ptx, text);
}

static bool is_name(const struct ptx *ptx)
{
    return ptx->kind == TOKEN_WORD && ptx->token[0] != '.';
}

/* Read an integer literal: decimal, 0x, 0b or octal, with or without U. */
static uint64_t read_number(struct ptx *ptx)
{
    char digits[72];
    if (ptx->kind != TOKEN_NUMBER || ptx->length >= sizeof(digits)) {
        expected(ptx, "a number");
        return 0;
    }
    memcpy(digits, ptx->token, ptx->length);
    digits[ptx->length] = 0;
    if (digits[ptx->length - 1] == 'U')
        digits[ptx->length - 1] = 0;
    bool is_binary = digits[0] == '0' && (digits[1] == 'b' || digits[1] == 'B');
    char *stop;
    uint64_t number = strtoull(digits + (is_binary ? 2 : 0), &stop, is_binary ? 2 : 0);
    if (*stop || stop == digits) {
        expected(ptx, "a number");
        return 0;
    }
    next(ptx);
    return number;
}

static uint32_t read_alignment(struct ptx *ptx)
{
    uint64_t alignment = read_number(ptx);
    if (alignment < 1 || alignment > 4096 || (alignment & (alignment - 1))) {
        fail(ptx, CUDA_ERROR_INVALID_PTX, "an alignment is a power of two");
        return 1;
    }
    return (uint32_t)alignment;
}

/* Skip to behind the bracket that closes the current one. */
static void skip_brackets(struct ptx *ptx, const char *open, const char *close)
{
    unsigned depth = 0;
    unsigned line = ptx->line;
    do {
        if (ptx->kind == TOKEN_END) {
            if (!ptx->result)
                fail(ptx, CUDA_ERROR_INVALID_PTX, "the %s of line %u is never closed", open, line);
            return;
        }
        if (is(ptx, open))
            depth++;
        else if (is(ptx, close))
            depth--;
        next(ptx);
    } while (depth);
}

static void skip_statement(struct ptx *ptx)
{
    while (ptx->kind != TOKEN_END && !is(ptx, ";"))
        next(ptx);
    expect(ptx, ";");
}

/* Bytes of a fundamental or opaque type, 0 if the current token is none. */
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
        if (is(ptx, types[i].name))
            return types[i].bytes;
    return 0;
}

/* One array dimension's count, or 0 for an empty []. */
static uint64_t read_dimension(struct ptx *ptx)
{
    uint64_t count = 0;
    expect(ptx, "[");
    if (!is(ptx, "]"))
        count = read_number(ptx);
    expect(ptx, "]");
    return count;
}

static void read_parameter(struct ptx *ptx, struct sim_kernel_image *kernel)
{
    uint32_t alignment = 0, type = 0;
    expect(ptx, ".param");
    while (!ptx->result && !is_name(ptx)) {
        uint32_t bytes = type_bytes(ptx);
        if (bytes) {
            type = bytes;
            next(ptx);
        } else if (accept(ptx, ".align")) {
            alignment = read_alignment(ptx);
        } else if (accept(ptx, ".ptr")) {
            /* What a pointer points at: a space and an alignment, neither of them the parameter's own. */
            if (is(ptx, ".global") || is(ptx, ".shared") || is(ptx, ".const") || is(ptx, ".local"))
                next(ptx);
            if (accept(ptx, ".align"))
                read_alignment(ptx);
        } else {
            expected(ptx, "a parameter's type or name");
        }
    }
    if (!ptx->result && !type)
        expected(ptx, "a parameter's type before its name");
    next(ptx);
    uint64_t bytes = type;
    while (is(ptx, "[") && !ptx->result)
        if (__builtin_mul_overflow(bytes, read_dimension(ptx), &bytes) || bytes > SIM_IMAGE_PARAMETER_BYTES)
            fail(ptx, CUDA_ERROR_INVALID_PTX, "a parameter that is too large");
    if (ptx->result)
        return;
    CUresult result = image_add_parameter(kernel, (uint32_t)bytes, alignment > type ? alignment : type);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        fail(ptx, result, "no host memory");
    else if (result)
        fail(ptx, CUDA_ERROR_INVALID_PTX, "too many parameters, or too large together");
}

static uint32_t read_thread_count(struct ptx *ptx)
{
    uint64_t threads = 1;
    do {
        uint64_t count = read_number(ptx);
        if (__builtin_mul_overflow(threads, count, &threads) || threads > UINT32_MAX)
            fail(ptx, CUDA_ERROR_INVALID_PTX, "a block that is too large");
    } while (!ptx->result && accept(ptx, ","));
    return (uint32_t)threads;
}

/* After .entry. */
static void read_entry(struct ptx *ptx)
{
    if (!is_name(ptx)) {
        expected(ptx, "an entry point's name");
        return;
    }
    struct sim_kernel_image *kernel = image_add_kernel(ptx->image, ptx->token, ptx->length);
    if (!kernel) {
        fail(ptx, CUDA_ERROR_OUT_OF_MEMORY, "no host memory");
        return;
    }
    next(ptx);
    if (accept(ptx, "(") && !accept(ptx, ")")) {
        do
            read_parameter(ptx, kernel);
        while (!ptx->result && accept(ptx, ","));
        expect(ptx, ")");
    }
    while (!ptx->result && !is(ptx, "{") && !is(ptx, ";")) {
        if (ptx->kind == TOKEN_END)
            expected(ptx, "an entry point's body");
        else if (accept(ptx, ".maxntid") || accept(ptx, ".reqntid"))
            kernel->max_threads = read_thread_count(ptx);
        else
            next(ptx);
    }
    if (is(ptx, "{")) {
        skip_brackets(ptx, "{", "}");
        return;
    }
    /* A declaration alone: what it declares is elsewhere, or later here. */
    expect(ptx, ";");
    free(kernel->name);
    free(kernel->parameters);
    ptx->image->kernel_count--;
}

/* Fill the variable's first elements from `{1, 2, ...}` or a single number. What is not that simple (names,
 * floats in decimal, rows within rows) is left as not known. */
static void read_initial(struct ptx *ptx, struct sim_global *global, uint32_t element_bytes)
{
    bool is_list = accept(ptx, "{");
    uint64_t offset = 0;
    if (global->size_bytes > INITIAL_BYTES_MAX) {
        fail(ptx, CUDA_ERROR_INVALID_PTX, "an initialised variable that is too large");
        return;
    }
    global->data = calloc(1, global->size_bytes ? global->size_bytes : 1);
    if (!global->data) {
        fail(ptx, CUDA_ERROR_OUT_OF_MEMORY, "no host memory");
        return;
    }
    bool is_simple = element_bytes <= 8;
    while (is_simple && !ptx->result && !is(ptx, "}")) {
        bool is_negative = accept(ptx, "-");
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
                expected(ptx, "a number");
                return;
            }
            memcpy(digits, ptx->token + 2, ptx->length - 2);
            value = strtoull(digits, NULL, 16);
            next(ptx);
        } else {
            value = read_number(ptx);
        }
        if (is_negative)
            value = is_float ? value ^ UINT64_C(1) << (element_bytes * 8 - 1) : -value;
        memcpy(global->data + offset, &value, element_bytes);
        offset += element_bytes;
        if (!is_list || !accept(ptx, ","))
            break;
    }
    if (is_simple && is_list && !is(ptx, "}"))
        is_simple = false;
    if (!is_simple) {
        free(global->data);
        global->data = NULL;
        unsigned depth = is_list;
        while (ptx->kind != TOKEN_END && !is(ptx, ";") && (depth || !is(ptx, ","))) {
            if (is(ptx, "{") || is(ptx, "("))
                depth++;
            else if ((is(ptx, "}") || is(ptx, ")")) && depth)
                depth--;
            next(ptx);
        }
    } else if (is_list) {
        expect(ptx, "}");
    }
}

/* How many elements an initial value has, without moving on: what `x[] = {...}` leaves to us. */
static uint64_t count_elements(struct ptx ptx)
{
    uint64_t count = 1;
    if (!is(&ptx, "{"))
        return 1;
    ptx.error = NULL;
    for (; ptx.kind != TOKEN_END && !is(&ptx, "}"); next(&ptx))
        count += is(&ptx, ",");
    return count;
}

/* After .global, .const or .tex: a variable of the last is a texture reference whatever its type (PTX ISA, "Texture
 * State Space"). */
static void read_variables(struct ptx *ptx, bool is_extern, enum sim_global_kind kind)
{
    uint32_t alignment = 0, type = 0, lanes = 1;
    bool is_managed = false;
    while (!ptx->result && !is_name(ptx)) {
        uint32_t bytes = type_bytes(ptx);
        if (bytes) {
            if (is(ptx, ".texref"))
                kind = SIM_GLOBAL_TEXTURE;
            else if (is(ptx, ".surfref"))
                kind = SIM_GLOBAL_SURFACE;
            type = bytes;
            next(ptx);
        } else if (accept(ptx, ".align")) {
            alignment = read_alignment(ptx);
        } else if (accept(ptx, ".v2")) {
            lanes = 2;
        } else if (accept(ptx, ".v4")) {
            lanes = 4;
        } else if (accept(ptx, ".attribute")) {
            expect(ptx, "(");
            while (ptx->kind != TOKEN_END && !is(ptx, ")")) {
                is_managed = is_managed || is(ptx, ".managed");
                next(ptx);
            }
            expect(ptx, ")");
        } else {
            expected(ptx, "a variable's type or name");
        }
    }
    if (!ptx->result && !type)
        expected(ptx, "a variable's type before its name");
    do {
        if (ptx->result)
            return;
        if (!is_name(ptx)) {
            expected(ptx, "a variable's name");
            return;
        }
        const char *name = ptx->token;
        size_t name_bytes = ptx->length;
        uint64_t bytes = (uint64_t)type * lanes;
        bool is_open = false;
        next(ptx);
        while (is(ptx, "[") && !ptx->result) {
            uint64_t count = read_dimension(ptx);
            is_open = is_open || !count;
            if (__builtin_mul_overflow(bytes, count ? count : 1, &bytes) || bytes > VARIABLE_BYTES_MAX)
                fail(ptx, CUDA_ERROR_INVALID_PTX, "a variable that is too large");
        }
        bool has_value = accept(ptx, "=");
        if (is_open)
            bytes = has_value ? bytes * count_elements(*ptx) : 0;
        struct sim_global unused = {0}, *global = &unused;
        if (!ptx->result && !is_extern && !(global = image_add_global(ptx->image, name, name_bytes))) {
            fail(ptx, CUDA_ERROR_OUT_OF_MEMORY, "no host memory");
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
    } while (accept(ptx, ","));
    expect(ptx, ";");
}

/* After .func: we cannot be asked for one by name. */
static void skip_function(struct ptx *ptx)
{
    while (ptx->kind != TOKEN_END && !is(ptx, "{") && !is(ptx, ";"))
        next(ptx);
    if (is(ptx, "{"))
        skip_brackets(ptx, "{", "}");
    else
        expect(ptx, ";");
}

/* After .file: a number, a name, and maybe `, time, size`. */
static void skip_file(struct ptx *ptx)
{
    read_number(ptx);
    if (ptx->kind != TOKEN_STRING)
        expected(ptx, "a file's name");
    next(ptx);
    while (accept(ptx, ","))
        read_number(ptx);
}

/* After .target: `sm_80` or `sm_90a`, then platform options. */
static void read_target(struct ptx *ptx)
{
    char digits[16] = {0};
    if (ptx->kind != TOKEN_WORD || ptx->length < 5 || ptx->length > 12 || memcmp(ptx->token, "sm_", 3)) {
        expected(ptx, "a target such as sm_80");
        return;
    }
    memcpy(digits, ptx->token + 3, ptx->length - 3);
    char *stop;
    unsigned long architecture = strtoul(digits, &stop, 10);
    if (stop == digits || stop - digits > 4 || (*stop && strcmp(stop, "a") && strcmp(stop, "f"))) {
        expected(ptx, "a target such as sm_80");
        return;
    }
    if (architecture > ptx->architecture) {
        fail(ptx, CUDA_ERROR_INVALID_PTX,
             "its target is sm_%lu, the GPU is sm_%u: build for that or an older one", architecture,
             ptx->architecture);
        return;
    }
    ptx->image->architecture = (uint32_t)architecture;
    next(ptx);
    while (accept(ptx, ","))
        next(ptx);
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
        expected(ptx, "a PTX version such as 7.0");
        return;
    }
    if (major * 10 + minor > PTX_VERSION_NEWEST)
        fail(ptx, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "version %u.%u is newer than this driver's %u.%u",
             major, minor, PTX_VERSION_NEWEST / 10, PTX_VERSION_NEWEST % 10);
    ptx->image->ptx_version = major * 10 + minor;
    next(ptx);
}

static void read_declaration(struct ptx *ptx)
{
    bool is_extern = false;
    while (is(ptx, ".visible") || is(ptx, ".extern") || is(ptx, ".weak") || is(ptx, ".common")) {
        is_extern = is_extern || is(ptx, ".extern");
        next(ptx);
    }
    if (accept(ptx, ".entry"))
        read_entry(ptx);
    else if (accept(ptx, ".func"))
        skip_function(ptx);
    else if (accept(ptx, ".global") || accept(ptx, ".const"))
        read_variables(ptx, is_extern, SIM_GLOBAL_MEMORY);
    else if (accept(ptx, ".tex"))
        read_variables(ptx, is_extern, SIM_GLOBAL_TEXTURE);
    else if (accept(ptx, ".shared") || accept(ptx, ".local") || accept(ptx, ".pragma") || accept(ptx, ".alias"))
        skip_statement(ptx);
    else if (accept(ptx, ".address_size"))
        read_number(ptx);
    else if (accept(ptx, ".file"))
        skip_file(ptx);
    else if (accept(ptx, ".section")) {
        next(ptx);
        if (is(ptx, "{"))
            skip_brackets(ptx, "{", "}");
        else
            expected(ptx, "a section's contents");
    } else if (!accept(ptx, ";"))
        expected(ptx, "a declaration");
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
    next(&ptx);
    if (!accept(&ptx, ".version")) {
        sim_image_free(ptx.image);
        return image_fail(error, CUDA_ERROR_INVALID_IMAGE,
                          "expected PTX (beginning with .version), a cubin or a fatbin; found none of them");
    }
    read_version(&ptx);
    expect(&ptx, ".target");
    read_target(&ptx);
    while (!ptx.result && ptx.kind != TOKEN_END)
        read_declaration(&ptx);
    if (!ptx.result && !image_finish(ptx.image))
        fail(&ptx, CUDA_ERROR_INVALID_PTX, "two entry points of one name");
    if (ptx.result) {
        sim_image_free(ptx.image);
        return ptx.result;
    }
    *parsed = ptx.image;
    return CUDA_SUCCESS;
}
