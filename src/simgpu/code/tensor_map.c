/* tensor_map.c - descriptors of tensors for the memory engine of compute capability 9.0: checked as the driver API reference
 * says, and kept in an order of our own. No kernel here reads them. */
#include <string.h>

#include "cuda/driver_more.h"
#include "simgpu/device/profile.h"
#include "simgpu/driver/sim.h"

#define RANK_MOST 5u
#define EXTENT_MOST (UINT64_C(1) << 32)
#define STRIDE_END (UINT64_C(1) << 40)

/* What a descriptor holds here. */
struct tensor {
    uint64_t address;
    uint8_t kind, type, rank, interleave, swizzle, promotion, fill, mode;
    uint64_t extents[RANK_MOST];
    uint64_t strides[RANK_MOST - 1];
    uint8_t box[RANK_MOST], steps[RANK_MOST]; /* less one */
    int16_t corners[2];
    uint16_t channels, pixels;
};
_Static_assert(sizeof(struct tensor) <= sizeof(CUtensorMap), "128 bytes");
enum { TILED, IM2COL, IM2COL_WIDE };

struct request {
    CUtensorMap *map;
    CUtensorMapDataType type;
    cuuint32_t rank;
    void *address;
    const cuuint64_t *extents, *strides;
    const cuuint32_t *box; /* NULL: of an im2col form */
    const cuuint32_t *steps;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

static unsigned element_bytes(CUtensorMapDataType type)
{
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
        return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
        return 8;
    default:
        return 4;
    }
}

static CUresult shape_check(const struct request *request)
{
    const uint64_t step = request->interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
    SIM_REQUIRE((uintptr_t)request->address % step == 0);
    for (unsigned i = 0; i < request->rank; i++) {
        SIM_REQUIRE(request->extents[i] > 0 && request->extents[i] <= EXTENT_MOST);
        SIM_REQUIRE(request->steps[i] > 0 && request->steps[i] <= 8);
        if (i + 1 < request->rank)
            SIM_REQUIRE(request->strides[i] % step == 0 && request->strides[i] < STRIDE_END);
    }
    return CUDA_SUCCESS;
}

static CUresult box_check(const struct request *request)
{
    static const unsigned swizzle_bytes[] = {0, 32, 64, 128, 128, 128, 128};
    for (unsigned i = 0; i < request->rank; i++)
        SIM_REQUIRE(request->box[i] > 0 && request->box[i] <= 256);
    uint64_t inner_bytes = (uint64_t)request->box[0] * element_bytes(request->type);
    if (request->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE) {
        SIM_REQUIRE(inner_bytes % 16 == 0);
        SIM_REQUIRE(request->swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ||
                    inner_bytes <= swizzle_bytes[request->swizzle]);
    }
    return CUDA_SUCCESS;
}

/* Check and encode what all forms have in common. */
static CUresult encode(const struct request *request, struct tensor *tensor)
{
    SIM_TRY(sim_ready());
    if (profile_value(CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED) == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_REQUIRE(request->map && (uintptr_t)request->map % 64 == 0);
    SIM_REQUIRE(request->type <= CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B);
    SIM_REQUIRE(request->interleave <= CU_TENSOR_MAP_INTERLEAVE_32B);
    SIM_REQUIRE(request->swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B);
    SIM_REQUIRE(request->promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
    SIM_REQUIRE(request->fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
    SIM_REQUIRE(request->rank > 0 && request->rank <= RANK_MOST);
    SIM_REQUIRE(request->rank >= 3 || (request->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && request->box));
    SIM_REQUIRE(request->interleave != CU_TENSOR_MAP_INTERLEAVE_32B ||
                request->swizzle == CU_TENSOR_MAP_SWIZZLE_32B);
    SIM_REQUIRE(request->extents && (request->strides || request->rank == 1) && request->steps);
    SIM_TRY(shape_check(request));
    if (request->box)
        SIM_TRY(box_check(request));
    *tensor = (struct tensor){.address = (uintptr_t)request->address,
                              .type = (uint8_t)request->type,
                              .rank = (uint8_t)request->rank,
                              .interleave = (uint8_t)request->interleave,
                              .swizzle = (uint8_t)request->swizzle,
                              .promotion = (uint8_t)request->promotion,
                              .fill = (uint8_t)request->fill};
    for (unsigned i = 0; i < request->rank; i++) {
        tensor->extents[i] = request->extents[i];
        if (i + 1 < request->rank)
            tensor->strides[i] = request->strides[i];
        tensor->box[i] = request->box ? (uint8_t)(request->box[i] - 1) : 0;
        tensor->steps[i] = (uint8_t)(request->steps[i] - 1);
    }
    return CUDA_SUCCESS;
}

static void store(CUtensorMap *map, const struct tensor *tensor)
{
    memset(map, 0, sizeof(*map));
    memcpy(map, tensor, sizeof(*tensor));
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill)
{
    struct tensor tensor;
    SIM_REQUIRE(box);
    SIM_TRY(encode(&(struct request){map, type, rank, address, extents, strides, box, steps, interleave,
                                     swizzle, promotion, fill},
                   &tensor));
    store(map, &tensor);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                 const cuuint64_t *extents, const cuuint64_t *strides, const int *lower,
                                 const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                 CUtensorMapFloatOOBfill fill)
{
    struct tensor tensor;
    SIM_REQUIRE(lower && upper && channels > 0 && channels <= 256 && pixels > 0 && pixels <= 1024);
    SIM_TRY(encode(&(struct request){map, type, rank, address, extents, strides, NULL, steps, interleave,
                                     swizzle, promotion, fill},
                   &tensor));
    tensor.kind = IM2COL;
    tensor.corners[0] = (int16_t)lower[0];
    tensor.corners[1] = (int16_t)upper[0];
    tensor.channels = (uint16_t)channels;
    tensor.pixels = (uint16_t)pixels;
    store(map, &tensor);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                     void *address, const cuuint64_t *extents, const cuuint64_t *strides,
                                     int lower, int upper, cuuint32_t channels, cuuint32_t pixels,
                                     const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                     CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
                                     CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    /* From compute capability 10.0 on (driver API reference); no simulated card has it. */
    SIM_TRY(sim_ready());
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
    struct tensor tensor;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(map && (uintptr_t)map % 64 == 0);
    memcpy(&tensor, map, sizeof(tensor));
    SIM_REQUIRE((uintptr_t)address % (tensor.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16) == 0);
    tensor.address = (uintptr_t)address;
    store(map, &tensor);
    return CUDA_SUCCESS;
}
