/* toolkit_nvml.c - as the stand-in for libnvidia-ml.so.1 that the CUDA toolkit brings for linking (its folder stubs): every function
 * answers NVML_ERROR_LIBRARY_NOT_FOUND, also the one that should give a text. */
#define STAND_IN(function)                                                                                   \
    __attribute__((visibility("default"))) long function(void);                                              \
    long function(void)                                                                                      \
    {                                                                                                        \
        return 12;                                                                                           \
    }
STAND_IN(nvmlInit_v2)
STAND_IN(nvmlDeviceGetCount_v2)
STAND_IN(nvmlDeviceGetHandleByIndex_v2)
STAND_IN(nvmlDeviceGetUUID)
STAND_IN(nvmlDeviceGetName)
STAND_IN(nvmlDeviceGetMemoryInfo)
STAND_IN(nvmlSystemGetDriverVersion)
STAND_IN(nvmlErrorString)
