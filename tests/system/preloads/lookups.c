/* lookups.c - asks for entry points in every way a program can, and prints what it gets, one answer a line:
 * fields apart by tabs, a function as OBJECT:SYMBOL. Built twice; lookups_linked is linked with the driver.
 *
 *   lookups table [VERSION...]      every name by cuGetProcAddress in its three forms, every flag; every
 * symbol by dlsym lookups find HOW NAME...        HOW: handle next default main dlvsym PATH-of-a-driver
 *   lookups ask NAME VERSION        cuGetProcAddress_v2 from a handle
 *   lookups call NAME...            each of the functions found by RTLD_DEFAULT, called with zeros
 *   lookups threads                 eight threads' first lookups at once
 *   lookups traced                  what tracer.c finds and counts
 *   lookups errors                  what dlerror() says after lookups that succeed and fail */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/entry_points.h"
#include "cuda/prototypes.h"

static const char *where(void *function)
{
    static _Thread_local char texts[4][256];
    static _Thread_local int turn;
    Dl_info info;
    if (!function)
        return "NULL";
    if (!dladdr(function, &info))
        return "nowhere";
    const char *slash = strrchr(info.dli_fname, '/');
    char *text = texts[turn++ % 4];
    snprintf(text, sizeof texts[0], "%s:%s", slash ? slash + 1 : info.dli_fname,
             info.dli_saddr == function ? info.dli_sname : "?");
    return text;
}

static void *driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return handle;
}

#ifdef LINKED
#define RESOLVER(symbol) (&symbol)
#else
#define RESOLVER(symbol) ((__typeof__(&symbol))dlsym(driver(), #symbol))
#endif

static void table_of(const char *name, int version, cuuint64_t flags)
{
    void *v1 = NULL, *v2 = NULL, *quiet = NULL, *per_thread = NULL;
    CUdriverProcAddressQueryResult status = 77, per_thread_status = 77;
    CUresult result = RESOLVER(cuGetProcAddress)(name, &v1, version, flags);
    printf("v1\t%s\t%d\t%d\t%d\t%s\n", name, version, (int)flags, result, where(v1));
    result = RESOLVER(cuGetProcAddress_v2)(name, &v2, version, flags, &status);
    printf("v2\t%s\t%d\t%d\t%d/%d\t%s\n", name, version, (int)flags, result, status, where(v2));
    result = RESOLVER(cuGetProcAddress_v2)(name, &quiet, version, flags, NULL);
    printf("v2-\t%s\t%d\t%d\t%d\t%s\n", name, version, (int)flags, result, where(quiet));
    result = RESOLVER(cuGetProcAddress_v2_ptsz)(name, &per_thread, version, flags, &per_thread_status);
    printf("ptsz\t%s\t%d\t%d\t%d/%d\t%s\n", name, version, (int)flags, result, per_thread_status,
           where(per_thread));
}

static int print_table(int count, char **versions)
{
    const char *last = "";
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++) {
        const char *symbol = cuda_entries[id].symbol, *name = cuda_entries[id].name;
        printf("dlsym\t%s\t\t\t\t%s\n", symbol, where(dlsym(driver(), symbol)));
        if (strcmp(name, last) == 0)
            continue;
        last = name;
        for (int i = 0; i < count; i++) {
            for (cuuint64_t flags = 0; flags <= 3; flags++)
                table_of(name, atoi(versions[i]), flags);
        }
    }
    /* What is no name, and missing arguments. */
    table_of("", 0, 0);
    table_of("cuNothing", 12000, 0);
    printf("null\t\t\t\t%d\t\n", RESOLVER(cuGetProcAddress_v2)(NULL, NULL, 12000, 0, NULL));
    printf("null\t\t\t\t%d\t\n", RESOLVER(cuGetProcAddress_v2)("cuInit", NULL, 12000, 0, NULL));
    return 0;
}

static int print_found(const char *how, int count, char **names)
{
    for (int i = 0; i < count; i++) {
        void *found = strcmp(how, "handle") == 0    ? dlsym(driver(), names[i])
                      : strcmp(how, "next") == 0    ? dlsym(RTLD_NEXT, names[i])
                      : strcmp(how, "default") == 0 ? dlsym(RTLD_DEFAULT, names[i])
                      : strcmp(how, "main") == 0    ? dlsym(dlopen(NULL, RTLD_NOW), names[i])
                      : strcmp(how, "nvml") == 0    ? dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), names[i])
                      : strcmp(how, "dlvsym") == 0  ? dlvsym(driver(), names[i], "NONE_1.0")
                                                    : dlsym(dlopen(how, RTLD_NOW), names[i]);
        printf("%s\t%s\n", names[i], where(found));
    }
    return 0;
}

static int print_asked(const char *name, int version)
{
    void *found = NULL;
    CUresult result = RESOLVER(cuGetProcAddress_v2)(name, &found, version, 0, NULL);
    printf("%d\t%s\n", result, where(found));
    return 0;
}

static int print_called(int count, char **names)
{
    for (int i = 0; i < count; i++) {
        int (*function)(long, long, long, long, long, long) =
            (int (*)(long, long, long, long, long, long))dlsym(RTLD_DEFAULT, names[i]);
        printf("%s\t%d\n", names[i], function ? function(0, 0, 0, 0, 0, 0) : -1);
    }
    return 0;
}

static pthread_barrier_t together;

static void *first_lookups(void *argument)
{
    void *nested = NULL;
    pthread_barrier_wait(&together);
    __typeof__(&cuGetProcAddress_v2) ask =
        (__typeof__(&cuGetProcAddress_v2))dlsym(driver(), "cuGetProcAddress_v2");
    ask("cuGetProcAddress", &nested, 12000, 0, NULL);
    snprintf(argument, 512, "%s\t%s", where((void *)ask), where(nested));
    return NULL;
}

static int print_threads(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    static char lines[THREADS][512];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, first_lookups, lines[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        puts(lines[i]);
    }
    return 0;
}

static int print_traced(void)
{
    void *(*find)(void *, const char *) = (void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "tracer_find");
    int (*count)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "tracer_count");
    if (!find || !count)
        return 1;
    const char *const names[] = {"cuMemAlloc_v2", "cuGetProcAddress_v2", "malloc", "dlsym"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s\t%s\t%s\t%s\n", names[i], where(find(RTLD_NEXT, names[i])),
               where(find(RTLD_DEFAULT, names[i])), where(find(driver(), names[i])));
#ifdef LINKED
    void *linked = NULL;
    int before = count("lookups");
    CUresult result = cuGetProcAddress_v2("cuGetProcAddress", &linked, 12000, 0, NULL);
    printf("lookups\t%d\t%d\t%s\n", count("lookups") - before, result, where(linked));
#endif
    free(malloc(100));
    printf("mallocs\t%s\n", count("mallocs") > 0 ? "counted" : "none");
    return 0;
}

static int print_errors(void)
{
    void *handle = driver();
    const char *const names[] = {"cuGetProcAddress_v2", "cuNothing_v9", "cuInit", "nothing"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = dlsym(handle, names[i]);
        const char *error = dlerror();
        printf("%s\t%s\t%s\n", names[i], found ? "found" : "none", error ? error : "no error");
    }
    void *found = NULL;
    RESOLVER(cuGetProcAddress_v2)("cuMemAlloc", &found, 12000, 0, NULL);
    const char *error = dlerror();
    printf("cuGetProcAddress_v2\t\t%s\n", error ? error : "no error");
    return 0;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "table") == 0)
        return print_table(count - 2, arguments + 2);
    if (strcmp(what, "find") == 0 && count > 2)
        return print_found(arguments[2], count - 3, arguments + 3);
    if (strcmp(what, "ask") == 0 && count == 4)
        return print_asked(arguments[2], atoi(arguments[3]));
    if (strcmp(what, "call") == 0)
        return print_called(count - 2, arguments + 2);
    if (strcmp(what, "threads") == 0)
        return print_threads();
    if (strcmp(what, "traced") == 0)
        return print_traced();
    if (strcmp(what, "errors") == 0)
        return print_errors();
    fprintf(stderr, "lookups: unknown command '%s'; see lookups.c\n", what);
    return 2;
}
