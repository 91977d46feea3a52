/* Programs have the runtime in themselves unless they were linked with `-cudart shared`. It cannot be
 * served from below: what it asks the driver for is documented nowhere. Its functions are replaced
 * where they stand, by jumps to the stub's; the program's symbol table says where that is. */
#define _GNU_SOURCE
#include "stub.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { JUMP = 13 };
static void jump(unsigned char *at, const void *target) {
    static const unsigned char code[JUMP] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
    memcpy(at, code, JUMP); /* movabs target, %r11; jmp *%r11 */
    memcpy(at + 2, &target, sizeof target);
}
#elif defined(__aarch64__)
enum { JUMP = 16 };
static void jump(unsigned char *at, const void *target) {
    static const unsigned code[2] = {0x58000051, 0xd61f0220}; /* ldr x17, 8; br x17 */
    memcpy(at, code, sizeof code);
    memcpy(at + sizeof code, &target, sizeof target);
    __builtin___clear_cache((char *)at, (char *)at + JUMP);
}
#else
#error "tilesim capture knows x86-64 and aarch64"
#endif

static int is_runtime(const char *name) {
    name += 2 * !strncmp(name, "__", 2);
    return !strncmp(name, "cuda", 4) && name[4] >= 'A' && name[4] <= 'Z';
}

static void replace(unsigned char *function, const void *target) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), start = (size_t)function / page * page;
    size_t size = (size_t)function + JUMP - start;
    if (mprotect((void *)start, size, PROT_READ | PROT_WRITE | PROT_EXEC)) return;
    jump(function, target);
    mprotect((void *)start, size, PROT_READ | PROT_EXEC);
}

/* One ELF file that has been loaded at `base`, mapped at `file`. */
static void replace_in(const unsigned char *file, size_t size, size_t base, void *self) {
    const Elf64_Ehdr *head = (const void *)file;
    if (size < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_shoff >= size) return;
    const Elf64_Shdr *sections = (const void *)(file + head->e_shoff);
    const char *titles = (const char *)file + sections[head->e_shstrndx].sh_offset;
    int kernels = 0, runtime = 0, shared = 0;
    for (unsigned s = 0; s < head->e_shnum; ++s) {
        const Elf64_Shdr *one = &sections[s];
        kernels |= !strcmp(titles + one->sh_name, ".nv_fatbin");
        if (one->sh_type != SHT_SYMTAB && one->sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *symbols = (const void *)(file + one->sh_offset);
        const char *names = (const char *)file + sections[one->sh_link].sh_offset;
        for (size_t i = 0; i < one->sh_size / sizeof *symbols; ++i) {
            const char *name = names + symbols[i].st_name;
            if (!is_runtime(name)) continue;
            if (symbols[i].st_shndx == SHN_UNDEF) shared = 1;
            if (symbols[i].st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC) continue;
            void *target = dlsym(self, name);
            runtime = 1;
            if (target) replace((unsigned char *)base + symbols[i].st_value, target);
        }
    }
    if (kernels && !runtime && !shared)
        not_answered("a program that has the CUDA runtime linked statically and no symbols: link it with "
                     "-cudart shared, or do not strip it. The CUDA runtime");
}

static int visit(struct dl_phdr_info *info, size_t size, void *self) {
    const char *path = info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
    struct stat status;
    Dl_info own;
    (void)size;
    if (dladdr((void *)visit, &own) && (size_t)own.dli_fbase == info->dlpi_addr) return 0;
    if (strstr(path, "/libcudart.so") || strstr(path, "/libcublas") || strstr(path, "/libcudnn")) return 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (!fstat(file, &status) && status.st_size > 0) {
        void *image = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (image != MAP_FAILED) {
            replace_in(image, status.st_size, info->dlpi_addr, self);
            munmap(image, status.st_size);
        }
    }
    close(file);
    return 0;
}

/* Runs before the program registers its kernels. */
__attribute__((constructor)) static void start(void) {
    Dl_info own;
    if (!dladdr((void *)start, &own)) return;
    void *self = dlopen(own.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    if (self) dl_iterate_phdr(visit, self);
}
