/* copy.c - copies between host memory, device memory, arrays and variables. */
#include "simcudart/simcudart.h"

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)pointer;
}

static cudaError_t check_kind(enum cudaMemcpyKind kind)
{
    return (unsigned int)kind <= cudaMemcpyDefault ? cudaSuccess : cudaErrorInvalidMemcpyDirection;
}

static cudaError_t copy(enum form form, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    RUNTIME_TRY(check_kind(kind));
    RUNTIME_TRY(runtime_need_context());
    if (bytes == 0)
        return cudaSuccess;
    CUresult result;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        result = DRIVER_FORM(form, cuMemcpyHtoD_v2, _ptds)(address_of(to), from, bytes);
        break;
    case cudaMemcpyDeviceToHost:
        result = DRIVER_FORM(form, cuMemcpyDtoH_v2, _ptds)(to, address_of(from), bytes);
        break;
    case cudaMemcpyDeviceToDevice:
        result = DRIVER_FORM(form, cuMemcpyDtoD_v2, _ptds)(address_of(to), address_of(from), bytes);
        break;
    default:
        result = DRIVER_FORM(form, cuMemcpy, _ptds)(address_of(to), address_of(from), bytes);
    }
    return runtime_translate(result);
}
EXPORT_FORMS(cudaMemcpy, _ptds, copy, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind),
             (to, from, bytes, kind))

static cudaError_t copy_async(enum form form, void *to, const void *from, size_t bytes,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    RUNTIME_TRY(check_kind(kind));
    RUNTIME_TRY(runtime_need_context());
    if (bytes == 0)
        return cudaSuccess;
    CUresult result;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        result = DRIVER_FORM(form, cuMemcpyHtoDAsync_v2, _ptsz)(address_of(to), from, bytes, stream);
        break;
    case cudaMemcpyDeviceToHost:
        result = DRIVER_FORM(form, cuMemcpyDtoHAsync_v2, _ptsz)(to, address_of(from), bytes, stream);
        break;
    case cudaMemcpyDeviceToDevice:
        result =
            DRIVER_FORM(form, cuMemcpyDtoDAsync_v2, _ptsz)(address_of(to), address_of(from), bytes, stream);
        break;
    default:
        result = DRIVER_FORM(form, cuMemcpyAsync, _ptsz)(address_of(to), address_of(from), bytes, stream);
    }
    return runtime_translate(result);
}
EXPORT_FORMS(cudaMemcpyAsync, _ptsz, copy_async,
             (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
             (to, from, bytes, kind, stream))

/* Where `bytes` at `offset` of a variable are. */
static cudaError_t part_of_symbol(const void *symbol, size_t offset, size_t bytes, void **part)
{
    CUdeviceptr address;
    size_t size;
    RUNTIME_TRY(program_symbol(symbol, &address, &size));
    RUNTIME_REQUIRE(offset <= size && bytes <= size - offset, cudaErrorInvalidValue);
    *part = (void *)(address + offset);
    return cudaSuccess;
}

static cudaError_t check_kind_to_symbol(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault
               ? cudaSuccess
               : cudaErrorInvalidMemcpyDirection;
}

static cudaError_t check_kind_from_symbol(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault
               ? cudaSuccess
               : cudaErrorInvalidMemcpyDirection;
}

cudaError_t copy_symbol_target(const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                               void **part)
{
    RUNTIME_TRY(check_kind_to_symbol(kind));
    return part_of_symbol(symbol, offset, bytes, part);
}

cudaError_t copy_symbol_source(const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                               void **part)
{
    RUNTIME_TRY(check_kind_from_symbol(kind));
    return part_of_symbol(symbol, offset, bytes, part);
}

static cudaError_t copy_to_symbol(enum form form, const void *symbol, const void *from, size_t bytes,
                                  size_t offset, enum cudaMemcpyKind kind)
{
    void *to;
    RUNTIME_TRY(copy_symbol_target(symbol, bytes, offset, kind, &to));
    return copy(form, to, from, bytes, kind);
}
EXPORT_FORMS(cudaMemcpyToSymbol, _ptds, copy_to_symbol,
             (const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind),
             (symbol, from, bytes, offset, kind))

static cudaError_t copy_from_symbol(enum form form, void *to, const void *symbol, size_t bytes, size_t offset,
                                    enum cudaMemcpyKind kind)
{
    void *from;
    RUNTIME_TRY(copy_symbol_source(symbol, bytes, offset, kind, &from));
    return copy(form, to, from, bytes, kind);
}
EXPORT_FORMS(cudaMemcpyFromSymbol, _ptds, copy_from_symbol,
             (void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind),
             (to, symbol, bytes, offset, kind))

static cudaError_t copy_to_symbol_async(enum form form, const void *symbol, const void *from, size_t bytes,
                                        size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    void *to;
    RUNTIME_TRY(copy_symbol_target(symbol, bytes, offset, kind, &to));
    return copy_async(form, to, from, bytes, kind, stream);
}
EXPORT_FORMS(cudaMemcpyToSymbolAsync, _ptsz, copy_to_symbol_async,
             (const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
              cudaStream_t stream),
             (symbol, from, bytes, offset, kind, stream))

static cudaError_t copy_from_symbol_async(enum form form, void *to, const void *symbol, size_t bytes,
                                          size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    void *from;
    RUNTIME_TRY(copy_symbol_source(symbol, bytes, offset, kind, &from));
    return copy_async(form, to, from, bytes, kind, stream);
}
EXPORT_FORMS(cudaMemcpyFromSymbolAsync, _ptsz, copy_from_symbol_async,
             (void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
              cudaStream_t stream),
             (to, symbol, bytes, offset, kind, stream))

static cudaError_t copy_peer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    CUcontext to_context, from_context;
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_primary_context(to_device, &to_context));
    RUNTIME_TRY(runtime_primary_context(from_device, &from_context));
    return runtime_translate(
        DRIVER(cuMemcpyPeer)(address_of(to), to_context, address_of(from), from_context, bytes));
}
EXPORT(cudaMemcpyPeer, copy_peer, (void *to, int to_device, const void *from, int from_device, size_t bytes),
       (to, to_device, from, from_device, bytes))

static cudaError_t copy_peer_async(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                   cudaStream_t stream)
{
    CUcontext to_context, from_context;
    RUNTIME_TRY(runtime_need_context());
    RUNTIME_TRY(runtime_primary_context(to_device, &to_context));
    RUNTIME_TRY(runtime_primary_context(from_device, &from_context));
    return runtime_translate(
        DRIVER(cuMemcpyPeerAsync)(address_of(to), to_context, address_of(from), from_context, bytes, stream));
}
EXPORT(cudaMemcpyPeerAsync, copy_peer_async,
       (void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream),
       (to, to_device, from, from_device, bytes, stream))
