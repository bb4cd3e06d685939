/* start.c - the entry of a program that can bring its own C library and loader, wherever its tree is.
 *
 * ELF wants the loader's absolute path (PT_INTERP), so a program that can be moved names none: scripts/bundle hides
 * the name, and the kernel maps the program alone and starts it here. This code does what the kernel would have
 * done: it maps PREFIX/lib/gpuslice/runtime/LOADER, where PREFIX follows from this program's own path, enters that
 * in the auxiliary vector, and jumps there. From there on the loader works as always: it links the program to the
 * libraries that its DT_RPATH names, beside the loader, and calls _start of crt1.o. There is no environment
 * variable and no second program: /proc/self/exe is the program, and what it execs starts as on any host.
 *
 * Nothing is relocated yet and there is no thread pointer, so: no libc, no stack protector, no data that holds
 * addresses, only hidden symbols. */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define LOADER_FOLDER "/lib/gpuslice/runtime/"

/* The loader, or _start, gets the stack and the registers as they are here. */
#if defined(__x86_64__)
#define LOADER LOADER_FOLDER "ld-linux-x86-64.so.2"
__asm__(".globl portable_entry\n"
        ".hidden portable_entry\n"
        ".type portable_entry, @function\n"
        "portable_entry:\n"
        "    endbr64\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    push %rdx\n"
        "    push %rdx\n"
        "    call portable_load\n"
        "    pop %rdx\n"
        "    pop %rdx\n"
        "    jmp *%rax\n");
#elif defined(__aarch64__)
#define LOADER LOADER_FOLDER "ld-linux-aarch64.so.1"
__asm__(".globl portable_entry\n"
        ".hidden portable_entry\n"
        ".type portable_entry, %function\n"
        "portable_entry:\n"
        "    hint #34\n"
        "    mov x29, #0\n"
        "    mov x30, #0\n"
        "    mov x1, x0\n"
        "    mov x0, sp\n"
        "    stp x1, x30, [sp, #-16]!\n"
        "    bl portable_load\n"
        "    mov x16, x0\n"
        "    ldp x0, x30, [sp], #16\n"
        "    br x16\n");
#endif

static long system_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ __volatile__("syscall"
                         : "=a"(result)
                         : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                         : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                     x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ __volatile__("svc #0"
                         : "+r"(x0)
                         : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                         : "memory");
    return x0;
#endif
}

static size_t length_of(const char *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

static void say(const char *text)
{
    system_call(SYS_write, 2, (long)text, (long)length_of(text), 0, 0, 0);
}

static _Noreturn void fail(const char *what, const char *path)
{
    say("gpuslice: ");
    say(what);
    say(path);
    say("; expected GPU Slice's tree as it was unpacked; unpack it again\n");
    for (;;)
        system_call(SYS_exit_group, 127, 0, 0, 0, 0, 0);
}

/* PREFIX, if this program's file is PREFIX/FOLDER/NAME, followed by LOADER. */
static void find_loader(char path[static PATH_MAX])
{
    long length = system_call(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)path, PATH_MAX, 0, 0);
    for (int folders = 0; folders < 2 && length > 0;)
        folders += path[--length] == '/';
    if (length < 0 || (size_t)length + sizeof(LOADER) > PATH_MAX)
        fail("cannot find its own files by ", "/proc/self/exe");
    for (size_t i = 0; i < sizeof(LOADER); i++)
        path[(size_t)length + i] = LOADER[i];
}

static long map(uintptr_t address, size_t length, int protection, int flags, int fd, uint64_t offset)
{
    return system_call(SYS_mmap, (long)address, (long)length, protection, MAP_PRIVATE | flags, fd,
                       (long)offset);
}

static bool map_segment(uintptr_t base, const ElfW(Phdr) * segment, int fd, size_t page)
{
    uintptr_t start = base + segment->p_vaddr, from = start & ~(page - 1);
    uintptr_t file_end = start + segment->p_filesz, end = start + segment->p_memsz;
    uintptr_t mapped_end = (file_end + page - 1) & ~(page - 1);
    int protection = (segment->p_flags & PF_R ? PROT_READ : 0) | (segment->p_flags & PF_W ? PROT_WRITE : 0) |
                     (segment->p_flags & PF_X ? PROT_EXEC : 0);
    if (map(from, file_end - from, protection, MAP_FIXED, fd, segment->p_offset - (start - from)) < 0)
        return false;
    if (end == file_end)
        return true;
    for (volatile char *byte = (volatile char *)file_end; (uintptr_t)byte < mapped_end; byte++)
        *byte = 0;
    return end <= mapped_end ||
           map(mapped_end, end - mapped_end, protection, MAP_FIXED | MAP_ANONYMOUS, -1, 0) >= 0;
}

/* The beginning of the loader's file. */
union head {
    char bytes[4096];
    ElfW(Ehdr) header;
};

/* Map the loader's file. Returns its base, and sets `entry` to where it starts. */
static uintptr_t map_loader(const char *path, size_t page, uintptr_t *entry)
{
    union head head;
    const ElfW(Ehdr) *header = &head.header;
    long fd = system_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
    long length = fd < 0 ? fd : system_call(SYS_read, fd, (long)head.bytes, sizeof(head.bytes), 0, 0, 0);
    if (length < (long)sizeof(*header) || header->e_type != ET_DYN ||
        header->e_phentsize != sizeof(ElfW(Phdr)) || header->e_phoff > (uint64_t)length ||
        header->e_phnum > ((uint64_t)length - header->e_phoff) / sizeof(ElfW(Phdr)))
        fail("cannot read ", path);

    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)(head.bytes + header->e_phoff);
    uintptr_t end = 0;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD) /* the segments are in ascending order, from 0 on */
            end = segments[i].p_vaddr + segments[i].p_memsz;
    }
    long base = map(0, end, PROT_NONE, MAP_ANONYMOUS, -1, 0);
    if (base < 0 && base > -4096)
        fail("has no memory for ", path);
    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD && !map_segment((uintptr_t)base, &segments[i], (int)fd, page))
            fail("cannot map ", path);
    }
    system_call(SYS_close, fd, 0, 0, 0, 0, 0);
    *entry = (uintptr_t)base + header->e_entry;
    return (uintptr_t)base;
}

/* The loader insists on a PT_INTERP in the program, to learn its own name. scripts/bundle made it a PT_NULL, so
 * that the kernel does not see it. */
static void show_interpreter(ElfW(Phdr) * headers, size_t count, size_t page)
{
    uintptr_t from = (uintptr_t)headers & ~(page - 1);
    size_t length = (uintptr_t)(headers + count) - from;
    if (system_call(SYS_mprotect, (long)from, (long)length, PROT_READ | PROT_WRITE, 0, 0, 0) < 0)
        fail("cannot prepare ", "its headers");
    for (size_t i = 0; i < count; i++) {
        if (headers[i].p_type == PT_NULL)
            headers[i].p_type = PT_INTERP;
    }
    system_call(SYS_mprotect, (long)from, (long)length, PROT_READ, 0, 0, 0);
}

/* From crt1.o. Hidden, so that its address needs no relocation. */
extern __attribute__((visibility("hidden"))) char _start[];

/* Called by portable_entry with the stack of the new process: the number of arguments, the arguments, 0, the
 * environment, 0, the auxiliary vector. Returns the address to jump to. */
__attribute__((used, visibility("hidden"))) uintptr_t portable_load(uintptr_t *stack);

uintptr_t portable_load(uintptr_t *stack)
{
    uintptr_t *word = stack + 1 + stack[0] + 1;
    while (*word)
        word++;
    ElfW(auxv_t) *vector = (ElfW(auxv_t) *)(word + 1), *base = NULL, *program = NULL;
    size_t page = 4096, header_count = 0;
    ElfW(Phdr) *headers = NULL;
    for (; vector->a_type != AT_NULL; vector++) {
        if (vector->a_type == AT_BASE)
            base = vector; /* 0 if no loader has run */
        else if (vector->a_type == AT_ENTRY)
            program = vector;
        else if (vector->a_type == AT_PAGESZ)
            page = vector->a_un.a_val;
        else if (vector->a_type == AT_PHDR)
            headers = (ElfW(Phdr) *)vector->a_un.a_val;
        else if (vector->a_type == AT_PHNUM)
            header_count = vector->a_un.a_val;
    }

    if (base && base->a_un.a_val) /* still as it was linked, and the host's loader has run */
        return (uintptr_t)_start;

    char path[PATH_MAX];
    uintptr_t entry;
    find_loader(path);
    show_interpreter(headers, header_count, page);
    uintptr_t loader = map_loader(path, page, &entry);
    if (base)
        base->a_un.a_val = loader;
    if (program)
        program->a_un.a_val = (uintptr_t)_start;
    return entry;
}
