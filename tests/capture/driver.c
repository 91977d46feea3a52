/* Calls the driver as a program does that has PTX as text; the tests read what it prints. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
static void *driver;

/* One call with the arguments as they are. */
#define CALL(name, ...) \
    printf(#name " %d\n", ((int (*)())dlsym(driver, #name))(__VA_ARGS__))

int main(int count, char **arguments) {
    char text[1 << 16];
    u64 module = 0, function = 0, words[3] = {0, 0, 0};
    char *memory = NULL, *other = NULL, host[64] = {1, 2, 3};
    int value = -1, n = 7;
    FILE *file = fopen(arguments[1], "rb");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return printf("%s\n", dlerror()), 9;
    CALL(cuInit, 0);
    CALL(cuDeviceGetAttribute, &value, 16, 0);
    printf("multiprocessors %d\n", value);
    CALL(cuDeviceGetAttribute, &value, 75, 0);
    printf("capability %d\n", value);
    CALL(cuModuleLoadData, &module, text);
    CALL(cuModuleGetFunction, &function, module, "none");
    CALL(cuModuleGetFunction, &function, module, "k");
    CALL(cuMemAlloc_v2, &memory, (u64)64);
    CALL(cuMemAlloc_v2, &other, (u64)64);
    CALL(cuMemcpyHtoD_v2, memory, host, (u64)64);
    printf("%d %d %d\n", memory[0], memory[1], memory[63]);

    char *place = memory + 16;
    void *pointers[] = {&place, &n};
    CALL(cuLaunchKernel, function, 2, 1, 1, 64, 1, 1, 0, NULL, pointers, NULL);
    CALL(cuLaunchKernel, function, 2, 1, 1, 32, 1, 1, 49153, NULL, pointers, NULL);
    CALL(cuFuncSetAttribute, function, 8, 232449);
    CALL(cuFuncSetAttribute, function, 8, 65536);
    CALL(cuLaunchKernel, function, 2, 1, 1, 32, 1, 1, 49153, NULL, pointers, NULL);
    CALL(cuLaunchKernel, function, 0, 1, 1, 32, 1, 1, 0, NULL, pointers, NULL);
    CALL(cuLaunchKernel, 12345, 1, 1, 1, 32, 1, 1, 0, NULL, pointers, NULL);

    struct { void *pointer; int n; } packed = {other, 9};
    u64 size = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &size, NULL};
    CALL(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 64, NULL, NULL, extra);
    /* the same but for what memory holds: is not written again */
    CALL(cuMemcpyHtoD_v2, other, host, (u64)64);
    CALL(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 64, NULL, NULL, extra);

    CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, function, 32, (u64)65536);
    printf("resident %d\n", value);
    CALL(cuPointerGetAttribute, words, 2, memory);
    CALL(cuPointerGetAttribute, words, 2, host);
    CALL(cuMemFree_v2, other);
    CALL(cuMemFree_v2, other);
    void *found = &value;
    CALL(cuGetProcAddress_v2, "cuMemAlloc", &found, 12000, 0ull, &value);
    printf("found %d\n", found == dlsym(driver, "cuMemAlloc_v2"));
    CALL(cuGetProcAddress_v2, "cuNoSuchThing", &found, 12000, 0ull, &value);
    printf("status %d\n", value);
    CALL(cuArrayCreate_v2, words, words);

    char map[128];
    u64 dims[] = {64, 8}, strides[] = {128};
    unsigned box[] = {64, 8}, steps[] = {1, 1};
    CALL(cuTensorMapEncodeTiled, map, 6, 2, memory, dims, strides, box, steps, 0, 3, 0, 0);
    box[0] = 128;
    CALL(cuTensorMapEncodeTiled, map, 6, 2, memory, dims, strides, box, steps, 0, 3, 0, 0);
    return count > 2 ? atoi(arguments[2]) : 0;
}
