/* The CUDA driver, as far as host code that launches kernels needs it. */
#define _GNU_SOURCE
#include "stub.h"

#include <stdlib.h>
#include <string.h>

static int handle(void **result) { return *result = calloc(1, 64), OK; }

/* ------------------------------------------------------------------ the device and its context */

int cuInit(unsigned flags) { return (void)flags, OK; }
int cuDriverGetVersion(int *version) { return *version = VERSION, OK; }
int cuDeviceGet(int *device, int ordinal) { return *device = 0, ordinal ? INVALID_DEVICE : OK; }
int cuDeviceGetCount(int *count) { return *count = 1, OK; }
int cuDeviceGetName(char *name, int size, int device) {
    char properties[4096];
    int error = ask(PROPERTIES, WORDS(13), NULL, properties, sizeof properties);
    (void)device;
    if (size > 0) strncpy(name, properties, size), name[size - 1] = 0;
    return error;
}
int cuDeviceGetUuid_v2(char *uuid, int device) { return (void)device, memset(uuid, 7, 16), OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    return (void)device, *bytes = number(ATTRIBUTE, WORDS(-1), NULL), OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    u64 found = 0;
    int error = device ? INVALID_DEVICE : ask(ATTRIBUTE, WORDS(attribute), NULL, &found, sizeof found);
    return *value = (int)found, error;
}
int cuDeviceComputeCapability(int *major, int *minor, int device) {
    return cuDeviceGetAttribute(major, 75, device) || cuDeviceGetAttribute(minor, 76, device);
}
int cuDeviceCanAccessPeer(int *can, int device, int peer) { return (void)device, (void)peer, *can = 0, OK; }

static char context;
int cuDevicePrimaryCtxRetain(void **result, int device) { return (void)device, *result = &context, OK; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    return (void)device, *flags = 0, *active = 1, OK;
}
int cuCtxCreate_v2(void **result, unsigned flags, int device) {
    return (void)flags, (void)device, *result = &context, OK;
}
int cuCtxCreate_v4(void **result, void *parameters, unsigned flags, int device) {
    return (void)parameters, (void)flags, (void)device, *result = &context, OK;
}
int cuCtxGetCurrent(void **result) { return *result = &context, OK; }
int cuCtxPopCurrent_v2(void **result) {
    if (result) *result = &context;
    return OK;
}
int cuCtxGetDevice(int *device) { return *device = 0, OK; }
int cuCtxGetApiVersion(void *which, unsigned *version) { return (void)which, *version = VERSION, OK; }
int cuCtxGetFlags(unsigned *flags) { return *flags = 0, OK; }
int cuCtxGetLimit(size_t *value, int limit) { return (void)limit, *value = 1 << 20, OK; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return OK;
}
NOTHING(cuDevicePrimaryCtxRelease_v2) NOTHING(cuDevicePrimaryCtxReset_v2)
NOTHING(cuDevicePrimaryCtxSetFlags_v2) NOTHING(cuCtxDestroy_v2) NOTHING(cuCtxPushCurrent_v2)
NOTHING(cuCtxSetCurrent) NOTHING(cuCtxSynchronize) NOTHING(cuCtxSetLimit) NOTHING(cuCtxSetCacheConfig)
NOTHING(cuCtxResetPersistingL2Cache) NOTHING(cuProfilerStart) NOTHING(cuProfilerStop)
ALIAS(cuDeviceGetUuid, cuDeviceGetUuid_v2)

int cuGetErrorName(int error, const char **name) { return *name = error_text(error, 1), OK; }
int cuGetErrorString(int error, const char **text) { return *text = error_text(error, 0), OK; }

int cuGetProcAddress_v2(const char *name, void **function, int version, u64 flags, int *status) {
    (void)version, (void)flags;
    *function = entry_point(name);
    if (status) *status = *function ? 0 : 1;
    return *function ? OK : NOT_FOUND;
}
int cuGetProcAddress(const char *name, void **function, int version, u64 flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
/* The runtime asks for tables that are documented nowhere: one that is linked statically into a
 * library, or of which a function is called that the stub does not have. */
int cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = NULL;
    return not_answered("the CUDA runtime itself (a function of it that is not known, or a library "
                        "that it is linked to statically)");
}

/* ------------------------------------------------------------------ modules and functions */

int cuModuleLoadData(u64 *module, const void *image) {
    return ask(MODULE, WORDS(WORD(image)), NULL, module, sizeof *module);
}
int cuModuleLoadDataEx(u64 *module, const void *image, unsigned count, void *options, void *values) {
    return (void)count, (void)options, (void)values, cuModuleLoadData(module, image);
}
int cuModuleLoad(u64 *module, const char *path) { return load_file(module, path); }
int cuModuleUnload(u64 module) { return ask(UNLOADED, WORDS(module), NULL, NULL, 0); }
int cuModuleGetFunction(u64 *function, u64 module, const char *name) {
    return ask(FUNCTION, WORDS(module), name, function, sizeof *function);
}
int cuModuleGetGlobal_v2(void **address, size_t *size, u64 module, const char *name) {
    u64 key = number(FUNCTION, WORDS(module, 1), name);
    return key ? variable((void *)(size_t)key, address, size) : NOT_FOUND;
}
int cuLibraryLoadData(u64 *library, const void *image) { return cuModuleLoadData(library, image); }
int cuLibraryLoadFromFile(u64 *library, const char *path) { return load_file(library, path); }
int cuLibraryGetModule(u64 *module, u64 library) { return *module = library, OK; }
int cuKernelGetFunction(u64 *function, u64 kernel) { return *function = kernel, OK; }
ALIAS(cuModuleLoadFatBinary, cuModuleLoadData) ALIAS(cuLibraryUnload, cuModuleUnload)
ALIAS(cuLibraryGetKernel, cuModuleGetFunction) ALIAS(cuLibraryGetGlobal, cuModuleGetGlobal_v2)

int cuFuncGetAttribute(int *value, int attribute, const void *function) {
    int all[16] = {0};
    int error = ask(FUNCTION_ATTRIBUTES, WORDS(WORD(function), 0), NULL, all, sizeof all);
    if (attribute < 0 || attribute >= 16) return INVALID_VALUE;
    return *value = all[attribute], error;
}
int cuFuncSetAttribute(const void *function, int attribute, int value) {
    return ask(SET_ATTRIBUTE, WORDS(WORD(function), attribute, value), NULL, NULL, 0);
}
int cuKernelGetAttribute(int *value, int attribute, const void *kernel, int device) {
    return (void)device, cuFuncGetAttribute(value, attribute, kernel);
}
int cuKernelSetAttribute(int attribute, int value, const void *kernel, int device) {
    return (void)device, cuFuncSetAttribute(kernel, attribute, value);
}
NOTHING(cuFuncSetCacheConfig) NOTHING(cuFuncSetSharedMemConfig) NOTHING(cuFuncLoad)
NOTHING(cuKernelSetCacheConfig)

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *function, int threads, size_t shared) {
    u64 found = 0;
    int error = ask(BLOCKS, WORDS(WORD(function), threads, shared), NULL, &found, sizeof found);
    return *count = (int)found, error;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *function, int threads,
                                                         size_t shared, unsigned flags) {
    return (void)flags, cuOccupancyMaxActiveBlocksPerMultiprocessor(count, function, threads, shared);
}
int cuOccupancyMaxActiveClusters(int *count, const void *function, const driver_config *c) {
    return clusters(count, function, c->block, c->shared, c->attributes, c->count);
}
int cuOccupancyMaxPotentialClusterSize(int *size, const void *function, const driver_config *c) {
    return (void)function, (void)c, *size = 8, OK;
}

/* ------------------------------------------------------------------ launches */

int cuLaunchKernel(const void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
    dim3 grid = {gx, gy, gz}, block = {bx, by, bz};
    (void)stream;
    return launch(function, grid, block, shared, NULL, 0, arguments, extra);
}
int cuLaunchCooperativeKernel(const void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, void *stream, void **arguments) {
    dim3 grid = {gx, gy, gz}, block = {bx, by, bz};
    attribute cooperative = {.id = 2, .value.flag = 1};
    (void)stream;
    return launch(function, grid, block, shared, &cooperative, 1, arguments, NULL);
}
int cuLaunchKernelEx(const driver_config *c, const void *function, void **arguments, void **extra) {
    return launch(function, c->grid, c->block, c->shared, c->attributes, c->count, arguments, extra);
}
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    return (void)stream, function(data), OK;
}
ALIAS(cuLaunchKernel_ptsz, cuLaunchKernel) ALIAS(cuLaunchKernelEx_ptsz, cuLaunchKernelEx)

/* ------------------------------------------------------------------ tensor maps */

int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const u64 *dims,
                           const u64 *strides, const unsigned *box, const unsigned *steps,
                           int interleave, int swizzle, int promotion, int fill) {
    return ask(TILED, WORDS(type, rank, WORD(address), WORD(dims), WORD(strides), WORD(box), WORD(steps),
                            interleave, swizzle, promotion, fill), NULL, map, 128);
}
int cuTensorMapEncodeIm2col(void *map, int type, unsigned rank, void *address, const u64 *dims,
                            const u64 *strides, const int *lower, const int *upper, unsigned channels,
                            unsigned pixels, const unsigned *steps, int interleave, int swizzle,
                            int promotion, int fill) {
    return ask(IM2COL, WORDS(type, rank, WORD(address), WORD(dims), WORD(strides), WORD(lower), WORD(upper),
                             channels, pixels, WORD(steps), interleave, swizzle, promotion, fill),
               NULL, map, 128);
}

/* ------------------------------------------------------------------ streams and events */

int cuStreamCreate(void **stream, unsigned flags) { return (void)flags, handle(stream); }
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    return (void)flags, (void)priority, handle(stream);
}
int cuStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, OK; }
int cuStreamGetCtx(void *stream, void **result) { return (void)stream, *result = &context, OK; }
int cuEventCreate(void **event, unsigned flags) { return (void)flags, handle(event); }
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    return (void)start, (void)end, *milliseconds = 1.0f, OK;
}
NOTHING(cuStreamDestroy_v2) NOTHING(cuStreamSynchronize) NOTHING(cuStreamQuery) NOTHING(cuStreamWaitEvent)
NOTHING(cuEventDestroy_v2) NOTHING(cuEventRecord) NOTHING(cuEventRecordWithFlags)
NOTHING(cuEventSynchronize) NOTHING(cuEventQuery)
ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime)
