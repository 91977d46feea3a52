/* A stand-in for the CUDA runtime and driver that executes nothing: programs run against it on a
 * machine without a GPU, and `tilesim capture` hears of every module, allocation, tensor map and
 * launch. It keeps no tables: each call is a question to the process that started the program, over
 * a socket (../server.py), which knows all answers. Device memory is host memory. */
#ifndef TILESIM_STUB_H
#define TILESIM_STUB_H

#include <stddef.h>

typedef unsigned long long u64;
typedef struct { unsigned x, y, z; } dim3;

/* The questions; the numbers are those of `Question` in ../server.py. */
enum {
    HELLO, UNANSWERED, MODULE, FUNCTION, REGISTER, VARIABLE, SYMBOL, ALLOCATED, FREED, COPIED, FORGOTTEN,
    EXTENT, LAUNCH, TILED, IM2COL, PROPERTIES, ATTRIBUTE, FUNCTION_ATTRIBUTES, SET_ATTRIBUTE,
    BLOCKS, CLUSTERS, UNLOADED
};
/* Kinds of memory, as ALLOCATED says them. */
enum { DEVICE, MANAGED, HOST };
/* Bits of LAUNCH. */
enum { COOPERATIVE = 1, DEPENDENT = 2 };

/* Errors have one number in runtime and driver. */
enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
    NO_IMAGE = 209, NOT_FOUND = 500, NOT_SUPPORTED = 801
};

#define VERSION 13000
#define WORDS(...) (const u64[]){__VA_ARGS__}, sizeof((const u64[]){__VA_ARGS__}) / sizeof(u64)
#define WORD(x) ((u64)(size_t)(x))
#define NOTHING(name) int name(void) { return OK; }
#define ALIAS(name, other) __typeof__(other) name __attribute__((alias(#other)));

/* Asks; the answer goes to `answer`, at most `room` bytes. The error of the answer is returned. */
int ask(unsigned question, const u64 *words, size_t count, const char *text, void *answer, size_t room);
/* The same with one number as answer. */
u64 number(unsigned question, const u64 *words, size_t count, const char *text);
/* Tells the user once that something is not answered. */
int not_answered(const char *name);

/* Memory that is mapped when it is touched. */
int allocate(void **result, size_t size, int kind);
int release(void *memory);
int copy(void *to, const void *from, size_t size);
int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height);
int fill(void *to, size_t pitch, unsigned value, size_t bytes, size_t count, size_t height);
/* Where a variable of a module lies, and its size. */
int variable(const void *key, void **address, size_t *size);

typedef struct { unsigned id, pad; union { dim3 cluster; int flag; char size[64]; } value; } attribute;
typedef struct { dim3 grid, block; size_t shared; void *stream; attribute *attributes; unsigned count; } runtime_config;
typedef struct { dim3 grid, block; unsigned shared; void *stream; attribute *attributes; unsigned count; } driver_config;
int launch(const void *function, dim3 grid, dim3 block, size_t shared, const attribute *attributes,
           unsigned count, void **arguments, void **extra);
int clusters(int *result, const void *function, dim3 block, size_t shared,
             const attribute *attributes, unsigned count);
/* The function of the stub by its name, with the versions that it may have; NULL: there is none. */
void *entry_point(const char *name);
int load_file(u64 *module, const char *path);
const char *error_text(int error, int name);

#endif
