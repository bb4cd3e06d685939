/* device.c - what a device is: its properties, and choosing one by them. */
#include "simcudart/simcudart.h"

#include <string.h>

static const struct property {
    size_t offset;
    bool is_size; /* a size_t; else an int */
    CUdevice_attribute attribute;
} properties[] = {
#define PROPERTY(member, attribute)                                                                          \
    {offsetof(struct cudaDeviceProp, member),                                                                \
     sizeof(((struct cudaDeviceProp *)0)->member) == sizeof(size_t), CU_DEVICE_ATTRIBUTE_##attribute},
#include "simcudart/properties.def"
#undef PROPERTY
};

static cudaError_t get_properties(struct cudaDeviceProp *prop, int device)
{
    int count = 0;
    RUNTIME_REQUIRE(prop, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_driver());
    RUNTIME_TRY(runtime_translate(DRIVER(cuDeviceGetCount)(&count)));
    RUNTIME_REQUIRE(device >= 0 && device < count, cudaErrorInvalidDevice);
    memset(prop, 0, sizeof *prop);
    RUNTIME_TRY(runtime_translate(DRIVER(cuDeviceGetName)(prop->name, sizeof prop->name, device)));
    RUNTIME_TRY(runtime_translate(DRIVER(cuDeviceGetUuid_v2)(&prop->uuid, device)));
    RUNTIME_TRY(runtime_translate(DRIVER(cuDeviceTotalMem_v2)(&prop->totalGlobalMem, device)));
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        int value = 0;
        void *member = (char *)prop + properties[i].offset;
        /* This device does not have what its driver does not know. */
        if (DRIVER(cuDeviceGetAttribute)(&value, properties[i].attribute, device) != CUDA_SUCCESS)
            continue;
        if (properties[i].is_size)
            *(size_t *)member = (size_t)value;
        else
            *(int *)member = value;
    }
    return cudaSuccess;
}

#if CUDART_MAJOR == 12
EXPORT(cudaGetDeviceProperties_v2, get_properties, (struct cudaDeviceProp * prop, int device), (prop, device))

/* Programs made with CUDA 11 have room for the first members only. */
static cudaError_t get_properties_11(struct cudart_properties_11 *prop, int device)
{
    struct cudaDeviceProp whole;
    RUNTIME_REQUIRE(prop, cudaErrorInvalidValue);
    RUNTIME_TRY(get_properties(&whole, device));
    memcpy(prop, &whole, sizeof *prop);
    return cudaSuccess;
}
EXPORT(cudaGetDeviceProperties, get_properties_11, (struct cudart_properties_11 * prop, int device),
       (prop, device))
#else
EXPORT(cudaGetDeviceProperties, get_properties, (struct cudaDeviceProp * prop, int device), (prop, device))
#endif

/* How many of the wishes a device meets; a member that is zero is not a wish. */
static int wishes_met(const struct cudaDeviceProp *wish, const struct cudaDeviceProp *have)
{
    int met = 0;
    met += wish->name[0] && strcmp(wish->name, have->name) == 0;
    met += wish->totalGlobalMem && have->totalGlobalMem >= wish->totalGlobalMem;
    met += wish->major &&
           (have->major > wish->major || (have->major == wish->major && have->minor >= wish->minor));
    met += wish->multiProcessorCount && have->multiProcessorCount >= wish->multiProcessorCount;
    met += wish->sharedMemPerBlock && have->sharedMemPerBlock >= wish->sharedMemPerBlock;
    return met;
}

static cudaError_t choose(int *device, const struct cudaDeviceProp *wish)
{
    int count = 0, best = -1;
    RUNTIME_REQUIRE(device && wish, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_driver());
    RUNTIME_TRY(runtime_translate(DRIVER(cuDeviceGetCount)(&count)));
    for (int i = 0; i < count; i++) {
        struct cudaDeviceProp have;
        RUNTIME_TRY(get_properties(&have, i));
        if (wishes_met(wish, &have) > best) {
            best = wishes_met(wish, &have);
            *device = i;
        }
    }
    return cudaSuccess;
}
EXPORT(cudaChooseDevice, choose, (int *device, const struct cudaDeviceProp *wish), (device, wish))
