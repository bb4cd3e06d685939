/* link.c - the driver's linker, for what it is used for most: one PTX text or cubin made into an image to load, or several
 * PTX texts put together. Nothing is compiled (module.h), so the linked image is PTX again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simgpu/code/image.h"
#include "simgpu/code/library.h"
#include "simgpu/device/profile.h"

#define LINK_MAGIC 0x51c0de12u

struct CUlinkState_st {
    _Atomic unsigned kind; /* LINK_MAGIC; structs stay (sim.h) */
    char *image;           /* what was put together, with a zero behind it */
    size_t bytes;
    bool is_ptx, is_complete;
    unsigned option_count; /* for the log of errors */
    CUjit_option *options;
    void **option_values;
};

static CUresult link_check(CUlinkState state)
{
    SIM_TRY(sim_ready());
    return state && atomic_load(&state->kind) == LINK_MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult create(unsigned int count, CUjit_option *options, void **values, CUlinkState *state)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(state && (count == 0 || (options && values)));
    SIM_TRY(context_current(&context));
    struct CUlinkState_st *made = calloc(1, sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->option_count = count;
    made->options = options; /* the program's, until the linker is destroyed (driver API reference) */
    made->option_values = values;
    atomic_store(&made->kind, LINK_MAGIC);
    *state = made;
    return CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned int count, CUjit_option *options, void **values, CUlinkState *state)
{
    return create(count, options, values, state);
}

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *state)
{
    return create(count, options, values, state);
}

/* Blank what an image has once, in a text that comes behind another: .version, .target, .address_size. */
static void blank_header(char *text)
{
    static const char *const directives[] = {".version", ".target", ".address_size"};
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += strspn(line, " \t\r\n");
        for (unsigned i = 0; i < sizeof(directives) / sizeof(directives[0]); i++)
            if (strncmp(line, directives[i], strlen(directives[i])) == 0)
                memset(line, ' ', strcspn(line, "\n"));
    }
}

static CUresult append(CUlinkState state, const void *data, size_t bytes, bool is_ptx)
{
    if (state->image && !(is_ptx && state->is_ptx))
        return CUDA_ERROR_NOT_SUPPORTED; /* we do not put machine code together */
    char *image = realloc(state->image, state->bytes + bytes + 2);
    if (!image)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *added = image + state->bytes;
    memcpy(added, data, bytes);
    if (is_ptx)
        bytes = strnlen(added, bytes); /* with its zero or without */
    added[bytes] = '\0';
    if (is_ptx && state->image)
        blank_header(added);
    if (is_ptx) {
        added[bytes++] = '\n';
        added[bytes] = '\0';
    }
    state->image = image;
    state->bytes += bytes;
    state->is_ptx = is_ptx;
    return CUDA_SUCCESS;
}

static CUresult add_input(CUlinkState state, CUjitInputType type, const void *data, size_t bytes)
{
    enum { CUBIN, PTX, FATBIN };
    struct sim_image *image;
    struct error error = {0};
    SIM_TRY(link_check(state));
    SIM_REQUIRE(data && bytes > 0 && !state->is_complete);
    if (type > FATBIN)
        return CUDA_ERROR_NOT_SUPPORTED; /* object files, libraries, NVVM */
    cleanup_free char *copy = calloc(1, bytes + 1);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, data, bytes);
    CUresult result = sim_image_parse(copy, type == PTX ? SIM_IMAGE_UNKNOWN_BYTES : bytes,
                                      profile_architecture(), &image, &error);
    image_write_log(&error, state->option_count, state->options, state->option_values);
    if (result != CUDA_SUCCESS)
        return result;
    sim_image_free(image);
    return append(state, data, bytes, type == PTX);
}

/* Options of one input are about how it is compiled. */
#define ADD_DATA(symbol)                                                                                     \
    CUresult symbol(CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,      \
                    unsigned int count, CUjit_option *options, void **values)                                \
    {                                                                                                        \
        return add_input(state, type, data, bytes);                                                          \
    }
#define ADD_FILE(symbol)                                                                                     \
    CUresult symbol(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,            \
                    CUjit_option *options, void **values)                                                    \
    {                                                                                                        \
        return add_file(state, type, path);                                                                  \
    }
static CUresult add_file(CUlinkState state, CUjitInputType type, const char *path)
{
    cleanup_free char *bytes = NULL;
    size_t length;
    SIM_TRY(link_check(state));
    SIM_REQUIRE(path);
    SIM_TRY(image_read_file(path, &bytes, &length));
    if (length == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    return add_input(state, type, bytes, length);
}
ADD_DATA(cuLinkAddData)
ADD_DATA(cuLinkAddData_v2)
ADD_FILE(cuLinkAddFile)
ADD_FILE(cuLinkAddFile_v2)

/* The linker owns the image, until the program destroys the linker. */
CUresult cuLinkComplete(CUlinkState state, void **image, size_t *bytes)
{
    SIM_TRY(link_check(state));
    SIM_REQUIRE(image);
    if (!state->image)
        return CUDA_ERROR_INVALID_IMAGE;
    state->is_complete = true;
    *image = state->image;
    if (bytes)
        *bytes = state->bytes;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
    unsigned kind = LINK_MAGIC;
    SIM_TRY(link_check(state));
    if (!atomic_compare_exchange_strong(&state->kind, &kind, SIM_DESTROYED))
        return CUDA_ERROR_INVALID_HANDLE;
    free(state->image);
    state->image = NULL;
    return CUDA_SUCCESS;
}
