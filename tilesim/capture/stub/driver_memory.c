/* Memory in the CUDA driver. Copies and sets are done when they are called. */
#define _GNU_SOURCE
#include "stub.h"

int cuMemAlloc_v2(void **memory, size_t size) { return size ? allocate(memory, size, DEVICE) : INVALID_VALUE; }
int cuMemAllocAsync(void **memory, size_t size, void *stream) { return (void)stream, allocate(memory, size, DEVICE); }
int cuMemAllocManaged(void **memory, size_t size, unsigned flags) { return (void)flags, allocate(memory, size, MANAGED); }
int cuMemAllocHost_v2(void **memory, size_t size) { return allocate(memory, size, HOST); }
int cuMemHostAlloc(void **memory, size_t size, unsigned flags) { return (void)flags, allocate(memory, size, HOST); }
int cuMemAllocPitch_v2(void **memory, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    return allocate(memory, *pitch * height, DEVICE);
}
int cuMemFree_v2(void *memory) { return release(memory); }
int cuMemFreeHost(void *memory) { return release(memory); }
int cuMemFreeAsync(void *memory, void *stream) { return (void)stream, release(memory); }
int cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) {
    (void)flags;
    return ask(ALLOCATED, WORDS(WORD(memory), size, HOST), NULL, NULL, 0);
}
int cuMemHostUnregister(void *memory) { return ask(FREED, WORDS(WORD(memory)), NULL, NULL, 0); }
int cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned flags) {
    return (void)flags, *device = host, OK;
}
int cuMemGetInfo_v2(size_t *unused, size_t *total) {
    *total = number(ATTRIBUTE, WORDS(-1), NULL);
    *unused = *total - (1 << 30);
    return OK;
}
int cuMemGetAddressRange_v2(void **base, size_t *size, void *memory) {
    u64 found[3] = {0, 0, 0};
    ask(EXTENT, WORDS(WORD(memory)), NULL, found, sizeof found);
    if (base) *base = (void *)(size_t)found[0];
    if (size) *size = found[1];
    return found[1] ? OK : NOT_FOUND;
}

int cuPointerGetAttribute(void *value, int attribute, void *memory) {
    enum { CONTEXT = 1, TYPE, DEVICE_POINTER, HOST_POINTER, IS_MANAGED = 8, ORDINAL, START = 11, SIZE };
    u64 found[3] = {0, 0, 0};
    ask(EXTENT, WORDS(WORD(memory)), NULL, found, sizeof found);
    if (!found[1]) return INVALID_VALUE;
    switch (attribute) {
    case CONTEXT: return *(void **)value = NULL, OK;
    case TYPE: return *(unsigned *)value = found[2] == HOST ? 1 : 2, OK;
    case DEVICE_POINTER: case HOST_POINTER: return *(void **)value = memory, OK;
    case IS_MANAGED: return *(unsigned *)value = found[2] == MANAGED, OK;
    case ORDINAL: return *(int *)value = 0, OK;
    case START: return *(u64 *)value = found[0], OK;
    case SIZE: return *(size_t *)value = found[1], OK;
    default: return not_answered("cuPointerGetAttribute of this attribute");
    }
}

int cuMemcpy(void *to, void *from, size_t size) { return copy(to, from, size); }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { return copy(to, from, size); }
int cuMemcpyAsync(void *to, void *from, size_t size, void *stream) { return (void)stream, copy(to, from, size); }
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size, void *stream) {
    return (void)stream, copy(to, from, size);
}
int cuMemsetD8_v2(void *to, unsigned char value, size_t count) { return fill(to, 0, value, 1, count, 1); }
int cuMemsetD16_v2(void *to, unsigned short value, size_t count) { return fill(to, 0, value, 2, count, 1); }
int cuMemsetD32_v2(void *to, unsigned value, size_t count) { return fill(to, 0, value, 4, count, 1); }
int cuMemsetD8Async(void *to, unsigned char value, size_t count, void *stream) {
    return (void)stream, fill(to, 0, value, 1, count, 1);
}
int cuMemsetD16Async(void *to, unsigned short value, size_t count, void *stream) {
    return (void)stream, fill(to, 0, value, 2, count, 1);
}
int cuMemsetD32Async(void *to, unsigned value, size_t count, void *stream) {
    return (void)stream, fill(to, 0, value, 4, count, 1);
}
ALIAS(cuMemcpyDtoH_v2, cuMemcpyHtoD_v2) ALIAS(cuMemcpyDtoD_v2, cuMemcpyHtoD_v2)
ALIAS(cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2) ALIAS(cuMemcpyDtoDAsync_v2, cuMemcpyHtoDAsync_v2)
