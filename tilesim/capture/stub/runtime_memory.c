/* Memory in the CUDA runtime. Copies and sets are done when they are called. */
#define _GNU_SOURCE
#include "stub.h"

#include <string.h>

int cudaMalloc(void **memory, size_t size) { return allocate(memory, size, DEVICE); }
int cudaMallocAsync(void **memory, size_t size, void *stream) { return (void)stream, allocate(memory, size, DEVICE); }
int cudaMallocManaged(void **memory, size_t size, unsigned flags) { return (void)flags, allocate(memory, size, MANAGED); }
int cudaMallocHost(void **memory, size_t size) { return allocate(memory, size, HOST); }
int cudaHostAlloc(void **memory, size_t size, unsigned flags) { return (void)flags, allocate(memory, size, HOST); }
int cudaMallocPitch(void **memory, size_t *pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return allocate(memory, *pitch * height, DEVICE);
}
int cudaFree(void *memory) { return release(memory); }
int cudaFreeHost(void *memory) { return release(memory); }
int cudaFreeAsync(void *memory, void *stream) { return (void)stream, release(memory); }
int cudaHostRegister(void *memory, size_t size, unsigned flags) {
    (void)flags;
    return ask(ALLOCATED, WORDS(WORD(memory), size, HOST), NULL, NULL, 0);
}
int cudaHostUnregister(void *memory) { return ask(FREED, WORDS(WORD(memory)), NULL, NULL, 0); }
int cudaHostGetDevicePointer(void **device, void *host, unsigned flags) { return (void)flags, *device = host, OK; }
int cudaHostGetFlags(unsigned *flags, void *host) { return (void)host, *flags = 0, OK; }
int cudaMemGetInfo(size_t *unused, size_t *total) {
    *total = number(ATTRIBUTE, WORDS(-1), NULL);
    *unused = *total - (1 << 30);
    return OK;
}
typedef struct { int type, device; void *on_device, *on_host; long reserved[8]; } pointer_attributes;
int cudaPointerGetAttributes(pointer_attributes *attributes, const void *memory) {
    enum { UNREGISTERED, ON_HOST, ON_DEVICE, IS_MANAGED };
    u64 found[3] = {0, 0, 0}; /* address, size, kind */
    ask(EXTENT, WORDS(WORD(memory)), NULL, found, sizeof found);
    memset(attributes, 0, sizeof *attributes - sizeof attributes->reserved);
    attributes->type = !found[1] ? UNREGISTERED : found[2] == DEVICE ? ON_DEVICE : found[2] == HOST ? ON_HOST : IS_MANAGED;
    if (attributes->type != UNREGISTERED) attributes->on_device = (void *)memory;
    if (attributes->type != ON_DEVICE) attributes->on_host = (void *)memory;
    return OK;
}

int cudaMemcpy(void *to, const void *from, size_t size, int kind) { return (void)kind, copy(to, from, size); }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    return (void)kind, (void)stream, copy(to, from, size);
}
int cudaMemcpyPeer(void *to, int there, const void *from, int here, size_t size) {
    return (void)there, (void)here, copy(to, from, size);
}
int cudaMemcpyPeerAsync(void *to, int there, const void *from, int here, size_t size, void *stream) {
    return (void)there, (void)here, (void)stream, copy(to, from, size);
}
int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind) {
    return (void)kind, copy_rows(to, to_pitch, from, from_pitch, width, height);
}
int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                      size_t height, int kind, void *stream) {
    return (void)kind, (void)stream, copy_rows(to, to_pitch, from, from_pitch, width, height);
}
int cudaMemset(void *to, int value, size_t count) { return fill(to, 0, value, 1, count, 1); }
int cudaMemsetAsync(void *to, int value, size_t count, void *stream) {
    return (void)stream, fill(to, 0, value, 1, count, 1);
}
int cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
    return fill(to, pitch, value, 1, width, height);
}
int cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, void *stream) {
    return (void)stream, fill(to, pitch, value, 1, width, height);
}
NOTHING(cudaMemAdvise) NOTHING(cudaMemPrefetchAsync)

int cudaGetSymbolAddress(void **address, const void *symbol) { return variable(symbol, address, NULL); }
int cudaGetSymbolSize(size_t *size, const void *symbol) { return variable(symbol, NULL, size); }
int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, int kind) {
    void *address;
    int error = variable(symbol, &address, NULL);
    (void)kind;
    return error ? error : copy((char *)address + offset, from, size);
}
int cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset, int kind) {
    void *address;
    int error = variable(symbol, &address, NULL);
    (void)kind;
    return error ? error : copy(to, (char *)address + offset, size);
}
int cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size, size_t offset, int kind, void *stream) {
    return (void)stream, cudaMemcpyToSymbol(symbol, from, size, offset, kind);
}
int cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t size, size_t offset, int kind, void *stream) {
    return (void)stream, cudaMemcpyFromSymbol(to, symbol, size, offset, kind);
}
int cudaLibraryGetGlobal(void **address, size_t *size, u64 library, const char *name) {
    u64 key = number(FUNCTION, WORDS(library, 1), name);
    return key ? variable((void *)(size_t)key, address, size) : NOT_FOUND;
}

ALIAS(cudaMemcpy_ptds, cudaMemcpy) ALIAS(cudaMemcpyAsync_ptsz, cudaMemcpyAsync)
ALIAS(cudaMemcpy2D_ptds, cudaMemcpy2D) ALIAS(cudaMemcpy2DAsync_ptsz, cudaMemcpy2DAsync)
ALIAS(cudaMemset_ptds, cudaMemset) ALIAS(cudaMemsetAsync_ptsz, cudaMemsetAsync)
ALIAS(cudaMemset2D_ptds, cudaMemset2D) ALIAS(cudaMemset2DAsync_ptsz, cudaMemset2DAsync)
ALIAS(cudaMallocAsync_ptsz, cudaMallocAsync) ALIAS(cudaFreeAsync_ptsz, cudaFreeAsync)
ALIAS(cudaMemcpyToSymbol_ptds, cudaMemcpyToSymbol) ALIAS(cudaMemcpyToSymbolAsync_ptsz, cudaMemcpyToSymbolAsync)
ALIAS(cudaMemcpyFromSymbol_ptds, cudaMemcpyFromSymbol)
ALIAS(cudaMemcpyFromSymbolAsync_ptsz, cudaMemcpyFromSymbolAsync)
ALIAS(cudaMemPrefetchAsync_v2, cudaMemPrefetchAsync) ALIAS(cudaMemAdvise_v2, cudaMemAdvise)
