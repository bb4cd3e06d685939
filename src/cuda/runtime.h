/* runtime.h - the CUDA runtime's ABI: types and values of libcudart.so.12 and libcudart.so.13 on 64-bit Linux.
 *
 * Ours, as driver.h is for the driver, and compared with cuda_runtime_api.h by a test where one is installed. Define
 * CUDART_MAJOR before including it to get the types of one version; without it they are those of 13. Only what
 * somebody here looks into is spelled out: structs that are handed on to the driver untouched stay incomplete, and
 * enums that are handed on are ints. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/driver_more.h"

#ifndef CUDART_MAJOR
#define CUDART_MAJOR 13
#endif
/* What cudaRuntimeGetVersion() answers, and the newest driver interface that this runtime asks for. */
#define CUDART_VERSION (CUDART_MAJOR == 12 ? 12090 : 13000)

typedef enum cudaError {
#define CUDART_RESULT(name, value, text) name = value,
#include "cuda/runtime_results.def"
#undef CUDART_RESULT
} cudaError_t;

/* Handles are the driver's own: what the runtime makes, the driver understands, and the other way round. */
typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUgraph cudaGraph_t;
typedef CUgraphNode cudaGraphNode_t;
typedef CUgraphExec cudaGraphExec_t;
typedef CUuserObject cudaUserObject_t;
typedef CUmemoryPool cudaMemPool_t;
typedef CUfunction cudaFunction_t;
typedef CUkernel cudaKernel_t;
typedef CUlibrary cudaLibrary_t;
typedef CUexternalMemory cudaExternalMemory_t;
typedef struct CUexternalSemaphore_st *cudaExternalSemaphore_t;
typedef struct cudaArray *cudaArray_t;
typedef const struct cudaArray *cudaArray_const_t;
typedef struct cudaMipmappedArray *cudaMipmappedArray_t;
typedef const struct cudaMipmappedArray *cudaMipmappedArray_const_t;
typedef struct cudaGraphicsResource *cudaGraphicsResource_t;
typedef unsigned long long cudaSurfaceObject_t;
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaGraphConditionalHandle;
typedef unsigned int cudaLogIterator;
typedef struct CUlogsCallbackEntry_st *cudaLogsCallbackHandle;
typedef struct cudaAsyncCallbackEntry *cudaAsyncCallbackHandle_t;
typedef int cudaLaunchAttributeID;

typedef CUuuid cudaUUID_t;
typedef CUipcMemHandle cudaIpcMemHandle_t;
typedef CUipcEventHandle cudaIpcEventHandle_t;
typedef CUlaunchAttribute cudaLaunchAttribute;
typedef CUlaunchAttributeValue cudaLaunchAttributeValue;
typedef CUgraphEdgeData cudaGraphEdgeData;
typedef struct cudaGraphInstantiateParams_st cudaGraphInstantiateParams;
typedef struct cudaGraphExecUpdateResultInfo_st cudaGraphExecUpdateResultInfo;

typedef void (*cudaHostFn_t)(void *argument);
typedef void (*cudaStreamCallback_t)(cudaStream_t stream, cudaError_t status, void *argument);
typedef void (*cudaAsyncCallback)(void *info, void *argument, cudaAsyncCallbackHandle_t callback);
typedef void (*cudaLogsCallback_t)(void *data, int level, char *message, size_t length);

#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
#define cudaCpuDeviceId (-1)
#define cudaInvalidDeviceId (-2)
#define cudaHostAllocDefault 0u
#define cudaHostAllocPortable 1u
#define cudaHostAllocMapped 2u
#define cudaHostAllocWriteCombined 4u
#define cudaStreamDefault 0u
#define cudaStreamNonBlocking 1u
#define cudaEventDefault 0u
#define cudaEventBlockingSync 1u
#define cudaEventDisableTiming 2u
#define cudaEventInterprocess 4u
#define cudaDeviceScheduleAuto 0u
#define cudaDeviceScheduleSpin 1u
#define cudaDeviceScheduleYield 2u
#define cudaDeviceScheduleBlockingSync 4u
#define cudaDeviceScheduleMask 7u
#define cudaDeviceMapHost 8u
#define cudaDeviceLmemResizeToMax 16u
#define cudaDeviceSyncMemops 128u
#define cudaDeviceMask 255u
#define cudaInitDeviceFlagsAreValid 1u
#define cudaMemAttachGlobal 1u
#define cudaMemAttachHost 2u
#define cudaArrayDefault 0u
#define cudaArrayLayered 1u
#define cudaArrayCubemap 4u

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4, /* from where the pointers point */
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3,
};

enum cudaChannelFormatKind {
    cudaChannelFormatKindSigned = 0,
    cudaChannelFormatKindUnsigned = 1,
    cudaChannelFormatKindFloat = 2,
    cudaChannelFormatKindNone = 3,
};

enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
    cudaDriverEntryPointVersionNotSufficent = 2, /* the toolkit's spelling */
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum cudaGraphNodeType {
    cudaGraphNodeTypeKernel = 0,
    cudaGraphNodeTypeMemcpy = 1,
    cudaGraphNodeTypeMemset = 2,
    cudaGraphNodeTypeHost = 3,
};

typedef struct dim3 {
    unsigned int x, y, z;
} dim3;

struct cudaChannelFormatDesc {
    int x, y, z, w; /* bits of each channel */
    enum cudaChannelFormatKind f;
};

struct cudaPitchedPtr {
    void *ptr;
    size_t pitch, xsize, ysize;
};

struct cudaExtent {
    size_t width, height, depth;
};

struct cudaPos {
    size_t x, y, z;
};

struct cudaMemcpy3DParms {
    cudaArray_t srcArray;
    struct cudaPos srcPos;
    struct cudaPitchedPtr srcPtr;
    cudaArray_t dstArray;
    struct cudaPos dstPos;
    struct cudaPitchedPtr dstPtr;
    struct cudaExtent extent; /* elements where an array takes part, else bytes */
    enum cudaMemcpyKind kind;
};

struct cudaMemcpy3DPeerParms {
    cudaArray_t srcArray;
    struct cudaPos srcPos;
    struct cudaPitchedPtr srcPtr;
    int srcDevice;
    cudaArray_t dstArray;
    struct cudaPos dstPos;
    struct cudaPitchedPtr dstPtr;
    int dstDevice;
    struct cudaExtent extent;
};

struct cudaMemsetParams {
    void *dst;
    size_t pitch;
    unsigned int value;
    unsigned int elementSize;
    size_t width; /* elements */
    size_t height;
};

struct cudaMemLocation {
    CUmemLocationType type;
    int id;
};

struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer;
    void *hostPointer;
#if CUDART_MAJOR >= 13
    long reserved[8];
#endif
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int cacheModeCA;
    int maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
    int clusterDimMustBeSet;
    int requiredClusterWidth;
    int requiredClusterHeight;
    int requiredClusterDepth;
    int clusterSchedulingPolicyPreference;
    int nonPortableClusterSizeAllowed;
    int reserved[16];
};

struct cudaKernelNodeParams {
    void *func; /* the host's stand-in for the kernel, or a handle */
    dim3 gridDim;
    dim3 blockDim;
    unsigned int sharedMemBytes;
    void **kernelParams;
    void **extra;
};

typedef struct cudaLaunchConfig_st {
    dim3 gridDim;
    dim3 blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned int numAttrs;
} cudaLaunchConfig_t;

struct cudaResourceDesc {
    int resType; /* numbered as the driver's, like all enums here */
    union {
        cudaArray_t array;
        cudaMipmappedArray_t mipmap;
        struct {
            void *devPtr;
            struct cudaChannelFormatDesc desc;
            size_t sizeInBytes;
        } linear;
        struct {
            void *devPtr;
            struct cudaChannelFormatDesc desc;
            size_t width, height, pitchInBytes;
        } pitch2D;
#if CUDART_MAJOR >= 13
        int reserved[32];
#endif
    } res;
#if CUDART_MAJOR >= 13
    unsigned int flags;
#endif
};

struct cudaTextureDesc {
    int addressMode[3];
    int filterMode;
    int readMode; /* 0: elements as they are */
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
    unsigned int maxAnisotropy;
    int mipmapFilterMode;
    float mipmapLevelBias;
    float minMipmapLevelClamp;
    float maxMipmapLevelClamp;
    int disableTrilinearOptimization;
    int seamlessCubemap;
};

struct cudaExternalMemoryHandleDesc {
    int type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } win32;
        const void *nvSciBufObject;
    } handle;
    unsigned long long size;
    unsigned int flags;
#if CUDART_MAJOR >= 13
    unsigned int reserved[16];
#endif
};

struct cudaExternalMemoryBufferDesc {
    unsigned long long offset;
    unsigned long long size;
    unsigned int flags;
#if CUDART_MAJOR >= 13
    unsigned int reserved[16];
#endif
};

struct cudaExternalMemoryMipmappedArrayDesc {
    unsigned long long offset;
    struct cudaChannelFormatDesc formatDesc;
    struct cudaExtent extent;
    unsigned int flags;
    unsigned int numLevels;
#if CUDART_MAJOR >= 13
    unsigned int reserved[16];
#endif
};

struct cudaExternalSemaphoreHandleDesc {
    int type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } win32;
        const void *nvSciSyncObj;
    } handle;
    unsigned int flags;
#if CUDART_MAJOR >= 13
    unsigned int reserved[16];
#endif
};

/* Three layouts: that of CUDA 11, which libcudart.so.12 still fills under the old name; that of 12; and that of 13,
 * which left out what had been deprecated (old) and has more at its end. CUDA 11's is the beginning of 12's. */
#define CUDART_PROPERTY_MEMBERS_11(...) __VA_ARGS__
#define CUDART_PROPERTY_MEMBERS_13(...)
#define CUDART_PROPERTIES_UP_TO_11(old)                                                                      \
    char name[256];                                                                                          \
    cudaUUID_t uuid;                                                                                         \
    char luid[8];                                                                                            \
    unsigned int luidDeviceNodeMask;                                                                         \
    size_t totalGlobalMem;                                                                                   \
    size_t sharedMemPerBlock;                                                                                \
    int regsPerBlock;                                                                                        \
    int warpSize;                                                                                            \
    size_t memPitch;                                                                                         \
    int maxThreadsPerBlock;                                                                                  \
    int maxThreadsDim[3];                                                                                    \
    int maxGridSize[3];                                                                                      \
    old(int clockRate;)                                                                                      \
    size_t totalConstMem;                                                                                    \
    int major;                                                                                               \
    int minor;                                                                                               \
    size_t textureAlignment;                                                                                 \
    size_t texturePitchAlignment;                                                                            \
    old(int deviceOverlap;)                                                                                  \
    int multiProcessorCount;                                                                                 \
    old(int kernelExecTimeoutEnabled;)                                                                       \
    int integrated;                                                                                          \
    int canMapHostMemory;                                                                                    \
    old(int computeMode;)                                                                                    \
    int maxTexture1D;                                                                                        \
    int maxTexture1DMipmap;                                                                                  \
    old(int maxTexture1DLinear;)                                                                             \
    int maxTexture2D[2];                                                                                     \
    int maxTexture2DMipmap[2];                                                                               \
    int maxTexture2DLinear[3];                                                                               \
    int maxTexture2DGather[2];                                                                               \
    int maxTexture3D[3];                                                                                     \
    int maxTexture3DAlt[3];                                                                                  \
    int maxTextureCubemap;                                                                                   \
    int maxTexture1DLayered[2];                                                                              \
    int maxTexture2DLayered[3];                                                                              \
    int maxTextureCubemapLayered[2];                                                                         \
    int maxSurface1D;                                                                                        \
    int maxSurface2D[2];                                                                                     \
    int maxSurface3D[3];                                                                                     \
    int maxSurface1DLayered[2];                                                                              \
    int maxSurface2DLayered[3];                                                                              \
    int maxSurfaceCubemap;                                                                                   \
    int maxSurfaceCubemapLayered[2];                                                                         \
    size_t surfaceAlignment;                                                                                 \
    int concurrentKernels;                                                                                   \
    int ECCEnabled;                                                                                          \
    int pciBusID;                                                                                            \
    int pciDeviceID;                                                                                         \
    int pciDomainID;                                                                                         \
    int tccDriver;                                                                                           \
    int asyncEngineCount;                                                                                    \
    int unifiedAddressing;                                                                                   \
    old(int memoryClockRate;)                                                                                \
    int memoryBusWidth;                                                                                      \
    int l2CacheSize;                                                                                         \
    int persistingL2CacheMaxSize;                                                                            \
    int maxThreadsPerMultiProcessor;                                                                         \
    int streamPrioritiesSupported;                                                                           \
    int globalL1CacheSupported;                                                                              \
    int localL1CacheSupported;                                                                               \
    size_t sharedMemPerMultiprocessor;                                                                       \
    int regsPerMultiprocessor;                                                                               \
    int managedMemory;                                                                                       \
    int isMultiGpuBoard;                                                                                     \
    int multiGpuBoardGroupID;                                                                                \
    int hostNativeAtomicSupported;                                                                           \
    old(int singleToDoublePrecisionPerfRatio;)                                                               \
    int pageableMemoryAccess;                                                                                \
    int concurrentManagedAccess;                                                                             \
    int computePreemptionSupported;                                                                          \
    int canUseHostPointerForRegisteredMem;                                                                   \
    int cooperativeLaunch;                                                                                   \
    old(int cooperativeMultiDeviceLaunch;)                                                                   \
    size_t sharedMemPerBlockOptin;                                                                           \
    int pageableMemoryAccessUsesHostPageTables;                                                              \
    int directManagedMemAccessFromHost;                                                                      \
    int maxBlocksPerMultiProcessor;                                                                          \
    int accessPolicyMaxWindowSize;                                                                           \
    size_t reservedSharedMemPerBlock;
#define CUDART_PROPERTIES_FROM_12                                                                            \
    int hostRegisterSupported;                                                                               \
    int sparseCudaArraySupported;                                                                            \
    int hostRegisterReadOnlySupported;                                                                       \
    int timelineSemaphoreInteropSupported;                                                                   \
    int memoryPoolsSupported;                                                                                \
    int gpuDirectRDMASupported;                                                                              \
    unsigned int gpuDirectRDMAFlushWritesOptions;                                                            \
    int gpuDirectRDMAWritesOrdering;                                                                         \
    unsigned int memoryPoolSupportedHandleTypes;                                                             \
    int deferredMappingCudaArraySupported;                                                                   \
    int ipcEventSupported;                                                                                   \
    int clusterLaunch;                                                                                       \
    int unifiedFunctionPointers;

struct cudart_properties_11 {
    CUDART_PROPERTIES_UP_TO_11(CUDART_PROPERTY_MEMBERS_11)
};

#if CUDART_MAJOR == 12
struct cudaDeviceProp {
    CUDART_PROPERTIES_UP_TO_11(CUDART_PROPERTY_MEMBERS_11)
    CUDART_PROPERTIES_FROM_12
    int reserved[63];
};
#else
struct cudaDeviceProp {
    CUDART_PROPERTIES_UP_TO_11(CUDART_PROPERTY_MEMBERS_13)
    CUDART_PROPERTIES_FROM_12
    int deviceNumaConfig;
    int deviceNumaId;
    int mpsEnabled;
    int hostNumaId;
    unsigned int gpuPciDeviceID;
    unsigned int gpuPciSubsystemID;
    int hostNumaMultinodeIpcSupported;
    int reserved[56];
};
#endif
_Static_assert(sizeof(struct cudaDeviceProp) == (CUDART_MAJOR == 12 ? 1032 : 1008), "cudaDeviceProp's layout");
