"""Prints how much memory NVML shows of the first GPU."""
import ctypes


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


nvml, device, memory = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), Memory()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
print(memory.total)
