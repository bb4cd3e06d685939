/* Tests of how the runtime's descriptions become the driver's: the real code, before a driver that notes what
 * it is given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <string.h>

#include <cmocka.h>

#include "simcudart/simcudart.h"

#define CONTEXT ((CUcontext)0x100)
#define KERNEL ((CUkernel)0x200)
#define HOST_KERNEL ((void *)0x300)
#define ARRAY ((cudaArray_t)0x400)
#define GRAPH ((cudaGraph_t)0x500)
#define NODE ((cudaGraphNode_t)0x600)

/* What the driver was given last. */
static CUDA_KERNEL_NODE_PARAMS kernel;
static CUDA_MEMCPY3D box;
static CUDA_MEMCPY2D plane;
static CUDA_ARRAY3D_DESCRIPTOR array;
static CUDA_RESOURCE_DESC resource;
static CUDA_TEXTURE_DESC texture;
static CUDA_MEMSET_NODE_PARAMS memset_node;
static CUgraphNodeParams node;
static CUcontext node_context;

static CUresult current(CUcontext *context)
{
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

static CUresult describe_array(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray of)
{
    *descriptor = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = 64, .Height = 32, .Depth = 4, .Format = CU_AD_FORMAT_HALF, .NumChannels = 4};
    return CUDA_SUCCESS;
}

static CUresult create_array(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    array = *descriptor;
    *out = (CUarray)ARRAY;
    return CUDA_SUCCESS;
}

static CUresult copy_plane(const CUDA_MEMCPY2D *copy)
{
    plane = *copy;
    return CUDA_SUCCESS;
}

static CUresult copy_box(const CUDA_MEMCPY3D *copy)
{
    box = *copy;
    return CUDA_SUCCESS;
}

static CUresult add_kernel(CUgraphNode *out, CUgraph graph, const CUgraphNode *from, size_t count,
                           const CUDA_KERNEL_NODE_PARAMS *parameters)
{
    kernel = *parameters;
    return CUDA_SUCCESS;
}

static CUresult get_kernel(CUgraphNode of, CUDA_KERNEL_NODE_PARAMS *parameters)
{
    *parameters = kernel;
    return CUDA_SUCCESS;
}

static CUresult add_copy(CUgraphNode *out, CUgraph graph, const CUgraphNode *from, size_t count,
                         const CUDA_MEMCPY3D *copy, CUcontext context)
{
    box = *copy;
    node_context = context;
    return CUDA_SUCCESS;
}

static CUresult get_copy(CUgraphNode of, CUDA_MEMCPY3D *copy)
{
    *copy = box;
    return CUDA_SUCCESS;
}

static CUresult add_fill(CUgraphNode *out, CUgraph graph, const CUgraphNode *from, size_t count,
                         const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context)
{
    memset_node = *parameters;
    node_context = context;
    return CUDA_SUCCESS;
}

static CUresult add_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                         const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *parameters)
{
    node = *parameters;
    if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        parameters->alloc.dptr = 0x7000;
    return CUDA_SUCCESS;
}

static CUresult create_texture(CUtexObject *out, const CUDA_RESOURCE_DESC *of, const CUDA_TEXTURE_DESC *how,
                               const CUDA_RESOURCE_VIEW_DESC *view)
{
    resource = *of;
    texture = *how;
    *out = 1;
    return CUDA_SUCCESS;
}

static CUresult texture_of(CUDA_TEXTURE_DESC *how, CUtexObject object)
{
    *how = texture;
    return CUDA_SUCCESS;
}

static CUresult resource_of(CUDA_RESOURCE_DESC *of, CUtexObject object)
{
    *of = resource;
    return CUDA_SUCCESS;
}

void *driver_entry(enum cuda_entry_id id)
{
    switch (id) {
    case CUDA_ID_cuCtxGetCurrent:
        return (void *)current;
    case CUDA_ID_cuArray3DGetDescriptor_v2:
        return (void *)describe_array;
    case CUDA_ID_cuArray3DCreate_v2:
        return (void *)create_array;
    case CUDA_ID_cuMemcpy2DUnaligned_v2:
        return (void *)copy_plane;
    case CUDA_ID_cuMemcpy3D_v2:
        return (void *)copy_box;
    case CUDA_ID_cuGraphAddKernelNode_v2:
        return (void *)add_kernel;
    case CUDA_ID_cuGraphKernelNodeGetParams_v2:
        return (void *)get_kernel;
    case CUDA_ID_cuGraphAddMemcpyNode:
        return (void *)add_copy;
    case CUDA_ID_cuGraphMemcpyNodeGetParams:
        return (void *)get_copy;
    case CUDA_ID_cuGraphAddMemsetNode:
        return (void *)add_fill;
    case CUDA_ID_cuGraphAddNode_v2:
        return (void *)add_node;
    case CUDA_ID_cuTexObjectCreate:
        return (void *)create_texture;
    case CUDA_ID_cuTexObjectGetTextureDesc:
        return (void *)texture_of;
    case CUDA_ID_cuTexObjectGetResourceDesc:
        return (void *)resource_of;
    default:
        fail_msg("the driver is asked for %s", cuda_entries[id].symbol);
        return NULL;
    }
}

cudaError_t runtime_need_context(void)
{
    return cudaSuccess;
}

cudaError_t runtime_need_driver(void)
{
    return cudaSuccess;
}

cudaError_t runtime_primary_context(int device, CUcontext *context)
{
    *context = (CUcontext)(uintptr_t)(0x1000 + device);
    return cudaSuccess;
}

cudaError_t program_kernel(const void *host, CUkernel *found)
{
    *found = KERNEL;
    return host == HOST_KERNEL ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

void *program_host_of(CUkernel of)
{
    return of == KERNEL ? HOST_KERNEL : NULL;
}

cudaError_t copy_symbol_target(const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                               void **part)
{
    *part = (char *)(uintptr_t)symbol + offset;
    return cudaSuccess;
}

cudaError_t copy_symbol_source(const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                               void **part)
{
    return copy_symbol_target(symbol, bytes, offset, kind, part);
}

static void positions_and_widths_count_elements_where_an_array_takes_part(void **state)
{
    struct cudaMemcpy3DParms parameters = {
        .srcPtr = {(void *)0x9000, 512, 64, 32},
        .srcPos = {16, 2, 1},
        .dstArray = ARRAY,
        .dstPos = {3, 4, 5},
        .extent = {10, 20, 2},
        .kind = cudaMemcpyHostToDevice,
    };
    assert_int_equal(cudaMemcpy3D(&parameters), cudaSuccess);
    assert_int_equal(box.srcMemoryType, CU_MEMORYTYPE_HOST);
    assert_ptr_equal(box.srcHost, (void *)0x9000);
    assert_int_equal(box.srcXInBytes, 16);
    assert_int_equal(box.srcPitch, 512);
    assert_int_equal(box.srcHeight, 32);
    assert_int_equal(box.dstMemoryType, CU_MEMORYTYPE_ARRAY);
    assert_ptr_equal(box.dstArray, ARRAY);
    assert_int_equal(box.dstXInBytes, 3 * 8); /* four halves an element */
    assert_int_equal(box.dstY, 4);
    assert_int_equal(box.dstZ, 5);
    assert_int_equal(box.WidthInBytes, 10 * 8);
    assert_int_equal(box.Height, 20);
    assert_int_equal(box.Depth, 2);
}

static void positions_and_widths_are_bytes_between_memories(void **state)
{
    struct cudaMemcpy3DParms parameters = {
        .srcPtr = {(void *)0x9000, 512, 64, 32},
        .dstPtr = {(void *)0xa000, 256, 64, 16},
        .dstPos = {7, 0, 0},
        .extent = {10, 20, 2},
        .kind = cudaMemcpyDefault,
    };
    assert_int_equal(cudaMemcpy3D(&parameters), cudaSuccess);
    assert_int_equal(box.srcMemoryType, CU_MEMORYTYPE_UNIFIED);
    assert_int_equal(box.dstMemoryType, CU_MEMORYTYPE_UNIFIED);
    assert_int_equal(box.dstXInBytes, 7);
    assert_int_equal(box.WidthInBytes, 10);
    parameters.srcArray = ARRAY; /* two sources */
    assert_int_equal(cudaMemcpy3D(&parameters), cudaErrorInvalidValue);
}

static void planes_know_their_ends_by_the_kind(void **state)
{
    assert_int_equal(cudaMemcpy2D((void *)0xa000, 128, (void *)0x9000, 64, 50, 3, cudaMemcpyDeviceToHost),
                     cudaSuccess);
    assert_int_equal(plane.srcMemoryType, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(plane.srcDevice, 0x9000);
    assert_int_equal(plane.srcPitch, 64);
    assert_int_equal(plane.dstMemoryType, CU_MEMORYTYPE_HOST);
    assert_ptr_equal(plane.dstHost, (void *)0xa000);
    assert_int_equal(plane.dstPitch, 128);
    assert_int_equal(plane.WidthInBytes, 50);
    assert_int_equal(plane.Height, 3);
    assert_int_equal(cudaMemcpy2DToArray(ARRAY, 8, 2, (void *)0x9000, 64, 50, 3, cudaMemcpyHostToDevice),
                     cudaSuccess);
    assert_int_equal(plane.dstMemoryType, CU_MEMORYTYPE_ARRAY);
    assert_int_equal(plane.dstXInBytes, 8);
    assert_int_equal(plane.dstY, 2);
    assert_int_equal(cudaMemcpy2D((void *)0xa000, 128, (void *)0x9000, 64, 65, 3, cudaMemcpyDefault),
                     cudaErrorInvalidPitchValue);
}

static void channels_become_a_format_and_a_count(void **state)
{
    cudaArray_t made;
    struct cudaChannelFormatDesc channels =
        cudaCreateChannelDesc(16, 16, 0, 0, cudaChannelFormatKindUnsigned);
    assert_int_equal(cudaMalloc3DArray(&made, &channels, (struct cudaExtent){64, 32, 4}, cudaArrayLayered),
                     cudaSuccess);
    assert_int_equal(array.Format, CU_AD_FORMAT_UNSIGNED_INT16);
    assert_int_equal(array.NumChannels, 2);
    assert_int_equal(array.Width, 64);
    assert_int_equal(array.Depth, 4);
    assert_int_equal(array.Flags, cudaArrayLayered);
    assert_int_equal(cudaMallocArray(&made, &channels, 10, 0, 0), cudaSuccess);
    assert_int_equal(array.Height, 0);
    assert_int_equal(array.Depth, 0);

    const struct cudaChannelFormatDesc wrong[] = {
        {8, 8, 8, 0, cudaChannelFormatKindSigned}, /* three */
        {8, 16, 0, 0, cudaChannelFormatKindSigned}, {0, 8, 0, 0, cudaChannelFormatKindSigned},
        {8, 0, 0, 0, cudaChannelFormatKindFloat},   {64, 0, 0, 0, cudaChannelFormatKindUnsigned},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(cudaMallocArray(&made, &wrong[i], 10, 10, 0), cudaErrorInvalidChannelDescriptor);
}

static void an_array_tells_its_channels_and_extent(void **state)
{
    struct cudaChannelFormatDesc channels;
    struct cudaExtent extent;
    unsigned int flags = 1;
    assert_int_equal(cudaArrayGetInfo(&channels, &extent, &flags, ARRAY), cudaSuccess);
    assert_int_equal(channels.x, 16);
    assert_int_equal(channels.w, 16);
    assert_int_equal(channels.f, cudaChannelFormatKindFloat);
    assert_int_equal(extent.height, 32);
    assert_int_equal(flags, 0);
}

static void kernel_nodes_are_found_by_what_the_host_calls_them(void **state)
{
    void *arguments[1];
    cudaGraphNode_t made;
    struct cudaKernelNodeParams parameters = {
        .func = HOST_KERNEL,
        .gridDim = {1, 2, 3},
        .blockDim = {4, 5, 6},
        .sharedMemBytes = 7,
        .kernelParams = arguments,
    };
    assert_int_equal(cudaGraphAddKernelNode(&made, GRAPH, NULL, 0, &parameters), cudaSuccess);
    assert_null(kernel.func);
    assert_ptr_equal(kernel.kern, KERNEL);
    assert_int_equal(kernel.gridDimZ, 3);
    assert_int_equal(kernel.blockDimX, 4);
    assert_int_equal(kernel.sharedMemBytes, 7);
    assert_ptr_equal(kernel.kernelParams, arguments);
    struct cudaKernelNodeParams seen = {0};
    assert_int_equal(cudaGraphKernelNodeGetParams(NODE, &seen), cudaSuccess);
    assert_ptr_equal(seen.func, HOST_KERNEL);
    assert_memory_equal(&seen.gridDim, &parameters.gridDim, sizeof seen.gridDim);
    assert_memory_equal(&seen.blockDim, &parameters.blockDim, sizeof seen.blockDim);
    assert_int_equal(seen.sharedMemBytes, 7);
    assert_ptr_equal(seen.kernelParams, arguments);
    assert_null(seen.extra);
    parameters.func = NULL;
    assert_int_equal(cudaGraphAddKernelNode(&made, GRAPH, NULL, 0, &parameters),
                     cudaErrorInvalidDeviceFunction);
}

static void linear_copy_nodes_are_one_row(void **state)
{
    cudaGraphNode_t made;
    struct cudaMemcpy3DParms seen;
    assert_int_equal(cudaGraphAddMemcpyNode1D(&made, GRAPH, NULL, 0, (void *)0xa000, (void *)0x9000, 100,
                                              cudaMemcpyDeviceToHost),
                     cudaSuccess);
    assert_ptr_equal(node_context, CONTEXT);
    assert_int_equal(box.srcMemoryType, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(box.srcDevice, 0x9000);
    assert_int_equal(box.WidthInBytes, 100);
    assert_int_equal(box.Height, 1);
    assert_int_equal(box.Depth, 1);
    assert_int_equal(cudaGraphMemcpyNodeGetParams(NODE, &seen), cudaSuccess);
    assert_int_equal(seen.kind, cudaMemcpyDeviceToHost);
    assert_ptr_equal(seen.srcPtr.ptr, (void *)0x9000);
    assert_ptr_equal(seen.dstPtr.ptr, (void *)0xa000);
    assert_int_equal(seen.extent.width, 100);
    assert_int_equal(cudaGraphAddMemcpyNodeToSymbol(&made, GRAPH, NULL, 0, (void *)0xb000, (void *)0x9000, 8,
                                                    16, cudaMemcpyHostToDevice),
                     cudaSuccess);
    assert_int_equal(box.dstDevice, 0xb010);
}

static void fill_nodes_get_the_context(void **state)
{
    cudaGraphNode_t made;
    struct cudaMemsetParams parameters = {(void *)0x9000, 512, 0xab, 4, 10, 3};
    node_context = NULL;
    assert_int_equal(cudaGraphAddMemsetNode(&made, GRAPH, NULL, 0, &parameters), cudaSuccess);
    assert_ptr_equal(node_context, CONTEXT);
    assert_int_equal(memset_node.dst, 0x9000);
    assert_int_equal(memset_node.pitch, 512);
    assert_int_equal(memset_node.value, 0xab);
    assert_int_equal(memset_node.elementSize, 4);
    assert_int_equal(memset_node.width, 10);
    assert_int_equal(memset_node.height, 3);
}

/* 256 bytes, as the runtime's headers have them; our own code keeps the struct to itself. */
struct any_node {
    int type, reserved[3];
    union {
        long long words[29];
        struct cudaKernelNodeParams kernel;
        struct cudaMemsetParams fill;
        struct {
            int flags, reserved[3];
            struct cudaMemcpy3DParms parameters;
        } copy;
        struct {
            CUmemPoolProps pool;
            const CUmemAccessDesc *access;
            size_t access_count, bytes;
            void *pointer;
        } allocation;
    } of;
    long long reserved_2;
};

static cudaError_t add_any(struct any_node *parameters)
{
    cudaGraphNode_t made;
#if CUDART_MAJOR == 12
    return cudaGraphAddNode(&made, GRAPH, NULL, 0, (struct cudaGraphNodeParams *)parameters);
#else
    return cudaGraphAddNode(&made, GRAPH, NULL, NULL, 0, (struct cudaGraphNodeParams *)parameters);
#endif
}

static void nodes_of_any_kind_are_described_as_the_driver_has_them(void **state)
{
    struct any_node any = {.type = cudaGraphNodeTypeKernel,
                           .of.kernel = {.func = HOST_KERNEL, .gridDim = {1, 2, 3}, .blockDim = {4, 5, 6}}};
    assert_int_equal(add_any(&any), cudaSuccess);
    assert_ptr_equal(node.kernel.kern, KERNEL);
    assert_null(node.kernel.func);
    assert_int_equal(node.kernel.blockDimZ, 6);
    assert_ptr_equal(any.of.kernel.func, HOST_KERNEL);

    any = (struct any_node){.type = cudaGraphNodeTypeMemcpy};
    any.of.copy.parameters = (struct cudaMemcpy3DParms){
        .srcPtr = {(void *)0x9000, 64, 64, 1}, .dstPtr = {(void *)0xa000, 64, 64, 1}, .extent = {64, 1, 1}};
    assert_int_equal(add_any(&any), cudaSuccess);
    assert_ptr_equal(node.memcpy.copyCtx, CONTEXT);
    assert_int_equal(node.memcpy.copyParams.WidthInBytes, 64);
    assert_ptr_equal(any.of.copy.parameters.srcPtr.ptr, (void *)0x9000);

    any = (struct any_node){.type = cudaGraphNodeTypeMemset, .of.fill = {(void *)0x9000, 0, 1, 1, 10, 1}};
    assert_int_equal(add_any(&any), cudaSuccess);
    assert_ptr_equal(node.memset.ctx, CONTEXT);
    assert_int_equal(node.memset.width, 10);

    any = (struct any_node){.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .of.allocation = {.bytes = 4096}};
    assert_int_equal(add_any(&any), cudaSuccess);
    assert_int_equal(node.alloc.bytesize, 4096);
    assert_ptr_equal(any.of.allocation.pointer, (void *)0x7000); /* what the driver gave */
}

static void textures_are_described_both_ways(void **state)
{
    cudaTextureObject_t object;
    struct cudaResourceDesc of = {.resType = CU_RESOURCE_TYPE_PITCH2D}, of_seen;
    of.res.pitch2D.devPtr = (void *)0x9000;
    of.res.pitch2D.desc = cudaCreateChannelDesc(8, 8, 8, 8, cudaChannelFormatKindUnsigned);
    of.res.pitch2D.width = 100;
    of.res.pitch2D.height = 50;
    of.res.pitch2D.pitchInBytes = 512;
    struct cudaTextureDesc how = {.addressMode = {0, 1, 2},
                                  .filterMode = 1,
                                  .readMode = 1,
                                  .sRGB = 1,
                                  .borderColor = {0.5f, 0, 0, 1},
                                  .normalizedCoords = 1,
                                  .maxAnisotropy = 8,
                                  .mipmapLevelBias = 0.25f,
                                  .maxMipmapLevelClamp = 4},
                           how_seen;
    assert_int_equal(cudaCreateTextureObject(&object, &of, &how, NULL), cudaSuccess);
    assert_int_equal(resource.res.pitch2D.format, CU_AD_FORMAT_UNSIGNED_INT8);
    assert_int_equal(resource.res.pitch2D.numChannels, 4);
    assert_int_equal(resource.res.pitch2D.pitchInBytes, 512);
    assert_int_equal(texture.flags, 0x02 | 0x10); /* normalized coordinates, sRGB; not as integers */
    assert_int_equal(texture.maxAnisotropy, 8);
    assert_int_equal(cudaGetTextureObjectTextureDesc(&how_seen, object), cudaSuccess);
    assert_memory_equal(&how_seen, &how, sizeof how);
    assert_int_equal(cudaGetTextureObjectResourceDesc(&of_seen, object), cudaSuccess);
    assert_int_equal(of_seen.res.pitch2D.desc.w, 8);
    assert_int_equal(of_seen.res.pitch2D.width, 100);
    of.resType = 9;
    assert_int_equal(cudaCreateTextureObject(&object, &of, &how, NULL), cudaErrorInvalidValue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_and_widths_count_elements_where_an_array_takes_part),
        cmocka_unit_test(positions_and_widths_are_bytes_between_memories),
        cmocka_unit_test(planes_know_their_ends_by_the_kind),
        cmocka_unit_test(channels_become_a_format_and_a_count),
        cmocka_unit_test(an_array_tells_its_channels_and_extent),
        cmocka_unit_test(kernel_nodes_are_found_by_what_the_host_calls_them),
        cmocka_unit_test(linear_copy_nodes_are_one_row),
        cmocka_unit_test(fill_nodes_get_the_context),
        cmocka_unit_test(nodes_of_any_kind_are_described_as_the_driver_has_them),
        cmocka_unit_test(textures_are_described_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
