/* nvml.h - the part of NVML's ABI that GPU Slice answers, calls or simulates (NVML API reference, R580).
 * Ours, so that nothing needs NVIDIA's headers; never include it beside theirs. */
#pragma once

#include <stddef.h>

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef enum nvmlReturn_enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_ALREADY_INITIALIZED = 5,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_INSUFFICIENT_POWER = 8,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_IRQ_ISSUE = 11,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_CORRUPTED_INFOROM = 14,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef struct nvmlMemory_st {
    unsigned long long total, free, used; /* bytes; used includes what the driver reserves */
} nvmlMemory_t;

typedef struct nvmlMemory_v2_st {
    unsigned int version; /* NVML_MEMORY_V2, set by the caller */
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
#define NVML_STRUCT_VERSION(type, version) ((unsigned int)(sizeof(type) | ((unsigned int)(version) << 24)))
#define NVML_MEMORY_V2 NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)

typedef struct nvmlProcessInfo_v1_st {
    unsigned int pid;
    unsigned long long usedGpuMemory; /* bytes */
} nvmlProcessInfo_v1_t;

typedef struct nvmlProcessInfo_v2_st { /* of the _v2 and _v3 calls */
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlProcessInfo_v2_t;
typedef struct nvmlProcessDetail_v1_st {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory; /* bytes; of confidential computing */
} nvmlProcessDetail_v1_t;

typedef struct nvmlProcessDetailList_v1_st {
    unsigned int version;             /* NVML_PROCESS_DETAIL_LIST_V1, set by the caller */
    unsigned int mode;                /* NVML_PROCESS_MODE_ */
    unsigned int numProcArrayEntries; /* room, and becomes how many there are */
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;
#define NVML_PROCESS_DETAIL_LIST_V1 NVML_STRUCT_VERSION(nvmlProcessDetailList_v1_t, 1)
#define NVML_PROCESS_MODE_COMPUTE 0u
#define NVML_PROCESS_MODE_GRAPHICS 1u
#define NVML_PROCESS_MODE_MPS 2u

#define NVML_VALUE_NOT_AVAILABLE_U64 ((unsigned long long)-1)
#define NVML_VALUE_NOT_AVAILABLE_U32 ((unsigned int)-1)

typedef struct nvmlUtilization_st {
    unsigned int gpu, memory; /* percent of the last sample period */
} nvmlUtilization_t;

typedef struct nvmlProcessUtilizationSample_st {
    unsigned int pid;
    unsigned long long timeStamp;                   /* microseconds of the wall clock */
    unsigned int smUtil, memUtil, encUtil, decUtil; /* percent */
} nvmlProcessUtilizationSample_t;

typedef struct nvmlProcessUtilizationInfo_v1_st {
    unsigned long long timeStamp; /* microseconds of the wall clock */
    unsigned int pid;
    unsigned int smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil; /* percent */
} nvmlProcessUtilizationInfo_v1_t;

typedef struct nvmlProcessesUtilizationInfo_v1_st {
    unsigned int version;             /* NVML_PROCESSES_UTILIZATION_INFO_V1, set by the caller */
    unsigned int processSamplesCount; /* room, and becomes how many there are */
    unsigned long long lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;
#define NVML_PROCESSES_UTILIZATION_INFO_V1 NVML_STRUCT_VERSION(nvmlProcessesUtilizationInfo_v1_t, 1)

typedef struct nvmlAccountingStats_st {
    unsigned int gpuUtilization, memoryUtilization; /* percent of the process's life */
    unsigned long long maxMemoryUsage;              /* bytes, the most at a time */
    unsigned long long time;                        /* milliseconds; 0 while it runs */
    unsigned long long startTime;                   /* microseconds of the wall clock */
    unsigned int isRunning;
    unsigned int reserved[5];
} nvmlAccountingStats_t;

typedef struct nvmlDeviceAttributes_st { /* of a MIG instance */
    unsigned int multiprocessorCount;
    unsigned int sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount;
    unsigned int gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB; /* MiB */
} nvmlDeviceAttributes_t;

typedef struct nvmlBAR1Memory_st {
    unsigned long long bar1Total, bar1Free, bar1Used; /* bytes */
} nvmlBAR1Memory_t;

typedef struct nvmlTemperature_v1_st {
    unsigned int version;    /* NVML_TEMPERATURE_V1, set by the caller */
    unsigned int sensorType; /* 0: the GPU */
    int temperature;         /* Celsius */
} nvmlTemperature_v1_t;
#define NVML_TEMPERATURE_V1 NVML_STRUCT_VERSION(nvmlTemperature_v1_t, 1)

typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef struct nvmlEventData_st {
    nvmlDevice_t device;
    unsigned long long eventType;
    unsigned long long eventData; /* of an Xid its number */
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

#define NVML_VALUE_TYPE_UNSIGNED_INT 1u
#define NVML_VALUE_TYPE_UNSIGNED_LONG_LONG 3u
typedef struct nvmlFieldValue_st {
    unsigned int fieldId, scopeId;
    long long timestamp; /* microseconds of the wall clock */
    long long latencyUsec;
    unsigned int valueType; /* NVML_VALUE_TYPE_ */
    nvmlReturn_t nvmlReturn;
    union {
        double dVal;
        int siVal;
        unsigned int uiVal;
        unsigned long ulVal;
        unsigned long long ullVal;
        signed long long sllVal;
    } value;
} nvmlFieldValue_t;

#define NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE 32
#define NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE 16
typedef struct nvmlPciInfo_st {
    char busIdLegacy[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE];
    unsigned int domain, bus, device;
    unsigned int pciDeviceId, pciSubSystemId;
    char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
} nvmlPciInfo_t;

#define NVML_DEVICE_UUID_V2_BUFFER_SIZE 96
#define NVML_DEVICE_NAME_V2_BUFFER_SIZE 96
#define NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE 80
