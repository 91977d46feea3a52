/* Loaded into every process of a command: in ptxas, keeps what it is given before it begins.
 *
 * $TILESIM_PTXAS gets a folder per run of ptxas: `N` has what its argument N names (`-`: standard
 * input), `command` the arguments, each with a zero byte behind it, written last; `exit` is the
 * exit code, `made` the cubin. Whatever fails here leaves ptxas as it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[PATH_MAX], output[PATH_MAX];

static int is_ptxas(void) {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    return name && strstr(name, "ptxas");
}

static int put(int to, const char *data, size_t size) {
    while (size) {
        ssize_t done = write(to, data, size);
        if (done <= 0) return 0;
        data += done, size -= done;
    }
    return 1;
}

static int create(const char *name) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

/* Copies a regular file from an offset on, and leaves its own offset alone. */
static int copy(int from, off_t at, int to) {
    static char data[1 << 16];
    for (;;) {
        ssize_t got = pread(from, data, sizeof data, at);
        if (got <= 0) return !got;
        if (!put(to, data, got)) return 0;
        at += got;
    }
}

/* What a pipe brings can be read once: it is replaced by a file in memory. */
static int emptied(int pipe) {
    static char data[1 << 16];
    int memory = memfd_create("ptx", MFD_CLOEXEC);
    if (memory < 0) return 0;
    for (ssize_t got; (got = read(pipe, data, sizeof data)) > 0;)
        if (!put(memory, data, got)) break;
    lseek(memory, 0, SEEK_SET);
    int done = dup2(memory, pipe) == pipe;
    close(memory);
    return done;
}

/* The descriptor that an argument names; -1: none. */
static int descriptor(const char *argument) {
    int number = -1;
    if (!strcmp(argument, "-") || !strcmp(argument, "/dev/stdin")) return 0;
    if (sscanf(argument, "/dev/fd/%d", &number) == 1) return number;
    if (sscanf(argument, "/proc/self/fd/%d", &number) == 1) return number;
    return -1;
}

static int keep(const char *argument, int number) {
    struct stat about;
    int open_one = descriptor(argument), from = open_one;
    if (open_one >= 0 ? fstat(open_one, &about) : stat(argument, &about)) return 1;
    if (S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode)) {
        if (open_one < 0) return 0;
        if (!emptied(open_one)) return 0;
    } else if (!S_ISREG(about.st_mode)) {
        return 1;
    }
    if (open_one < 0 && (from = open(argument, O_RDONLY | O_CLOEXEC)) < 0) return 1;
    char name[16];
    snprintf(name, sizeof name, "%d", number);
    int to = create(name);
    off_t at = open_one < 0 ? 0 : lseek(from, 0, SEEK_CUR);
    int done = to >= 0 && at >= 0 && copy(from, at, to);
    if (to >= 0) close(to);
    if (open_one < 0) close(from);
    return done;
}

static void keep_output(void) {
    int from = *output ? open(output, O_RDONLY | O_CLOEXEC) : -1;
    struct stat about;
    int to = from >= 0 && !fstat(from, &about) && S_ISREG(about.st_mode) ? create("made") : -1;
    if (to >= 0) copy(from, 0, to), close(to);
    if (from >= 0) close(from);
}

static void ended(int code, void *unused) {
    (void)unused;
    char text[16];
    if (!code) keep_output();
    int to = create("exit");
    if (to >= 0) put(to, text, snprintf(text, sizeof text, "%d", code & 255)), close(to);
}

__attribute__((constructor)) static void start(int count, char **arguments) {
    const char *root = getenv("TILESIM_PTXAS");
    if (!root || !is_ptxas()) return;
    if ((size_t)snprintf(folder, sizeof folder, "%s/XXXXXX", root) >= sizeof folder) return;
    if (!mkdtemp(folder)) return;
    int done = 1;
    for (int n = 1; n < count; ++n) {
        const char *value = arguments[n];
        if (!strcmp(arguments[n - 1], "-o") || !strcmp(arguments[n - 1], "--output-file"))
            snprintf(output, sizeof output, "%s", value);
        else if (!strncmp(value, "--output-file=", 14))
            snprintf(output, sizeof output, "%s", value + 14);
        if (value[0] == '-' && value[1]) {
            value = strchr(value, '=');
            if (!value++) continue;
        } else if (!strcmp(arguments[n - 1], "-o") || !strcmp(arguments[n - 1], "--output-file")) {
            continue;
        }
        done &= keep(value, n);
    }
    int to = done ? create("command") : -1;
    if (to < 0) return;
    for (int n = 0; n < count && done; ++n)
        done = put(to, arguments[n], strlen(arguments[n]) + 1);
    close(to);
    on_exit(ended, NULL);
}
