/* nvml.c - a stand-in for libnvidia-ml.so.1 that only answers lookups. */
#define EXPORT __attribute__((visibility("default")))
#define ROW(symbol, number)                                                                                  \
    EXPORT int symbol(void);                                                                                 \
    int symbol(void)                                                                                         \
    {                                                                                                        \
        return number;                                                                                       \
    }
ROW(nvmlInit_v2, 1)
ROW(nvmlErrorString, 2)
ROW(nvmlSystemGetNVMLVersion, 3)
ROW(nvmlDeviceGetMemoryInfo, 4)
ROW(nvmlDeviceGetMemoryInfo_v2, 5)
