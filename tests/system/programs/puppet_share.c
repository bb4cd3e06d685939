/* puppet_share.c - what a puppet does with memory that processes hand to each other. Descriptors go over the
 * socket whose number PUPPET_SOCKET says, other names as hexadecimal digits in the line.
 *
 * - shareable B, export I, import B, retainhandle I: memory of cuMemCreate, by descriptor; B: its bytes.
 * - made TYPES RDMA USAGE B: memory of cuMemCreate with these properties, mapped. fabricget I, fabricimport HEX B: the
 * same as export and import by fabric handle.
 * - team B, bind I J, tiles I: a multicast object for this device, by descriptor as memory is; memory J
 *   bound to it; memory I mapped into a sparse array.
 * - ipcget I, ipcopen HEX, ipcclose I: memory of cuMemAlloc. paint I VALUE B, look I AT: its bytes.
 * - defaultpool D; sharedpool, sharedhostpool, poolalloc I B, poolexport I, poolimport, pooldestroy I: a device's pool; one of
 * one's own, by descriptor. poolof TYPES USAGE: one with these properties.
 * - pointerget I, pointeropen I HEX: memory in it; I: the pool that was imported.
 * - external B, buffer I B, endexternal I: a descriptor as memory of another API.
 * - green D, endgreen I, attach, detach: green contexts; uses of the current context.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "puppet.h"

#define POSIX CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

/* --- Between processes ----------------------------------------------------------------------------- */

static int own_socket(void)
{
    const char *number = getenv("PUPPET_SOCKET");
    return number ? atoi(number) : -1;
}

union room {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* Sends the descriptor on, and keeps none. */
static bool send_fd(int fd)
{
    char byte = 0;
    union room room = {0};
    struct iovec content = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &content, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room)};
    room.header =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&room.header), &fd, sizeof(fd));
    bool sent = sendmsg(own_socket(), &message, 0) == 1;
    close(fd);
    return sent;
}

static int receive_fd(void)
{
    int fd = -1;
    char byte;
    union room room;
    struct iovec content = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &content, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room)};
    if (recvmsg(own_socket(), &message, 0) == 1 && message.msg_controllen >= sizeof(struct cmsghdr))
        memcpy(&fd, CMSG_DATA(&room.header), sizeof(fd));
    return fd;
}

static void answer_sent(CUresult result, int fd)
{
    answer("%d", result ? (int)result : send_fd(fd) ? 0 : 253);
}

static void answer_bytes(CUresult result, const void *what, size_t bytes)
{
    char digits[2 * 64 + 1] = "";
    for (size_t i = 0; i < bytes && i < 64; i++)
        snprintf(digits + 2 * i, 3, "%02x", ((const unsigned char *)what)[i]);
    answer("%d x%s", (int)result, digits); /* x: no number to who reads it */
}

static void read_bytes(const char *digits, void *what, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte = 0;
        sscanf(digits + 1 + 2 * i, "%2x", &byte);
        ((unsigned char *)what)[i] = (unsigned char)byte;
    }
}

/* --- Calls ----------------------------------------------------------------------------------------- */

static CUresult import(struct thing *thing, size_t bytes)
{
    int fd = receive_fd();
    CUresult result = call(cuMemImportFromShareableHandle)(&thing->handle, (void *)(intptr_t)fd, POSIX);
    thing->bytes = bytes;
    close(fd);
    return result;
}

static CUresult import_external(struct thing *thing, size_t bytes)
{
    int fd = receive_fd();
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC how = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = bytes};
    CUresult result = call(cuImportExternalMemory)(&thing->external, &how);
    if (result != CUDA_SUCCESS)
        close(fd); /* else it is the driver's */
    return result;
}

static CUresult make_green(struct thing *thing, CUdevice device)
{
    CUdevResource all;
    CUdevResourceDesc description;
    CUresult result = call(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (!result)
        result = call(cuDevResourceGenerateDesc)(&description, &all, 1);
    if (!result)
        result = call(cuGreenCtxCreate)(&thing->green, description, device, 1 /* its default stream */);
    if (!result)
        result = call(cuCtxFromGreenCtx)(&thing->context, thing->green);
    if (!result)
        result = call(cuCtxSetCurrent)(thing->context);
    return result;
}

static CUresult detach(void)
{
    CUcontext context;
    CUresult result = call(cuCtxGetCurrent)(&context);
    return result ? result : call(cuCtxDetach)(context);
}

static CUresult make_pool(struct thing *thing, CUmemLocationType place)
{
    CUmemPoolProps how = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = POSIX, .location = {place, 0}};
    return call(cuMemPoolCreate)(&thing->pool, &how);
}

static CUresult import_pool(struct thing *thing)
{
    int fd = receive_fd();
    CUresult result = call(cuMemPoolImportFromShareableHandle)(&thing->pool, (void *)(intptr_t)fd, POSIX, 0);
    close(fd);
    return result;
}

/* As frameworks do: memory that is mapped where it is used. */
static CUresult make_mapped(const char *line, struct thing *thing)
{
    unsigned types = 0, for_rdma = 0, usage = 0;
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmemAccessDesc access = {.location = how.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    sscanf(line, "%*s %u %u %u %zu", &types, &for_rdma, &usage, &thing->bytes);
    how.requestedHandleTypes = (CUmemAllocationHandleType)types;
    how.allocFlags.gpuDirectRDMACapable = for_rdma != 0;
    how.allocFlags.usage = (unsigned short)usage;
    CUresult result = call(cuMemCreate)(&thing->handle, thing->bytes, &how, 0);
    if (!result)
        result = call(cuMemAddressReserve)(&thing->address, thing->bytes, 0, 0, 0);
    if (!result)
        result = call(cuMemMap)(thing->address, thing->bytes, 0, thing->handle, 0);
    return result ? result : call(cuMemSetAccess)(thing->address, thing->bytes, &access, 1);
}

static CUresult make_pool_of(const char *line, struct thing *thing)
{
    unsigned types = 0, usage = 0;
    sscanf(line, "%*s %u %u", &types, &usage);
    CUmemPoolProps how = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = (CUmemAllocationHandleType)types,
                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                          .usage = (unsigned short)usage};
    return call(cuMemPoolCreate)(&thing->pool, &how);
}

static CUresult make_team(struct thing *thing, size_t bytes)
{
    CUmulticastObjectProp how = {.numDevices = 1, .size = bytes, .handleTypes = POSIX};
    CUresult result = call(cuMulticastCreate)(&thing->handle, &how);
    return result ? result : call(cuMulticastAddDevice)(thing->handle, 0);
}

static CUresult make_tiles(const struct thing *memory)
{
    CUDA_ARRAY3D_DESCRIPTOR how = {.Width = 64,
                                   .Height = memory->bytes / 1024,
                                   .Format = CU_AD_FORMAT_FLOAT,
                                   .NumChannels = 4,
                                   .Flags = 0x40 /* CUDA_ARRAY3D_SPARSE */};
    CUarrayMapInfo part = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                           .subresource.sparseLevel = {.extentWidth = 64,
                                                       .extentHeight = (unsigned)how.Height,
                                                       .extentDepth = 1},
                           .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                           .memHandle.memHandle = memory->handle,
                           .deviceBitMask = 1};
    CUresult result = call(cuArray3DCreate_v2)(&part.resource.array, &how);
    return result ? result : call(cuMemMapArrayAsync)(&part, 1, NULL);
}

static bool obey_pool(const char *verb, const char *digits, struct thing *given, size_t bytes,
                      struct thing *next)
{
    CUmemPoolPtrExportData data = {{0}};
    int fd = -1;
    if (strcmp(verb, "sharedpool") == 0) {
        answer_thing(make_pool(next, CU_MEM_LOCATION_TYPE_DEVICE));
    } else if (strcmp(verb, "sharedhostpool") == 0) {
        answer_thing(make_pool(next, CU_MEM_LOCATION_TYPE_HOST));
    } else if (strcmp(verb, "poolalloc") == 0) {
        answer_thing(call(cuMemAllocFromPoolAsync)(&next->address, bytes, given->pool, NULL));
    } else if (strcmp(verb, "poolexport") == 0) {
        CUresult result = call(cuMemPoolExportToShareableHandle)(&fd, given->pool, POSIX, 0);
        answer_sent(result, fd);
    } else if (strcmp(verb, "pooldestroy") == 0) {
        answer("%d", call(cuMemPoolDestroy)(given->pool));
    } else if (strcmp(verb, "poolimport") == 0) {
        answer_thing(import_pool(next));
    } else if (strcmp(verb, "pointerget") == 0) {
        CUresult result = call(cuMemPoolExportPointer)(&data, given->address);
        answer_bytes(result, &data, sizeof(data));
    } else if (strcmp(verb, "pointeropen") == 0) {
        read_bytes(digits, &data, sizeof(data));
        answer_thing(call(cuMemPoolImportPointer)(&next->address, given->pool, &data));
    } else {
        return false;
    }
    return true;
}

static bool obey_addresses(const char *verb, const char *digits, struct thing *given, struct thing *next)
{
    CUipcMemHandle handle = {0};
    if (strcmp(verb, "ipcget") == 0) {
        CUresult result = call(cuIpcGetMemHandle)(&handle, given->address);
        answer_bytes(result, &handle, sizeof(handle));
    } else if (strcmp(verb, "ipcopen") == 0) {
        read_bytes(digits, &handle, sizeof(handle));
        answer_thing(call(cuIpcOpenMemHandle_v2)(&next->address, handle, 1));
    } else if (strcmp(verb, "ipcclose") == 0) {
        answer("%d", call(cuIpcCloseMemHandle)(given->address));
    } else {
        return false;
    }
    return true;
}

static bool obey_fabric(const char *verb, const char *digits, const char *line, const struct thing *given,
                        struct thing *next)
{
    unsigned char fabric[64] = {0};
    if (strcmp(verb, "fabricget") == 0) {
        CUresult result =
            call(cuMemExportToShareableHandle)(fabric, given->handle, CU_MEM_HANDLE_TYPE_FABRIC, 0);
        answer_bytes(result, fabric, sizeof(fabric));
    } else if (strcmp(verb, "fabricimport") == 0) {
        sscanf(line, "%*s %*s %zu", &next->bytes);
        read_bytes(digits, fabric, sizeof(fabric));
        answer_thing(call(cuMemImportFromShareableHandle)(&next->handle, fabric, CU_MEM_HANDLE_TYPE_FABRIC));
    } else {
        return false;
    }
    return true;
}

static bool obey_bytes(const char *verb, const char *line, const struct thing *given)
{
    unsigned value = 0;
    unsigned char seen = 0;
    size_t number = 0;
    if (strcmp(verb, "paint") == 0) {
        sscanf(line, "%*s %*u %u %zu", &value, &number);
        answer("%d", (int)call(cuMemsetD8_v2)(given->address, (unsigned char)value, number));
    } else if (strcmp(verb, "look") == 0) {
        sscanf(line, "%*s %*u %zu", &number);
        CUresult result = call(cuMemcpyDtoH_v2)(&seen, given->address + number, 1);
        answer("%d %u", (int)result, seen);
    } else {
        return false;
    }
    return true;
}

bool obey_share(const char *verb, const char *line)
{
    char digits[160] = "x";
    unsigned long long a = 0, b = 0;
    int fd = -1;
    struct thing *next = &things[count % THINGS], *given;
    CUcontext context;
    CUmemAllocationProp memory = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = POSIX,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  .allocFlags.usage = 1 /* CU_MEM_CREATE_USAGE_TILE_POOL */};

    sscanf(line, "%*s %llu %llu", &a, &b);
    sscanf(line, "%*[^x]%159s", digits);
    given = &things[a % THINGS];
    if (obey_bytes(verb, line, given))
        return true;
#define IS(word) (strcmp(verb, word) == 0)
    if (IS("made"))
        answer_thing(make_mapped(line, next));
    else if (IS("poolof"))
        answer_thing(make_pool_of(line, next));
    else if (IS("shareable")) {
        next->bytes = a;
        answer_thing(call(cuMemCreate)(&next->handle, a, &memory, 0));
    } else if (IS("export")) {
        CUresult result = call(cuMemExportToShareableHandle)(&fd, given->handle, POSIX, 0);
        answer_sent(result, fd);
    } else if (IS("import"))
        answer_thing(import(next, a));
    else if (IS("team")) {
        next->bytes = a;
        answer_thing(make_team(next, a));
    } else if (IS("bind"))
        answer("%d", call(cuMulticastBindMem)(given->handle, 0, things[b % THINGS].handle, 0,
                                              things[b % THINGS].bytes, 0));
    else if (IS("tiles"))
        answer("%d", make_tiles(given));
    else if (IS("retainhandle"))
        answer_thing(call(cuMemRetainAllocationHandle)(&next->handle, (void *)(uintptr_t)given->address));
    else if (IS("external"))
        answer_thing(import_external(next, a));
    else if (IS("buffer")) {
        CUDA_EXTERNAL_MEMORY_BUFFER_DESC how = {.size = b};
        answer_thing(call(cuExternalMemoryGetMappedBuffer)(&next->address, given->external, &how));
    } else if (IS("endexternal"))
        answer("%d", call(cuDestroyExternalMemory)(given->external));
    else if (IS("defaultpool"))
        answer_thing(call(cuDeviceGetDefaultMemPool)(&next->pool, (CUdevice)a));
    else if (IS("green"))
        answer_thing(make_green(next, (CUdevice)a));
    else if (IS("endgreen"))
        answer("%d", call(cuGreenCtxDestroy)(given->green));
    else if (IS("attach"))
        answer("%d", call(cuCtxAttach)(&context, 0));
    else if (IS("detach"))
        answer("%d", detach());
    else
        return obey_addresses(verb, digits, given, next) || obey_fabric(verb, digits, line, given, next) ||
               obey_pool(verb, digits, given, b, next);
    return true;
}
