/* others.c - rows: arrays, code, green contexts, memory of other APIs, look-ups. */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "cuda/array_size.h"
#include "cuda/entry_points.h"
#include "differ.h"

/* --- Arrays ---------------------------------------------------------------------------------------- */

static const CUarray_format formats[] = {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_HALF,
                                         CU_AD_FORMAT_UNSIGNED_INT32, (CUarray_format)77};

static uint64_t elements_of(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    unsigned __int128 elements =
        (unsigned __int128)(shape->Width ? shape->Width : 1) * (shape->Height ? shape->Height : 1);
    if (elements > UINT64_MAX >> 8)
        return UINT64_MAX;
    return (uint64_t)elements * (shape->Depth ? shape->Depth : 1);
}

/* What the card needs, in its tiles. Of a format that is not known: at most 16 bytes an element. */
static void ask_for(struct actor *actor, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels)
{
    uint64_t elements = elements_of(shape), bytes = cuda_array_bytes(shape, levels);
    actor->ask = bytes ? bytes : elements > UINT64_MAX / 64 ? UINT64_MAX : elements * 32 + 4096;
}

static CUDA_ARRAY3D_DESCRIPTOR some_shape(struct actor *actor, bool flat)
{
    static const unsigned channels[] = {1, 2, 4, 1, 2, 4, 3, 0},
                          flags[] = {0, 0, 0, 0, 1, 2, 4, 0x40, 0x80, 0x8000};
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = one_in(actor, 10) ? some_bytes(actor) : chance(actor, 500),
        .Height = one_in(actor, 12) ? some_bytes(actor) : chance(actor, 200),
        .Depth = flat ? 0 : chance(actor, 12),
        .Format = formats[chance(actor, 5)],
        .NumChannels = channels[chance(actor, 8)],
        .Flags = flat ? 0 : flags[chance(actor, 10)],
    };
    if (is_in_between(elements_of(&shape)) || is_in_between(elements_of(&shape) / 2 * 64))
        shape.Height = shape.Width = 1;
    put(actor, "%zux%zux%zu format %d, %u channels, flags %u ", shape.Width, shape.Height, shape.Depth,
        shape.Format, shape.NumChannels, shape.Flags);
    ask_for(actor, &shape, 1);
    return shape;
}

static void made_array(struct actor *actor, CUresult result, enum kind kind, void *array)
{
    uint64_t value = (uint64_t)(uintptr_t)array;
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        put(actor, " made %u", add_thing(actor, kind, value, 0)->number);
    else
        put_kept(actor, value);
}

static void array_create(struct actor *actor)
{
    CUarray array = (CUarray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR shape = some_shape(actor, true);
    CUDA_ARRAY_DESCRIPTOR flat = {shape.Width, shape.Height, shape.Format, shape.NumChannels};
    CUarray *out = one_in(actor, 15) ? NULL : &array;
    const CUDA_ARRAY_DESCRIPTOR *how = one_in(actor, 15) ? NULL : &flat;
    put(actor, "%s %s", out ? "&" : "NULL", how ? "&" : "NULL");
    CUresult result = CALL(actor, cuArrayCreate_v2)(out, how);
    made_array(actor, result, ARRAY, array);
}

static void array_create_narrow(struct actor *actor)
{
    CUarray array = (CUarray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR shape = some_shape(actor, true);
    CUDA_ARRAY_DESCRIPTOR_v1 flat = {(unsigned)shape.Width, (unsigned)shape.Height, shape.Format,
                                     shape.NumChannels};
    CUresult result = CALL(actor, cuArrayCreate)(&array, &flat);
    made_array(actor, result, ARRAY, array);
}

static void array_create_3d(struct actor *actor)
{
    CUarray array = (CUarray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR shape = some_shape(actor, false);
    CUarray *out = one_in(actor, 15) ? NULL : &array;
    put(actor, "%s", out ? "&" : "NULL");
    CUresult result = CALL(actor, cuArray3DCreate_v2)(out, &shape);
    made_array(actor, result, ARRAY, array);
}

static void array_create_3d_narrow(struct actor *actor)
{
    CUarray array = (CUarray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR shape = some_shape(actor, false);
    CUDA_ARRAY3D_DESCRIPTOR_v1 narrow = {(unsigned)shape.Width, (unsigned)shape.Height, (unsigned)shape.Depth,
                                         shape.Format,          shape.NumChannels,      shape.Flags};
    CUresult result = CALL(actor, cuArray3DCreate)(&array, &narrow);
    made_array(actor, result, ARRAY, array);
}

static void mipmap_create(struct actor *actor)
{
    CUmipmappedArray array = (CUmipmappedArray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR shape = some_shape(actor, false);
    CUmipmappedArray *out = one_in(actor, 15) ? NULL : &array;
    const CUDA_ARRAY3D_DESCRIPTOR *how = one_in(actor, 15) ? NULL : &shape;
    unsigned levels = (unsigned)chance(actor, 12);
    ask_for(actor, &shape, levels);
    put(actor, "%s %s %u", out ? "&" : "NULL", how ? "&" : "NULL", levels);
    CUresult result = CALL(actor, cuMipmappedArrayCreate)(out, how, levels);
    made_array(actor, result, MIPMAP, array);
}

static void array_destroy(struct actor *actor)
{
    uint64_t array = pick(actor, ARRAY);
    CUresult result = CALL(actor, cuArrayDestroy)((CUarray)(uintptr_t)array);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(ARRAY, array);
}

static void mipmap_destroy(struct actor *actor)
{
    uint64_t array = pick(actor, MIPMAP);
    CUresult result = CALL(actor, cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)array);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(MIPMAP, array);
}

static void map_array(struct actor *actor)
{
    CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                           .memOperationType = CU_MEM_OPERATION_TYPE_MAP};
    info.resource.array = (CUarray)(uintptr_t)pick(actor, ARRAY);
    info.memHandle.memHandle = pick(actor, HANDLE);
    unsigned count = (unsigned)chance(actor, 2);
    put(actor, "%u", count);
    put_result(actor, CALL(actor, cuMemMapArrayAsync)(one_in(actor, 3) ? NULL : &info, count, NULL));
}

/* --- Code ------------------------------------------------------------------------------------------ */

static const void *some_image(struct actor *actor)
{
    switch (chance(actor, 5)) {
    case 0:
        put(actor, "NULL ");
        return NULL;
    case 1:
        put(actor, "nonsense ");
        return "no code at all";
    default:
        put(actor, "PTX ");
        return kernels_text;
    }
}

static void made(struct actor *actor, CUresult result, enum kind kind, const void *handle)
{
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        put(actor, " made %u", add_thing(actor, kind, (uint64_t)(uintptr_t)handle, 0)->number);
}

static void module_load_data(struct actor *actor)
{
    CUmodule module = NULL;
    CUmodule *out = one_in(actor, 8) ? NULL : &module;
    put(actor, "%s ", out ? "&" : "NULL");
    CUresult result = CALL(actor, cuModuleLoadData)(out, some_image(actor));
    made(actor, result, MODULE, module);
}

static void module_load_data_ex(struct actor *actor)
{
    CUmodule module = NULL;
    CUresult result = CALL(actor, cuModuleLoadDataEx)(&module, some_image(actor), 0, NULL, NULL);
    made(actor, result, MODULE, module);
}

static void module_load(struct actor *actor)
{
    CUmodule module = NULL;
    const char *path = one_in(actor, 2) ? "/nowhere/at.all" : "/dev/null";
    put(actor, "%s", path);
    CUresult result = CALL(actor, cuModuleLoad)(&module, path);
    made(actor, result, MODULE, module);
}

static void module_unload(struct actor *actor)
{
    struct thing *thing = one_in(actor, 5) ? NULL : random_living(actor, MODULE);
    CUmodule module = thing ? (CUmodule)(uintptr_t)thing->value : NULL;
    put(actor, "%d", thing ? (int)thing->number : -1);
    CUresult result = CALL(actor, cuModuleUnload)(module);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(MODULE, (uint64_t)(uintptr_t)module);
}

static void library_load_data(struct actor *actor)
{
    CUlibrary library = NULL;
    const void *image = some_image(actor);
    CUresult result = CALL(actor, cuLibraryLoadData)(&library, image, NULL, NULL, 0, NULL, NULL, 0);
    made(actor, result, LIBRARY, library);
}

static void library_load_file(struct actor *actor)
{
    CUlibrary library = NULL;
    put(actor, "/nowhere/at.all");
    CUresult result =
        CALL(actor, cuLibraryLoadFromFile)(&library, "/nowhere/at.all", NULL, NULL, 0, NULL, NULL, 0);
    made(actor, result, LIBRARY, library);
}

static void library_unload(struct actor *actor)
{
    struct thing *thing = one_in(actor, 5) ? NULL : random_living(actor, LIBRARY);
    CUlibrary library = thing ? (CUlibrary)(uintptr_t)thing->value : NULL;
    put(actor, "%d", thing ? (int)thing->number : -1);
    CUresult result = CALL(actor, cuLibraryUnload)(library);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(LIBRARY, (uint64_t)(uintptr_t)library);
}

/* --- Green contexts, memory of other APIs ---------------------------------------------------------- */

static void green_create(struct actor *actor)
{
    CUgreenCtx green = (CUgreenCtx)UNTOUCHED;
    CUgreenCtx *out = one_in(actor, 8) ? NULL : &green;
    CUdevice device = some_device(actor);
    CUdevResource resource = {0};
    CUdevResourceDesc description = NULL;
    bool described = !one_in(actor, 3) &&
                     cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
                     cuDevResourceGenerateDesc(&description, &resource, 1) == CUDA_SUCCESS;
    unsigned flags = one_in(actor, 4) ? 0 : 1;
    actor->own_limit = true;
    put(actor, "%s %s %d %u", out ? "&" : "NULL", described ? "described" : "NULL", device, flags);
    CUresult result = CALL(actor, cuGreenCtxCreate)(out, description, device, flags);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        put(actor, " made %u", add_thing(actor, GREEN, (uint64_t)(uintptr_t)green, (uint64_t)device)->number);
}

static void green_destroy(struct actor *actor)
{
    struct thing *thing = one_in(actor, 5) ? NULL : random_living(actor, GREEN);
    CUgreenCtx green = thing ? (CUgreenCtx)(uintptr_t)thing->value : NULL;
    CUdevice device = thing ? (CUdevice)thing->bytes : 0;
    put(actor, "%d", thing ? (int)thing->number : -1);
    CUcontext own = NULL;
    if (green)
        cuCtxFromGreenCtx(&own, green);
    CUresult result = CALL(actor, cuGreenCtxDestroy)(green);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(GREEN, (uint64_t)(uintptr_t)green);
    unsigned flags;
    int active = 1;
    if (result == CUDA_SUCCESS && cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
        !active)
        end_context((uint64_t)(uintptr_t)own);
}

static void import_external(struct actor *actor)
{
    CUexternalMemory memory = (CUexternalMemory)UNTOUCHED;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = (CUexternalMemoryHandleType)chance(actor, 10), .handle.fd = -1, .size = some_bytes(actor)};
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *how = one_in(actor, 8) ? NULL : &description;
    actor->ask = description.size;
    put(actor, "%s %d %llu", how ? "&" : "NULL", description.type, description.size);
    CUresult result = CALL(actor, cuImportExternalMemory)(&memory, how);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        add_thing(actor, EXTERNAL, (uint64_t)(uintptr_t)memory, description.size);
}

static void destroy_external(struct actor *actor)
{
    struct thing *thing = random_living(actor, EXTERNAL);
    CUexternalMemory memory = thing ? (CUexternalMemory)(uintptr_t)thing->value : NULL;
    CUresult result = CALL(actor, cuDestroyExternalMemory)(memory);
    put_result(actor, result);
    if (result == CUDA_SUCCESS)
        end_thing(EXTERNAL, (uint64_t)(uintptr_t)memory);
}

/* --- Look-ups -------------------------------------------------------------------------------------- */

static const char *name_of(const void *function)
{
    static void *known[CUDA_ENTRY_COUNT];
    if (!known[0])
        for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
            known[id] = dlsym(RTLD_DEFAULT, cuda_entries[id].symbol);
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        if (known[id] == function)
            return cuda_entries[id].symbol;
    return function ? "something else" : "NULL";
}

struct lookup {
    const char *name;
    int version;
    cuuint64_t flags;
    void *function;
    void **out;
};

static struct lookup some_lookup(struct actor *actor)
{
    static const char *const strange[] = {"", "cuNothing", "cuMemAlloc_v2", "cuMemFree ", "nvmlInit"};
    static const int versions[] = {0,     2000,  3020,  4000,  7000,  11020, 12000,
                                   12050, 13000, 13000, 13000, 13010, -1};
    static const cuuint64_t flags[] = {0, 0, 1, 2, 2, 3, 4, 1u << 31};
    struct lookup lookup = {.function = (void *)UNTOUCHED};
    lookup.name = one_in(actor, 12)   ? strange[chance(actor, 5)]
                  : one_in(actor, 25) ? NULL
                                      : cuda_entries[chance(actor, CUDA_ENTRY_COUNT)].name;
    lookup.version = versions[chance(actor, 13)];
    lookup.flags = flags[chance(actor, 8)];
    lookup.out = one_in(actor, 20) ? NULL : &lookup.function;
    put(actor, "%s %d %llu %s", lookup.name ? lookup.name : "NULL", lookup.version,
        (unsigned long long)lookup.flags, lookup.out ? "&" : "NULL");
    return lookup;
}

static void found(struct actor *actor, CUresult result, const struct lookup *lookup)
{
    put_result(actor, result);
    put(actor, " %s", lookup->function == (void *)UNTOUCHED ? "kept" : name_of(lookup->function));
}

static void proc_address(struct actor *actor)
{
    struct lookup lookup = some_lookup(actor);
    void **out = lookup.out ? &lookup.function : NULL;
    CUresult result = CALL(actor, cuGetProcAddress)(lookup.name, out, lookup.version, lookup.flags);
    found(actor, result, &lookup);
}

static void proc_address_v2(struct actor *actor)
{
    struct lookup lookup = some_lookup(actor);
    void **out = lookup.out ? &lookup.function : NULL;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77,
                                   *told = one_in(actor, 4) ? NULL : &status;
    CUresult result = CALL(actor, cuGetProcAddress_v2)(lookup.name, out, lookup.version, lookup.flags, told);
    found(actor, result, &lookup);
    put(actor, " status %d", status);
}

static void init(struct actor *actor)
{
    unsigned flags = 1 + (unsigned)chance(actor, 3);
    put(actor, "%u", flags); /* never 0: when this process initialises is not for this row to say */
    put_result(actor, CALL(actor, cuInit)(flags));
}

#define ROW(symbol, weight, call)                                                                            \
    {                                                                                                        \
#symbol, (void *)(uintptr_t)symbol, weight, call                                                     \
    }
const struct row other_rows[] = {
    ROW(cuArrayCreate_v2, 2, array_create),
    ROW(cuArrayCreate, 1, array_create_narrow),
    ROW(cuArray3DCreate_v2, 3, array_create_3d),
    ROW(cuArray3DCreate, 1, array_create_3d_narrow),
    ROW(cuArrayDestroy, 3, array_destroy),
    ROW(cuMipmappedArrayCreate, 2, mipmap_create),
    ROW(cuMipmappedArrayDestroy, 2, mipmap_destroy),
    ROW(cuMemMapArrayAsync, 1, map_array),
    ROW(cuMemMapArrayAsync_ptsz, 1, map_array),
    ROW(cuModuleLoadData, 1, module_load_data),
    ROW(cuModuleLoadDataEx, 1, module_load_data_ex),
    ROW(cuModuleLoadFatBinary, 1, module_load_data),
    ROW(cuModuleLoad, 1, module_load),
    ROW(cuModuleUnload, 2, module_unload),
    ROW(cuLibraryLoadData, 1, library_load_data),
    ROW(cuLibraryLoadFromFile, 1, library_load_file),
    ROW(cuLibraryUnload, 1, library_unload),
    ROW(cuGreenCtxCreate, 1, green_create),
    ROW(cuGreenCtxDestroy, 1, green_destroy),
    ROW(cuImportExternalMemory, 1, import_external),
    ROW(cuDestroyExternalMemory, 1, destroy_external),
    ROW(cuGetProcAddress, 4, proc_address),
    ROW(cuGetProcAddress_v2, 6, proc_address_v2),
    ROW(cuGetProcAddress_v2_ptsz, 4, proc_address_v2),
    ROW(cuInit, 1, init),
    {NULL, NULL, 0, NULL},
};
