/* vmm.h - physical memory as frameworks make it: which properties they set, and the calls around it. */
#pragma once

#include "gallery.h"

/* What a framework asks for, where the card has it. */
struct wishes {
    CUmemAllocationHandleType fallback; /* if FABRIC is not wanted, or the card or its driver refuses it */
    bool fabric, fabric_beside;         /* alone, or together with `fallback` */
    bool rdma;                          /* gpuDirectRDMACapable */
};

struct fabric_handle {
    unsigned char data[64];
};

/* What cuMemCreate is given at first. */
CUmemAllocationProp vmm_properties(const struct wishes *wishes);
/* With the fallback where FABRIC may not be used after all, which `properties` then says. */
CUresult vmm_create(CUmemGenericAllocationHandle *handle, size_t bytes, const struct wishes *wishes,
                    CUmemAllocationProp *properties);
size_t vmm_granularity(const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags which);
void vmm_map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle);

/* The memory goes to the process at the other end, by a descriptor if its properties allow that, else by a fabric handle. */
void vmm_send(int socket, CUmemGenericAllocationHandle handle, const CUmemAllocationProp *properties);
CUmemGenericAllocationHandle vmm_receive(int socket);
