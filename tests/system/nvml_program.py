"""A program that is led by expressions, one a line, and answers each with one line of JSON. It reaches the driver and
NVML as Python programs do, by ctypes, so that what is in LD_PRELOAD stands in between.
"""
import ctypes
import json
import os
import signal
import sys

cuda = ctypes.CDLL("libcuda.so.1")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
ABSENT_32 = 0xFFFFFFFF


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Process1(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong)]


class Process2(ctypes.Structure):
    _fields_ = [*Process1._fields_, ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class NvmlError(Exception):
    pass


def check(result, what):
    if result:
        raise NvmlError(f"{what}: {result}")


def context(device=0):
    handle = ctypes.c_void_p()
    result = cuda.cuCtxCreate_v2(ctypes.byref(handle), 0, device)
    return result or handle.value


def destroy(handle):
    return cuda.cuCtxDestroy_v2(ctypes.c_void_p(handle))


def take(function, size, *more):
    address = ctypes.c_uint64()
    result = function(ctypes.byref(address), ctypes.c_size_t(size), *more)
    return [result, address.value]


def alloc(size):
    return take(cuda.cuMemAlloc_v2, size)


def managed(size):
    return take(cuda.cuMemAllocManaged, size, 1)


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class PoolProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
                ("reserved", ctypes.c_byte * 80)]


MANAGED = 2  # CU_MEM_ALLOCATION_TYPE_MANAGED
NOWHERE, DEVICE = 0, 1  # CU_MEM_LOCATION_TYPE_...


def managed_pool(place):
    """A pool of managed memory that the program makes."""
    handle = ctypes.c_void_p()
    how = PoolProperties(type=MANAGED, location=Location(place, 0))
    return [cuda.cuMemPoolCreate(ctypes.byref(handle), ctypes.byref(how)), handle.value]


def default_managed_pool(place):
    handle = ctypes.c_void_p()
    return [cuda.cuMemGetDefaultMemPool(ctypes.byref(handle), ctypes.byref(Location(place, 0)), MANAGED), handle.value]


def pool_alloc(pool, size):
    return take(cuda.cuMemAllocFromPoolAsync, size, ctypes.c_void_p(pool), None)


def free_async(address):
    return cuda.cuMemFreeAsync(ctypes.c_uint64(address), None) or cuda.cuCtxSynchronize()


def alloc_many(count, size):
    """How many of `count` allocations of `size` were granted."""
    return sum(alloc(size)[0] == 0 for _ in range(count))


def free(address):
    return cuda.cuMemFree_v2(ctypes.c_uint64(address))


def module(size):
    """Load a module that has a global of `size` bytes."""
    image = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 held[{size}];\n"
    handle = ctypes.c_void_p()
    return cuda.cuModuleLoadData(ctypes.byref(handle), image.encode() + b"\0")


def info():
    free_bytes, total = ctypes.c_size_t(), ctypes.c_size_t()
    return [cuda.cuMemGetInfo_v2(ctypes.byref(free_bytes), ctypes.byref(total)), free_bytes.value, total.value]


def cuda_uuid(device):
    uuid = (ctypes.c_ubyte * 16)()
    check(cuda.cuDeviceGetUuid_v2(uuid, device), "uuid")
    text = bytes(uuid).hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def by_index(index):
    return handle_of(nvml.nvmlDeviceGetHandleByIndex_v2, ctypes.c_uint(index))


def by_uuid(uuid):
    return handle_of(nvml.nvmlDeviceGetHandleByUUID, uuid.encode())


def by_pci(bus_id):
    return handle_of(nvml.nvmlDeviceGetHandleByPciBusId_v2, bus_id.encode())


def handle_of(function, argument):
    handle = ctypes.c_void_p()
    check(function(argument, ctypes.byref(handle)), "handle")
    return handle


def uuid_of(handle):
    text = ctypes.create_string_buffer(96)
    check(nvml.nvmlDeviceGetUUID(handle, text, 96), "uuid")
    return text.value.decode()


def device_count():
    count = ctypes.c_uint()
    check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), "count")
    return count.value


def memory(handle):
    told = Memory()
    check(nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(told)), "memory")
    return [told.total, told.free, told.used]


def processes(handle, version="_v3", kind="Compute", room=64):
    """[result, count, [[pid, bytes], ...]]"""
    entry = Process2 if version else Process1
    entries = (entry * room)()
    count = ctypes.c_uint(room)
    function = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version}")
    result = function(handle, ctypes.byref(count), entries if room else None)
    listed = [] if result else [[e.pid, e.bytes] for e in entries[:count.value]]
    if not result and version:
        assert all(e.gpu_instance == ABSENT_32 for e in entries[:count.value])
    return [result, count.value, listed]


def fork_idle():
    """A child that does nothing and outlives us."""
    child = os.fork()
    while child == 0:
        signal.pause()
    return child


def main():
    cuda.cuInit(0)
    check(nvml.nvmlInit_v2(), "init")
    # An answer a line; what fails is said, and fails the test.
    print(json.dumps(os.getpid()), flush=True)
    for line in sys.stdin:
        try:
            answer = eval(line)
        except Exception as error:
            answer = f"failed: {error!r}"
        print(json.dumps(answer), flush=True)


main()
