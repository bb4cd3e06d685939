#include "gpucheck/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "gpucheck/report.h"
#include "kernels_ptx.h"

struct settings settings;

/* --- Reporting ------------------------------------------------------------------------------------ */

/* Write one line, whatever the text quotes: tabs and line ends become spaces. */
static void say(const char *kind, const char *name, const char *text, const char *unit)
{
    char line[REPORT_LINE_BYTES], clean[REPORT_LINE_BYTES - 200];
    size_t length = 0;
    for (; *text && length < sizeof(clean) - 1; text++)
        clean[length++] = (unsigned char)*text < ' ' ? ' ' : *text;
    clean[length] = '\0';
    error_make_one_line(clean);
    int bytes = snprintf(line, sizeof(line), "%s%s%.120s\t%s%s%.20s\n", kind, name ? "\t" : "",
                         name ? name : "", clean, unit ? "\t" : "", unit ? unit : "");
    if (bytes < 0 || write(REPORT_FD, line, (size_t)bytes) != bytes)
        _exit(3); /* nobody reads the report */
}

void figure(const char *name, double value, const char *unit)
{
    char text[40];
    snprintf(text, sizeof(text), "%.17g", value);
    say("figure", name, text, unit);
}

#define FORMAT(text, format)                                                                                 \
    char text[REPORT_LINE_BYTES];                                                                            \
    va_list arguments;                                                                                       \
    va_start(arguments, format);                                                                             \
    vsnprintf(text, sizeof(text), format, arguments);                                                        \
    va_end(arguments)

void figure_text(const char *name, const char *format, ...)
{
    FORMAT(text, format);
    say("text", name, text, NULL);
}

void detail(const char *name, const char *format, ...)
{
    FORMAT(text, format);
    say("detail", name, text, NULL);
}

void could_not_try(const char *name, const char *format, ...)
{
    FORMAT(text, format);
    figure_text(name, NOT_TRIED "%s", text);
}

void fail(const char *format, ...)
{
    FORMAT(text, format);
    say("failed", NULL, text, NULL);
}

void fail_and_end(const char *format, ...)
{
    FORMAT(text, format);
    say("failed", NULL, text, NULL);
    _exit(1);
}

void fail_and_stop(const char *format, ...)
{
    FORMAT(text, format);
    say("stop", NULL, text, NULL);
    _exit(1);
}

void not_run(const char *format, ...)
{
    FORMAT(text, format);
    say("not-run", NULL, text, NULL);
    _exit(0);
}

void report_ended(void)
{
    say("ended", NULL, "", NULL);
}

const char *result_name(CUresult result)
{
    const char *name = cuda_result_name(result);
    return name ? name : "an unknown result";
}

void must_succeed(const char *call, CUresult result)
{
    if (result != CUDA_SUCCESS)
        fail_and_end("%.200s answered %s (%d)", call, result_name(result), (int)result);
}

/* --- Often needed ---------------------------------------------------------------------------------- */

void open_context(void)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr small;
    const char *reason = driver_open(DRIVER_BY_DLSYM);
    if (reason)
        fail_and_end("no driver: %s", reason);
    must(cuInit(0));
    must(cuDeviceGet(&device, 0));
    must(cuDevicePrimaryCtxRetain(&context, device));
    must(cuCtxSetCurrent(context));
    /* The driver takes some memory for itself at the first allocation, the first stream and the first kernel. */
    CUfunction fill = load_kernel("gs_fill_u32");
    uint32_t value = 1;
    uint64_t count = 1;
    must(cuMemAlloc_v2(&small, 4096));
    void *parameters[] = {&small, &value, &count};
    must(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    must(cuCtxSynchronize());
    if (getenv("GPUSLICE_SESSION"))
        settle();
}

uint64_t settle(void)
{
    const double still_s = 0.25, most_s = 3;
    double begin = now_s(), since = begin;
    uint64_t seen = free_bytes();
    while (now_s() < since + still_s && now_s() < begin + most_s) {
        sleep_s(0.01);
        uint64_t now = free_bytes();
        if (now != seen)
            since = now_s();
        seen = now;
    }
    return seen;
}

CUfunction load_kernel(const char *name)
{
    static CUmodule module;
    CUfunction function;
    if (!module)
        must(cuModuleLoadData(&module, kernels_ptx));
    must(cuModuleGetFunction(&function, module, name));
    return function;
}

uint64_t free_bytes(void)
{
    size_t free_now, total;
    must(cuMemGetInfo_v2(&free_now, &total));
    return free_now;
}

double now_s(void)
{
    return (double)monotonic_ns() * 1e-9;
}

bool cpus_are_busy(void)
{
    static unsigned long long before[8];
    unsigned long long now[8] = {0}, all = 0, idle = 0;
    FILE *file = fopen("/proc/stat", "re");
    if (file && fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &now[0], &now[1], &now[2],
                       &now[3], &now[4], &now[5], &now[6], &now[7]) == 8)
        for (unsigned i = 0; i < 8; i++) {
            all += now[i] - before[i];
            idle += i == 3 || i == 4 ? now[i] - before[i] : 0; /* idle and iowait: proc_stat(5) */
            before[i] = now[i];
        }
    if (file)
        fclose(file);
    return all && idle < all / 10;
}

bool has_time(double seconds)
{
    return now_s() + seconds < settings.end_s;
}

void sleep_s(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0)
        ;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double quantile(double *values, unsigned count, double fraction)
{
    qsort(values, count, sizeof(*values), compare_doubles);
    return values[(unsigned)((double)(count - 1) * fraction)];
}
