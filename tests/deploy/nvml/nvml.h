// What fake_nvml.c has of the binary interface of NVIDIA's management library, so that it compiles where NVIDIA's own header is not: names, numbers and layouts
// as callers know them (NVML API reference; libnvidia-ml.so.1 of driver 550).
#pragma once

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
} nvmlReturn_t;

typedef struct { void *handle; } nvmlDevice_t;
typedef struct { void *handle; } nvmlEventSet_t;
typedef struct { void *handle; } nvmlGpuInstance_t;
typedef struct { void *handle; } nvmlComputeInstance_t;

typedef enum { NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1 } nvmlEnableState_t;
typedef enum { NVML_BRAND_NVIDIA = 14 } nvmlBrandType_t;
typedef enum { NVML_TOPOLOGY_SYSTEM = 50 } nvmlGpuTopologyLevel_t;
typedef enum { NVML_NVLINK_DEVICE_TYPE_GPU = 0, NVML_NVLINK_DEVICE_TYPE_SWITCH = 2, NVML_NVLINK_DEVICE_TYPE_UNKNOWN = 255 } nvmlIntNvLinkDeviceType_t;
typedef unsigned nvmlDeviceArchitecture_t, nvmlAffinityScope_t;
enum { NVML_DEVICE_ARCH_AMPERE = 7 };

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct nvmlProcessInfo nvmlProcessInfo_t;
typedef struct { nvmlDevice_t device; unsigned long long eventType, eventData; unsigned gpuInstanceId, computeInstanceId; } nvmlEventData_t;

typedef struct { unsigned start, size; } nvmlGpuInstancePlacement_t;
typedef struct {
    unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;
typedef struct { nvmlDevice_t device; unsigned id, profileId; nvmlGpuInstancePlacement_t placement; } nvmlGpuInstanceInfo_t;
typedef struct {
    unsigned id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;
typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    unsigned id, profileId;
    nvmlGpuInstancePlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct { unsigned version; unsigned char clusterUuid[16]; nvmlReturn_t status; unsigned cliqueId; unsigned char state; unsigned healthMask; } nvmlGpuFabricInfo_v2_t;

// Of field values only these layouts count: the union of nvmlValue_t has eight bytes.
typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    union { double d; long long sll; int si; } value;
} nvmlFieldValue_t;
typedef struct { unsigned max, high, partial, low, none; } nvmlRowRemapperHistogramValues_t;
typedef struct { unsigned version, bChannelRepairPending, bTpcRepairPending; } nvmlRepairStatus_t;
typedef struct { unsigned version; int marginTemperature; } nvmlMarginTemperature_t;
typedef struct {
    unsigned version;
    unsigned long long aggregateUncParity, aggregateUncSecDed, aggregateCor, volatileUncParity, volatileUncSecDed, volatileCor, aggregateUncBucketL2,
        aggregateUncBucketSm, aggregateUncBucketPcie, aggregateUncBucketMcu, aggregateUncBucketOther;
    unsigned bThresholdExceeded;
} nvmlEccSramErrorStatus_t;
typedef struct { unsigned version, unrepairableMemory; } nvmlUnrepairableMemory_t;
typedef unsigned nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlMemoryLocation_t;
