/* The CUDA runtime, as far as host code that launches kernels needs it. */
#define _GNU_SOURCE
#include "stub.h"

#include <stdlib.h>
#include <string.h>

static __thread int last;

static int done(int error) {
    if (error) last = error;
    return error;
}

/* ------------------------------------------------------------------ errors and the device */

int cudaGetLastError(void) {
    int error = last;
    last = OK;
    return error;
}
int cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorString(int error) { return error_text(error, 0); }
const char *cudaGetErrorName(int error) { return error_text(error, 1); }

int cudaGetDeviceCount(int *count) { return *count = 1, OK; }
int cudaGetDevice(int *device) { return *device = 0, OK; }
int cudaSetDevice(int device) { return done(device ? INVALID_DEVICE : OK); }
int cudaChooseDevice(int *device, const void *wanted) { return (void)wanted, *device = 0, OK; }
int cudaInitDevice(int device) { return done(device ? INVALID_DEVICE : OK); }
int cudaGetDeviceFlags(unsigned *flags) { return *flags = 0, OK; }
int cudaRuntimeGetVersion(int *version) { return *version = VERSION, OK; }
int cudaDriverGetVersion(int *version) { return *version = VERSION, OK; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    if (device) return done(INVALID_DEVICE);
    u64 found = 0;
    int error = ask(ATTRIBUTE, WORDS(attribute), NULL, &found, sizeof found);
    *value = (int)found;
    return done(error);
}
int cudaGetDeviceProperties(void *properties, int device) { /* CUDA 13 */
    return done(device ? INVALID_DEVICE : ask(PROPERTIES, WORDS(13), NULL, properties, 4096));
}
int cudaGetDeviceProperties_v2(void *properties, int device) { /* CUDA 12 */
    return done(device ? INVALID_DEVICE : ask(PROPERTIES, WORDS(12), NULL, properties, 4096));
}
int cudaDeviceCanAccessPeer(int *can, int device, int peer) { return (void)device, (void)peer, *can = 0, OK; }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return OK;
}
int cudaDeviceGetLimit(size_t *value, int limit) { return (void)limit, *value = 1 << 20, OK; }
int cudaDeviceGetCacheConfig(int *config) { return *config = 0, OK; }
int cudaDeviceGetSharedMemConfig(int *config) { return *config = 0, OK; }
int cudaDeviceGetPCIBusId(char *id, int size, int device) {
    (void)device;
    if (size > 0) strncpy(id, "0000:01:00.0", size), id[size - 1] = 0;
    return OK;
}
NOTHING(cudaDeviceSynchronize) NOTHING(cudaThreadSynchronize) NOTHING(cudaDeviceReset)
NOTHING(cudaThreadExit) NOTHING(cudaSetDeviceFlags) NOTHING(cudaSetValidDevices)
NOTHING(cudaDeviceSetLimit) NOTHING(cudaDeviceSetCacheConfig) NOTHING(cudaDeviceSetSharedMemConfig)
NOTHING(cudaCtxResetPersistingL2Cache) NOTHING(cudaProfilerStart) NOTHING(cudaProfilerStop)
NOTHING(cudaDeviceEnablePeerAccess) NOTHING(cudaDeviceDisablePeerAccess)

int cudaGetDriverEntryPoint(const char *name, void **function, u64 flags, int *status) {
    (void)flags;
    *function = entry_point(name);
    if (status) *status = *function ? 0 : 1;
    if (!*function) not_answered(name);
    return OK;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, u64 flags, int *status) {
    (void)version;
    return cudaGetDriverEntryPoint(name, function, flags, status);
}
ALIAS(cudaGetDriverEntryPoint_ptsz, cudaGetDriverEntryPoint)
ALIAS(cudaGetDriverEntryPointByVersion_ptsz, cudaGetDriverEntryPointByVersion)

/* ------------------------------------------------------------------ modules */

void **__cudaRegisterFatBinary(void *wrapper) {
    u64 module = 0;
    ask(MODULE, WORDS(WORD(wrapper)), NULL, &module, sizeof module);
    return (void **)(size_t)module;
}
void __cudaRegisterFatBinaryEnd(void **module) { (void)module; }
void __cudaUnregisterFatBinary(void **module) { (void)module; }
char __cudaInitModule(void **module) { return (void)module, 1; }
void __cudaRegisterFunction(void **module, const void *key, char *own, const char *name, int limit,
                            void *tid, void *bid, dim3 *block, dim3 *grid, int *warp) {
    (void)own, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    ask(REGISTER, WORDS(WORD(module), WORD(key)), name, NULL, 0);
}
void __cudaRegisterVar(void **module, const void *key, char *address, const char *name, int external,
                       size_t size, int constant, int global) {
    (void)address, (void)external, (void)constant, (void)global;
    ask(VARIABLE, WORDS(WORD(module), WORD(key), size), name, NULL, 0);
}
void __cudaRegisterManagedVar(void **module, void **key, char *address, const char *name, int external,
                              size_t size, int constant, int global) {
    void *memory = NULL;
    (void)address, (void)external, (void)constant, (void)global;
    ask(VARIABLE, WORDS(WORD(module), WORD(key), size), name, NULL, 0);
    variable(key, &memory, NULL);
    *key = memory;
    ask(FORGOTTEN, WORDS(WORD(memory)), NULL, NULL, 0);
}

int cudaLibraryLoadData(u64 *library, const void *code) {
    return done(ask(MODULE, WORDS(WORD(code)), NULL, library, sizeof *library));
}
int cudaLibraryLoadFromFile(u64 *library, const char *path) { return done(load_file(library, path)); }
int cudaLibraryGetKernel(u64 *kernel, u64 library, const char *name) {
    return done(ask(FUNCTION, WORDS(library), name, kernel, sizeof *kernel));
}
NOTHING(cudaLibraryUnload)

/* ------------------------------------------------------------------ functions */

int cudaFuncGetAttributes(void *attributes, const void *function) {
    return done(ask(FUNCTION_ATTRIBUTES, WORDS(WORD(function), 1), NULL, attributes, 144));
}
int cudaFuncSetAttribute(const void *function, int attribute, int value) {
    return done(ask(SET_ATTRIBUTE, WORDS(WORD(function), attribute, value), NULL, NULL, 0));
}
int cudaKernelSetAttributeForDevice(const void *kernel, int attribute, int value, int device) {
    return (void)device, cudaFuncSetAttribute(kernel, attribute, value);
}
int cudaGetFuncBySymbol(const void **function, const void *symbol) { return *function = symbol, OK; }
int cudaGetKernel(const void **kernel, const void *symbol) { return *kernel = symbol, OK; }
int __cudaGetKernel(const void **kernel, const void *symbol) { return *kernel = symbol, OK; }
NOTHING(cudaFuncSetCacheConfig) NOTHING(cudaFuncSetSharedMemConfig)

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *function, int threads,
                                                           size_t shared, unsigned flags) {
    u64 found = 0;
    (void)flags;
    int error = ask(BLOCKS, WORDS(WORD(function), threads, shared), NULL, &found, sizeof found);
    *count = (int)found;
    return done(error);
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *function, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, threads, shared, 0);
}
int cudaOccupancyMaxActiveClusters(int *count, const void *function, const runtime_config *c) {
    return done(clusters(count, function, c->block, c->shared, c->attributes, c->count));
}
int cudaOccupancyMaxPotentialClusterSize(int *size, const void *function, const runtime_config *c) {
    return (void)function, (void)c, *size = 8, OK;
}

/* ------------------------------------------------------------------ launches */

#define DEPTH 16
static __thread struct { dim3 grid, block; size_t shared; void *stream; } pushed[DEPTH];
static __thread unsigned depth;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    if (depth == DEPTH) return 1;
    pushed[depth].grid = grid, pushed[depth].block = block;
    pushed[depth].shared = shared, pushed[depth].stream = stream;
    ++depth;
    return 0;
}
int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream) {
    if (!depth) return done(INVALID_VALUE);
    --depth;
    *grid = pushed[depth].grid, *block = pushed[depth].block;
    *shared = pushed[depth].shared, *stream = pushed[depth].stream;
    return OK;
}
int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
    (void)stream;
    return done(launch(function, grid, block, shared, NULL, 0, arguments, NULL));
}
int cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                size_t shared, void *stream) {
    attribute cooperative = {.id = 2, .value.flag = 1};
    (void)stream;
    return done(launch(function, grid, block, shared, &cooperative, 1, arguments, NULL));
}
int cudaLaunchKernelExC(const runtime_config *c, const void *function, void **arguments) {
    return done(launch(function, c->grid, c->block, c->shared, c->attributes, c->count, arguments, NULL));
}
ALIAS(__cudaLaunchKernel, cudaLaunchKernel) ALIAS(__cudaLaunchKernel_ptsz, cudaLaunchKernel)
ALIAS(cudaLaunchKernel_ptsz, cudaLaunchKernel) ALIAS(cudaLaunchKernelExC_ptsz, cudaLaunchKernelExC)
ALIAS(cudaLaunchCooperativeKernel_ptsz, cudaLaunchCooperativeKernel)

/* ------------------------------------------------------------------ streams, events, graphs */

static int handle(void **result) { return *result = calloc(1, 64), OK; }
int cudaStreamCreate(void **stream) { return handle(stream); }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return (void)flags, handle(stream); }
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    return (void)flags, (void)priority, handle(stream);
}
int cudaStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, OK; }
int cudaStreamGetPriority(void *stream, int *priority) { return (void)stream, *priority = 0, OK; }
int cudaStreamGetFlags(void *stream, unsigned *flags) { return (void)stream, *flags = 0, OK; }
int cudaStreamGetDevice(void *stream, int *device) { return (void)stream, *device = 0, OK; }
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    return (void)stream, function(data), OK;
}
int cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data, unsigned flags) {
    return (void)flags, function(stream, OK, data), OK;
}
int cudaEventCreate(void **event) { return handle(event); }
int cudaEventCreateWithFlags(void **event, unsigned flags) { return (void)flags, handle(event); }
int cudaEventElapsedTime(float *milliseconds, void *start, void *end) {
    return (void)start, (void)end, *milliseconds = 1.0f, OK;
}
/* What is launched while a stream is captured is recorded then; the graph does nothing. */
int cudaStreamEndCapture(void *stream, void **graph) { return (void)stream, handle(graph); }
int cudaGraphInstantiate(void **executable) { return handle(executable); }
NOTHING(cudaStreamDestroy) NOTHING(cudaStreamSynchronize) NOTHING(cudaStreamQuery)
NOTHING(cudaStreamWaitEvent) NOTHING(cudaStreamSetAttribute) NOTHING(cudaStreamBeginCapture)
NOTHING(cudaStreamAttachMemAsync) NOTHING(cudaEventDestroy) NOTHING(cudaEventRecord)
NOTHING(cudaEventRecordWithFlags) NOTHING(cudaEventSynchronize) NOTHING(cudaEventQuery)
NOTHING(cudaGraphLaunch) NOTHING(cudaGraphUpload) NOTHING(cudaGraphDestroy) NOTHING(cudaGraphExecDestroy)
ALIAS(cudaEventElapsedTime_v2, cudaEventElapsedTime) ALIAS(cudaGraphInstantiateWithFlags, cudaGraphInstantiate)
ALIAS(cudaStreamSynchronize_ptsz, cudaStreamSynchronize) ALIAS(cudaStreamQuery_ptsz, cudaStreamQuery)
ALIAS(cudaStreamWaitEvent_ptsz, cudaStreamWaitEvent) ALIAS(cudaEventRecord_ptsz, cudaEventRecord)
ALIAS(cudaStreamBeginCapture_ptsz, cudaStreamBeginCapture) ALIAS(cudaGraphLaunch_ptsz, cudaGraphLaunch)
ALIAS(cudaStreamEndCapture_ptsz, cudaStreamEndCapture) ALIAS(cudaStreamIsCapturing_ptsz, cudaStreamIsCapturing)
ALIAS(cudaLaunchHostFunc_ptsz, cudaLaunchHostFunc) ALIAS(cudaStreamAddCallback_ptsz, cudaStreamAddCallback)
