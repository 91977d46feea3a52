/* What runtime and driver have in common: questions, memory, launches. */
#define _GNU_SOURCE
#include "stub.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1;
static pid_t owner;

static void lost(void) {
    fprintf(stderr, "tilesim capture has ended: the program ends as well\n");
    _exit(1);
}

static void put(const void *data, size_t size) {
    for (const char *at = data; size;) {
        ssize_t sent = send(connection, at, size, MSG_NOSIGNAL);
        if (sent <= 0) lost();
        at += sent, size -= sent;
    }
}

static void get(void *data, size_t size) {
    for (char *at = data; size;) {
        ssize_t got = recv(connection, at, size, 0);
        if (got <= 0) lost();
        at += got, size -= got;
    }
}

static void open_connection(void) {
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    const char *path = getenv("TILESIM_CAPTURE");
    if (!path) lost();
    strncpy(where.sun_path, path, sizeof where.sun_path - 1);
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection, (struct sockaddr *)&where, sizeof where)) lost();
    owner = getpid();
}

static int ask_locked(unsigned question, const u64 *words, size_t count, const char *text,
                      void *answer, size_t room) {
    size_t length = text ? strlen(text) : 0;
    unsigned head[3] = {question, (unsigned)count, (unsigned)length};
    if (connection < 0 || owner != getpid()) open_connection();
    put(head, sizeof head);
    put(words, count * sizeof *words);
    put(text, length);
    for (;;) {
        struct { int error; unsigned size; } reply;
        get(&reply, sizeof reply);
        if (reply.error < 0) { /* it wants to read memory of this process */
            u64 range[2];
            get(range, sizeof range);
            put((const void *)(size_t)range[0], range[1]);
            continue;
        }
        char left[256];
        size_t taken = reply.size < room ? reply.size : room;
        get(answer, taken);
        for (size_t rest = reply.size - taken; rest;) {
            size_t some = rest < sizeof left ? rest : sizeof left;
            get(left, some);
            rest -= some;
        }
        return reply.error;
    }
}

int ask(unsigned question, const u64 *words, size_t count, const char *text, void *answer, size_t room) {
    pthread_mutex_lock(&lock);
    int error = ask_locked(question, words, count, text, answer, room);
    pthread_mutex_unlock(&lock);
    return error;
}

u64 number(unsigned question, const u64 *words, size_t count, const char *text) {
    u64 value = 0;
    ask(question, words, count, text, &value, sizeof value);
    return value;
}

int not_answered(const char *name) {
    ask(UNANSWERED, WORDS(0), name, NULL, 0);
    return NOT_SUPPORTED;
}

/* ------------------------------------------------------------------ memory */

/* Allocations lie in a range where nothing else does, far enough from each other that the end of
 * one is not the beginning of the next. */
#define FIRST 0x300000000000ull
#define STEP (2ull << 20)

int allocate(void **result, size_t size, int kind) {
    static u64 next = FIRST;
    *result = NULL;
    if (!size) return OK;
    u64 span = (size + 2 * STEP - 1) / STEP * STEP + STEP;
    void *wanted = (void *)(size_t)__atomic_fetch_add(&next, span, __ATOMIC_RELAXED);
    void *memory = mmap(wanted, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return OUT_OF_MEMORY;
    *result = memory;
    return ask(ALLOCATED, WORDS(WORD(memory), size, kind), NULL, NULL, 0);
}

int release(void *memory) {
    if (!memory) return OK;
    u64 size = 0;
    int error = ask(FREED, WORDS(WORD(memory)), NULL, &size, sizeof size);
    if (size) munmap(memory, size);
    return error;
}

int copy(void *to, const void *from, size_t size) {
    return copy_rows(to, size, from, size, size, 1);
}

int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height) {
    for (size_t row = 0; row < height && width; ++row) {
        char *target = (char *)to + row * to_pitch;
        const char *source = (const char *)from + row * from_pitch;
        memmove(target, source, width);
        ask(COPIED, WORDS(WORD(target), WORD(source), width), NULL, NULL, 0);
    }
    return OK;
}

int fill(void *to, size_t pitch, unsigned value, size_t bytes, size_t count, size_t height) {
    for (size_t row = 0; row < height && count; ++row) {
        char *target = (char *)to + row * pitch;
        if (bytes == 1) memset(target, (int)value, count);
        else
            for (size_t i = 0; i < count; ++i) memcpy(target + i * bytes, &value, bytes);
        ask(COPIED, WORDS(WORD(target), 0, count * bytes), NULL, NULL, 0);
    }
    return OK;
}

int variable(const void *key, void **address, size_t *size) {
    u64 found[2] = {0, 0};
    void *memory;
    int error = ask(SYMBOL, WORDS(WORD(key), 0), NULL, found, sizeof found);
    if (!error && !found[0]) {
        error = allocate(&memory, found[1], DEVICE);
        found[0] = WORD(memory);
        if (!error) error = ask(SYMBOL, WORDS(WORD(key), found[0]), NULL, NULL, 0);
    }
    if (address) *address = (void *)(size_t)found[0];
    if (size) *size = found[1];
    return error;
}

/* ------------------------------------------------------------------ launches */

enum { IS_COOPERATIVE = 2, IS_CLUSTER = 4, IS_SERIALIZATION = 6, IS_EVENT = 7 };

static u64 described(const attribute *attributes, unsigned count, dim3 *cluster) {
    u64 flags = 0;
    for (unsigned i = 0; i < count; ++i) {
        const attribute *one = &attributes[i];
        if (one->id == IS_COOPERATIVE && one->value.flag) flags |= COOPERATIVE;
        if (one->id == IS_CLUSTER) *cluster = one->value.cluster;
        if ((one->id == IS_SERIALIZATION && one->value.flag) || one->id == IS_EVENT) flags |= DEPENDENT;
    }
    return flags;
}

int launch(const void *function, dim3 grid, dim3 block, size_t shared, const attribute *attributes,
           unsigned count, void **arguments, void **extra) {
    dim3 c = {0, 0, 0};
    u64 flags = described(attributes, count, &c);
    return ask(LAUNCH, WORDS(WORD(function), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                             c.x, c.y, c.z, shared, flags, WORD(arguments), WORD(extra)),
               NULL, NULL, 0);
}

int clusters(int *result, const void *function, dim3 block, size_t shared,
             const attribute *attributes, unsigned count) {
    dim3 c = {0, 0, 0};
    u64 found = 0;
    described(attributes, count, &c);
    int error = ask(CLUSTERS, WORDS(WORD(function), c.x, c.y, c.z, block.x * block.y * block.z, shared),
                    NULL, &found, sizeof found);
    *result = (int)found;
    return error;
}

int load_file(u64 *module, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return 301;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *image = calloc(1, size + 1);
    size_t got = fread(image, 1, size, file);
    fclose(file);
    int error = got == (size_t)size ? ask(MODULE, WORDS(WORD(image)), NULL, module, sizeof *module) : 301;
    free(image);
    return error;
}

void *entry_point(const char *name) {
    static const char *const versions[] = {"_v4", "_v3", "_v2", ""};
    char full[128];
    Dl_info own;
    if (!dladdr((void *)entry_point, &own)) return NULL;
    void *self = dlopen(own.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    for (size_t i = 0; self && i < sizeof versions / sizeof *versions; ++i) {
        snprintf(full, sizeof full, "%s%s", name, versions[i]);
        void *found = dlsym(self, full);
        Dl_info where;
        if (found && dladdr(found, &where) && where.dli_fbase == own.dli_fbase) return found;
    }
    return NULL;
}

const char *error_text(int error, int name) {
    static const struct { int error; const char *name, *text; } known[] = {
        {0, "cudaSuccess", "no error"},
        {1, "cudaErrorInvalidValue", "invalid argument"},
        {2, "cudaErrorMemoryAllocation", "out of memory"},
        {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
        {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
        {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
        {200, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
        {209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
        {301, "cudaErrorFileNotFound", "file not found"},
        {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
        {500, "cudaErrorSymbolNotFound", "named symbol not found"},
        {701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
        {801, "cudaErrorNotSupported", "operation not supported (under tilesim capture)"},
        {912, "cudaErrorClusterOutOfResources", "cluster misconfiguration"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
        if (known[i].error == error) return name ? known[i].name : known[i].text;
    return name ? "cudaErrorUnknown" : "unknown error";
}
