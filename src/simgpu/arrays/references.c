/* references.c - texture and surface references: what is bound to them and how it would be read.
 *
 * reference   made by the program (cuTexRefCreate), or a variable of a module (cuModuleGetTexRef), which is
 * found when it is first asked for and goes with the module
 *
 * Sources are the deprecated sections of the driver API reference. What it leaves open: a new reference reads
 * floats of one channel, clamped, by the nearest texel; it is unbound by binding zero bytes at address 0. The
 * kernels that we know use none. */
#include <stdlib.h>
#include <string.h>

#include "simgpu/arrays/arrays.h"
#include "simgpu/code/library.h"
#include "simgpu/memory/memory.h"

enum { OVERRIDE_FORMAT = 0x01 };                   /* CU_TRSA_OVERRIDE_FORMAT */
enum { FLAGS = 0x01 | 0x02 | 0x10 | 0x20 | 0x40 }; /* CU_TRSF_... of cuda.h */
enum { DEFAULT_UNIT = -1 };                        /* CU_PARAM_TR_DEFAULT */

enum binding { UNBOUND, BOUND_LINEAR, BOUND_PITCH, BOUND_ARRAY, BOUND_MIPMAP };

struct CUtexref_st {
    _Atomic unsigned kind; /* SIM_TEXTURE_REFERENCE; structs stay (sim.h) */
    CUmodule module;       /* NULL: the program's own */
    char *name;
    struct CUtexref_st *next; /* of all modules' */

    enum binding binding;
    CUdeviceptr address; /* as aligned as textures are */
    CUarray array;
    CUmipmappedArray mipmap;
    CUarray_format format;
    int channels;
    CUDA_TEXTURE_DESC how;
};

struct CUsurfref_st {
    _Atomic unsigned kind; /* SIM_SURFACE_REFERENCE */
    CUmodule module;
    char *name;
    struct CUsurfref_st *next;
    CUarray array; /* NULL: unbound */
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static CUtexref textures; /* of modules */
static CUsurfref surfaces;

static CUresult texture_check(CUtexref reference)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_TRY(context_current(&context));
    SIM_REQUIRE(reference && atomic_load(&reference->kind) == SIM_TEXTURE_REFERENCE);
    return CUDA_SUCCESS;
}

static CUresult surface_check(CUsurfref reference)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_TRY(context_current(&context));
    SIM_REQUIRE(reference && atomic_load(&reference->kind) == SIM_SURFACE_REFERENCE);
    return CUDA_SUCCESS;
}

/* --- Made and destroyed ---------------------------------------------------------------------------- */

static CUtexref texture_make(CUmodule module, const char *name)
{
    CUtexref reference = calloc(1, sizeof(*reference));
    if (!reference || (name && !(reference->name = strdup(name)))) {
        free(reference);
        return NULL;
    }
    reference->module = module;
    reference->format = CU_AD_FORMAT_FLOAT;
    reference->channels = 1;
    reference->how.maxAnisotropy = 1;
    for (unsigned dimension = 0; dimension < 3; dimension++)
        reference->how.addressMode[dimension] = CU_TR_ADDRESS_MODE_CLAMP;
    atomic_store(&reference->kind, SIM_TEXTURE_REFERENCE);
    return reference;
}

CUresult cuTexRefCreate(CUtexref *reference)
{
    CUcontext context;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(reference);
    SIM_TRY(context_current(&context));
    CUtexref made = texture_make(NULL, NULL);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *reference = made;
    return CUDA_SUCCESS;
}

/* A module's is the module's to destroy. */
CUresult cuTexRefDestroy(CUtexref reference)
{
    unsigned kind = SIM_TEXTURE_REFERENCE;
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(!reference->module);
    return atomic_compare_exchange_strong(&reference->kind, &kind, SIM_DESTROYED) ? CUDA_SUCCESS
                                                                                  : CUDA_ERROR_INVALID_VALUE;
}

static CUresult variable_check(CUmodule module, const char *name, enum sim_global_kind kind)
{
    SIM_TRY(module_check(module));
    const struct sim_global *global = sim_image_global(module->image, name);
    return global && global->kind == kind ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetTexRef(CUtexref *reference, CUmodule module, const char *name)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(reference && name);
    SIM_TRY(variable_check(module, name, SIM_GLOBAL_TEXTURE));
    pthread_mutex_lock(&turn);
    CUtexref found = textures;
    while (found && (found->module != module || strcmp(found->name, name) != 0))
        found = found->next;
    if (!found && (found = texture_make(module, name))) {
        found->next = textures;
        textures = found;
    }
    pthread_mutex_unlock(&turn);
    if (!found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *reference = found;
    return CUDA_SUCCESS;
}

static CUsurfref surface_make(CUmodule module, const char *name)
{
    CUsurfref reference = calloc(1, sizeof(*reference));
    if (!reference || !(reference->name = strdup(name))) {
        free(reference);
        return NULL;
    }
    reference->module = module;
    atomic_store(&reference->kind, SIM_SURFACE_REFERENCE);
    return reference;
}

CUresult cuModuleGetSurfRef(CUsurfref *reference, CUmodule module, const char *name)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(reference && name);
    SIM_TRY(variable_check(module, name, SIM_GLOBAL_SURFACE));
    pthread_mutex_lock(&turn);
    CUsurfref found = surfaces;
    while (found && (found->module != module || strcmp(found->name, name) != 0))
        found = found->next;
    if (!found && (found = surface_make(module, name))) {
        found->next = surfaces;
        surfaces = found;
    }
    pthread_mutex_unlock(&turn);
    if (!found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *reference = found;
    return CUDA_SUCCESS;
}

/* The structs stay, out of the lists, so that a stale handle is told from a living one. */
#define DROP(list)                                                                                           \
    for (__typeof__(list) *link = &(list), reference; (reference = *link);) {                                \
        if (reference->module != module) {                                                                   \
            link = &reference->next;                                                                         \
            continue;                                                                                        \
        }                                                                                                    \
        *link = reference->next;                                                                             \
        atomic_store(&reference->kind, SIM_DESTROYED);                                                       \
        free(reference->name);                                                                               \
    }

void references_drop(CUmodule module)
{
    pthread_mutex_lock(&turn);
    DROP(textures)
    DROP(surfaces)
    pthread_mutex_unlock(&turn);
}
#undef DROP

/* --- What textures are bound to -------------------------------------------------------------------- */

static uint64_t limit_of(CUdevice_attribute attribute)
{
    CUdevice device;
    int value;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        cuDeviceGetAttribute(&value, attribute, device) != CUDA_SUCCESS)
        return 0;
    return (uint64_t)value;
}

CUresult cuTexRefSetArray(CUtexref reference, CUarray array, unsigned int flags)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(flags == OVERRIDE_FORMAT && array_check(array) == CUDA_SUCCESS);
    reference->binding = BOUND_ARRAY;
    reference->array = array;
    reference->format = array->descriptor.Format;
    reference->channels = (int)array->descriptor.NumChannels;
    return CUDA_SUCCESS;
}

CUresult cuTexRefGetArray(CUarray *array, CUtexref reference)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(array && reference->binding == BOUND_ARRAY);
    *array = reference->array;
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetMipmappedArray(CUtexref reference, CUmipmappedArray mipmap, unsigned int flags)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(flags == OVERRIDE_FORMAT && mipmap_check(mipmap) == CUDA_SUCCESS);
    reference->binding = BOUND_MIPMAP;
    reference->mipmap = mipmap;
    reference->format = mipmap->descriptor.Format;
    reference->channels = (int)mipmap->descriptor.NumChannels;
    return CUDA_SUCCESS;
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray *mipmap, CUtexref reference)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(mipmap && reference->binding == BOUND_MIPMAP);
    *mipmap = reference->mipmap;
    return CUDA_SUCCESS;
}

/* What is between the aligned address that is bound and the one that was meant goes into `*offset`, which a
 * program may only leave out where it is nothing. */
CUresult cuTexRefSetAddress_v2(size_t *offset, CUtexref reference, CUdeviceptr address, size_t bytes)
{
    SIM_TRY(texture_check(reference));
    if (address == 0 && bytes == 0) {
        reference->binding = UNBOUND;
        if (offset)
            *offset = 0;
        return CUDA_SUCCESS;
    }
    size_t before = (size_t)(address % limit_of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT));
    unsigned texel_bytes = array_texel_of(reference->format, (unsigned)reference->channels).bytes;
    SIM_REQUIRE(bytes > 0 && (offset || before == 0) && texel_bytes > 0);
    SIM_REQUIRE(bytes / texel_bytes <= limit_of(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH));
    SIM_REQUIRE(memory_is_accessible(address, bytes));
    reference->binding = BOUND_LINEAR;
    reference->address = address - before;
    if (offset)
        *offset = before;
    return CUDA_SUCCESS;
}

static CUresult bind_pitch(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR *descriptor, CUdeviceptr address,
                           size_t pitch)
{
    uint64_t before_last, row_bytes;
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(descriptor && descriptor->Width > 0 && descriptor->Height > 0);
    unsigned texel_bytes = array_texel_of(descriptor->Format, descriptor->NumChannels).bytes;
    SIM_REQUIRE(texel_bytes > 0);
    SIM_REQUIRE(address % limit_of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) == 0);
    SIM_REQUIRE(pitch % limit_of(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) == 0);
    SIM_REQUIRE(descriptor->Width <= limit_of(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH));
    SIM_REQUIRE(descriptor->Height <= limit_of(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT));
    SIM_REQUIRE(pitch <= limit_of(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH));
    row_bytes = descriptor->Width * (uint64_t)texel_bytes;
    before_last = pitch * (uint64_t)(descriptor->Height - 1);
    SIM_REQUIRE(row_bytes <= pitch && memory_is_accessible(address, before_last + row_bytes));
    reference->binding = BOUND_PITCH;
    reference->address = address;
    reference->format = descriptor->Format;
    reference->channels = (int)descriptor->NumChannels;
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetAddress2D_v2(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR *descriptor,
                                 CUdeviceptr address, size_t pitch)
{
    return bind_pitch(reference, descriptor, address, pitch);
}

CUresult cuTexRefSetAddress2D_v3(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR *descriptor,
                                 CUdeviceptr address, size_t pitch)
{
    return bind_pitch(reference, descriptor, address, pitch);
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr *address, CUtexref reference)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(address && (reference->binding == BOUND_LINEAR || reference->binding == BOUND_PITCH));
    *address = reference->address;
    return CUDA_SUCCESS;
}

/* --- How they are read ----------------------------------------------------------------------------- */

/* Pitched memory brought its format with it. */
CUresult cuTexRefSetFormat(CUtexref reference, CUarray_format format, int channels)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(reference->binding != BOUND_PITCH && channels > 0);
    SIM_REQUIRE(array_texel_of(format, (unsigned)channels).bytes > 0);
    reference->format = format;
    reference->channels = channels;
    return CUDA_SUCCESS;
}

CUresult cuTexRefGetFormat(CUarray_format *format, int *channels, CUtexref reference)
{
    SIM_TRY(texture_check(reference));
    if (format)
        *format = reference->format;
    if (channels)
        *channels = reference->channels;
    return CUDA_SUCCESS;
}

/* "No effect if bound to linear memory." */
CUresult cuTexRefSetAddressMode(CUtexref reference, int dimension, CUaddress_mode mode)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(dimension >= 0 && dimension < 3 && mode <= CU_TR_ADDRESS_MODE_BORDER);
    if (reference->binding != BOUND_LINEAR)
        reference->how.addressMode[dimension] = mode;
    return CUDA_SUCCESS;
}

/* "The only valid values for dim are 0 and 1." */
CUresult cuTexRefGetAddressMode(CUaddress_mode *mode, CUtexref reference, int dimension)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(mode && dimension >= 0 && dimension < 2);
    *mode = reference->how.addressMode[dimension];
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetFilterMode(CUtexref reference, CUfilter_mode mode)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(mode <= CU_TR_FILTER_MODE_LINEAR);
    if (reference->binding != BOUND_LINEAR)
        reference->how.filterMode = mode;
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetMipmapFilterMode(CUtexref reference, CUfilter_mode mode)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(mode <= CU_TR_FILTER_MODE_LINEAR);
    reference->how.mipmapFilterMode = mode;
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetMipmapLevelBias(CUtexref reference, float bias)
{
    SIM_TRY(texture_check(reference));
    reference->how.mipmapLevelBias = bias;
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref reference, float least, float most)
{
    SIM_TRY(texture_check(reference));
    reference->how.minMipmapLevelClamp = least;
    reference->how.maxMipmapLevelClamp = most;
    return CUDA_SUCCESS;
}

CUresult cuTexRefGetMipmapLevelClamp(float *least, float *most, CUtexref reference)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(least && most);
    *least = reference->how.minMipmapLevelClamp;
    *most = reference->how.maxMipmapLevelClamp;
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetMaxAnisotropy(CUtexref reference, unsigned int most)
{
    SIM_TRY(texture_check(reference));
    if (reference->binding != BOUND_LINEAR)
        reference->how.maxAnisotropy = most;
    return CUDA_SUCCESS;
}

/* "Can be set only when the address mode is BORDER." */
CUresult cuTexRefSetBorderColor(CUtexref reference, float *color)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(color && reference->how.addressMode[0] == CU_TR_ADDRESS_MODE_BORDER);
    memcpy(reference->how.borderColor, color, sizeof(reference->how.borderColor));
    return CUDA_SUCCESS;
}

CUresult cuTexRefGetBorderColor(float *color, CUtexref reference)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE(color);
    memcpy(color, reference->how.borderColor, sizeof(reference->how.borderColor));
    return CUDA_SUCCESS;
}

CUresult cuTexRefSetFlags(CUtexref reference, unsigned int flags)
{
    SIM_TRY(texture_check(reference));
    SIM_REQUIRE((flags & ~(unsigned)FLAGS) == 0);
    reference->how.flags = flags;
    return CUDA_SUCCESS;
}

#define GET(what, type, value)                                                                               \
    CUresult cuTexRefGet##what(type *out, CUtexref reference)                                                \
    {                                                                                                        \
        SIM_TRY(texture_check(reference));                                                                   \
        SIM_REQUIRE(out);                                                                                    \
        *out = (type)reference->how.value;                                                                   \
        return CUDA_SUCCESS;                                                                                 \
    }
GET(FilterMode, CUfilter_mode, filterMode)
GET(MipmapFilterMode, CUfilter_mode, mipmapFilterMode)
GET(MipmapLevelBias, float, mipmapLevelBias)
GET(MaxAnisotropy, int, maxAnisotropy)
GET(Flags, unsigned, flags)
#undef GET

/* Makes the reference's memory the kernel's to read, which it is anyway. */
CUresult cuParamSetTexRef(CUfunction function, int unit, CUtexref reference)
{
    SIM_TRY(texture_check(reference));
    SIM_TRY(function_check(function));
    SIM_REQUIRE(unit == DEFAULT_UNIT);
    return CUDA_SUCCESS;
}

/* --- Surfaces -------------------------------------------------------------------------------------- */

CUresult cuSurfRefSetArray(CUsurfref reference, CUarray array, unsigned int flags)
{
    SIM_TRY(surface_check(reference));
    SIM_REQUIRE(flags == 0 && array_check(array) == CUDA_SUCCESS &&
                (array->descriptor.Flags & ARRAY_SURFACE));
    reference->array = array;
    return CUDA_SUCCESS;
}

CUresult cuSurfRefGetArray(CUarray *array, CUsurfref reference)
{
    SIM_TRY(surface_check(reference));
    SIM_REQUIRE(array && reference->array);
    *array = reference->array;
    return CUDA_SUCCESS;
}
