/* programs.c - other people's programs in a session: nvidia-smi, programs built by nvcc, and Python's frameworks,
 * if they are installed. On a simulated GPU the frameworks' scripts report that NVIDIA's runtime library does not
 * run there. */
#include "gpucheck/python.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/paths.h"
#include "gpucheck/checks.h"
#include "gpucheck/nvml.h"
#include "gpucheck/part.h"

#define OUTPUT_BYTES 16384

static void must_end_well(const char *what, int status, const char *output)
{
    if (WIFSIGNALED(status))
        fail_and_end("%s was ended by signal %d: %s", what, WTERMSIG(status), output);
    if (WEXITSTATUS(status) != 0)
        fail_and_end("%s ended with status %d: %s", what, WEXITSTATUS(status), output);
}

void check_nvidia_smi(const struct check *check)
{
    static char output[OUTPUT_BYTES];
    if (settings.simulated)
        not_run("it speaks to NVIDIA's kernel module, which the simulated GPU is not");
    if (!is_in_path("nvidia-smi"))
        not_run("nvidia-smi is not installed");
    if (nvml_is_instance())
        not_run("it tells the memory of whole GPUs, and this is a MIG instance");
    /* CUDA_VISIBLE_DEVICES means nothing to it. */
    char *words[] = {
        "nvidia-smi", "-i", (char *)nvml_uuid(), "--query-gpu=memory.total", "--format=csv,noheader,nounits",
        NULL};
    int status = program_run(words, CHECK_QUOTA_BYTES, false, output, sizeof(output));
    must_end_well("nvidia-smi", status, output);
    figure("memory_total", strtod(output, NULL), "MiB");
    if (strtod(output, NULL) != (double)(CHECK_QUOTA_BYTES / MIB))
        fail("in a session of %llu MiB it shows %s", (unsigned long long)(CHECK_QUOTA_BYTES / MIB), output);
}

/* --- Python ---------------------------------------------------------------------------------------- */

/* A script prints "figure NAME VALUE UNIT", "text NAME TEXT", "same NAME TEXT" (which must be equal inside and
 * outside), "failed REASON", "not-run REASON"; any other line comes from the framework. */
static void read_words(bool in_session, char *output, char *same, size_t same_bytes)
{
    char name[81], unit[21], *rest = NULL;
    double value;
    int used;
    same[0] = '\0';
    for (char *line = strtok_r(output, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "same ", 5) == 0)
            strncat(same, line, same_bytes - strlen(same) - 1);
        else if (strncmp(line, "failed ", 7) == 0)
            fail("%s%s", line + 7, in_session ? "" : " (outside)");
        else if (strncmp(line, "not-run ", 8) == 0 && in_session)
            fail("outside it runs, and in the session not: %s", line + 8);
        else if (strncmp(line, "not-run ", 8) == 0)
            not_run("%s", line + 8);
        else if (in_session && sscanf(line, "figure %80s %lf %20s", name, &value, unit) == 3)
            figure(name, value, unit);
        else if (in_session && sscanf(line, "text %80s %n", name, &used) == 1)
            figure_text(name, "%s", line + used);
    }
}

/* The part of a program's output that says why it failed. */
static const char *end_of(const char *output)
{
    const size_t most = 600;
    size_t length = strlen(output);
    return length > most ? output + length - most : output;
}

/* Run it outside, which shows whether the framework is installed, and then in a session of `quota_bytes`, without the
 * variable `without` if that is one. */
static void run_script(const char *name, uint64_t quota_bytes, const char *without)
{
    static char output[OUTPUT_BYTES], inside[OUTPUT_BYTES], outside[OUTPUT_BYTES];
    char script[PATH_MAX], quota[32];
    find_script(name, script);
    snprintf(quota, sizeof(quota), "%llu", (unsigned long long)quota_bytes);
    char *in_words[] = {"python3", script, quota, NULL}, *out_words[] = {"python3", script, NULL};
    int status = program_run(out_words, 0, true, output, sizeof(output));
    must_end_well("the script outside", status, end_of(output));
    read_words(false, output, outside, sizeof(outside));
    if (without)
        unsetenv(without);
    status = program_run(in_words, quota_bytes, true, output, sizeof(output));
    must_end_well("the script in the session", status, end_of(output));
    read_words(true, output, inside, sizeof(inside));
    if (!inside[0] || strcmp(inside, outside) != 0)
        fail("inside and outside differ: '%.300s' and '%.300s'", inside, outside);
}

#define FRAMEWORK_QUOTA_BYTES (4 * GIB)

void check_torch(const struct check *check)
{
    need_python();
    run_script("torch", FRAMEWORK_QUOTA_BYTES, NULL);
}

void check_torch_expandable(const struct check *check)
{
    use_expandable_segments();
    check_torch(check);
}

#define JAX_TAKES_AHEAD "XLA_PYTHON_CLIENT_PREALLOCATE"

void check_jax(const struct check *check)
{
    need_python();
    setenv(JAX_TAKES_AHEAD, "false", 1);
    run_script("jax", FRAMEWORK_QUOTA_BYTES, NULL);
}

/* In the session JAX takes three quarters of what it sees, as it does where nobody sets anything. Outside it would take
 * that of the whole card. */
void check_jax_defaults(const struct check *check)
{
    need_python();
    setenv(JAX_TAKES_AHEAD, "false", 1);
    run_script("jax", FRAMEWORK_QUOTA_BYTES, JAX_TAKES_AHEAD);
}

void check_cupy(const struct check *check)
{
    need_python();
    run_script("cupy", FRAMEWORK_QUOTA_BYTES, NULL);
}

/* --- A sanitizer ----------------------------------------------------------------------------------- */

/* sanitized: allocates, copies, launches and frees, and gives back what it took. */
void part_sanitized(const char *argument)
{
    CUdeviceptr memory;
    uint32_t value = 7, seen = 0;
    uint64_t count = 1024;
    open_context();
    must(cuMemAlloc_v2(&memory, count * sizeof(value)));
    void *parameters[] = {&memory, &value, &count};
    must(cuLaunchKernel(load_kernel("gs_fill_u32"), 4, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    must(cuMemcpyDtoH_v2(&seen, memory + (count - 1) * sizeof(value), sizeof(seen)));
    must(cuMemFree_v2(memory));
    if (seen != value)
        fail("the kernel wrote %u where it writes %u", seen, value);
    puts("sanitized");
}

/* NVIDIA's tool for wrong accesses hooks the driver itself, so it has to get along with the interceptor. */
void check_sanitizer(const struct check *check)
{
    static char output[OUTPUT_BYTES];
    char self[PATH_MAX];
    char *tool =
        is_in_path("compute-sanitizer") ? "compute-sanitizer" : "/usr/local/cuda/bin/compute-sanitizer";
    if (settings.simulated)
        not_run("it speaks to NVIDIA's kernel module, which the simulated GPU is not");
    if (tool[0] == '/' && access(tool, X_OK) != 0)
        not_run("compute-sanitizer is not installed");
    find_program("gpu-check", self);
    char *words[] = {tool, "--error-exitcode", "9", self, "--part", "sanitized", NULL};
    if (program_run(words, 0, true, output, sizeof(output)) != 0 || !strstr(output, "sanitized\n"))
        not_run("it does not run here outside of sessions: %s", end_of(output));
    int status = program_run(words, CHECK_QUOTA_BYTES, true, output, sizeof(output));
    must_end_well("the sanitized program", status, end_of(output));
    if (!strstr(output, "sanitized\n"))
        fail("in a session the program does not come to its end: %s", end_of(output));
}

/* --- nvcc ------------------------------------------------------------------------------------------ */

/* Prints what the runtime says in a session: the total, and the answer to a request for the whole total. The
 * simulated GPU knows its kernel by name. */
static const char runtime_source[] =
    "#include <cstdio>\n#include <cuda_runtime.h>\n"
    "extern \"C\" __global__ void gs_fill_u32(unsigned *x, unsigned value, unsigned long long count)\n"
    "{ if (count) *x = value; }\n"
    "int main() {\n"
    "    size_t free_bytes = 0, total = 0; unsigned *x = nullptr, y = 21; void *more = nullptr;\n"
    "    cudaError_t error = cudaMemGetInfo(&free_bytes, &total);\n"
    "    if (!error) error = cudaMalloc(&x, sizeof(*x));\n"
    "    if (!error) error = cudaMemcpy(x, &y, sizeof(y), cudaMemcpyHostToDevice);\n"
    "    gs_fill_u32<<<1, 1>>>(x, 42, 1);\n"
    "    if (!error) error = cudaMemcpy(&y, x, sizeof(y), cudaMemcpyDeviceToHost);\n"
    "    std::printf(\"%d %u %zu %d\\n\", (int)error, y, total, (int)cudaMalloc(&more, total));\n"
    "    return 0;\n}\n";

static void run_runtime(const char *kind)
{
    static char output[OUTPUT_BYTES];
    char folder[64], source[80], program[80], cudart[32];
    const char *tmp = getenv("TMPDIR"); /* the runner's own folder, which is removed with everything in it */
    char *nvcc = is_in_path("nvcc") ? "nvcc" : "/usr/local/cuda/bin/nvcc";
    int error = -1, value = 0, refused = 0;
    size_t total = 0;
    if (access(nvcc, X_OK) != 0 && nvcc[0] == '/')
        not_run("nvcc is not installed");
    snprintf(folder, sizeof(folder), "%.40s/nvcc-XXXXXX", tmp);
    if (!mkdtemp(folder))
        not_run("cannot make a folder in %s", tmp);
    snprintf(source, sizeof(source), "%s/runtime.cu", folder);
    snprintf(program, sizeof(program), "%s/runtime", folder);
    snprintf(cudart, sizeof(cudart), "--cudart=%s", kind);
    FILE *file = fopen(source, "w");
    if (!file || fputs(runtime_source, file) < 0 || fclose(file) != 0)
        not_run("cannot write %s", source);
    char *compile[] = {nvcc, cudart, "-arch=native", "-o", program, source, NULL};
    if (settings.simulated)
        compile[2] = "-arch=sm_80";
    if (program_run(compile, 0, true, output, sizeof(output)) != 0)
        not_run("nvcc does not compile here: %s", end_of(output));
    /* The runtime may not be in the programs' search path, or be newer than the driver. */
    if (program_run((char *[]){program, NULL}, 0, true, output, sizeof(output)) != 0 ||
        sscanf(output, "%d", &error) != 1 || error)
        not_run("what nvcc builds does not run here outside of sessions: %s", end_of(output));
    must_end_well("the program",
                  program_run((char *[]){program, NULL}, CHECK_QUOTA_BYTES, false, output, sizeof(output)),
                  output);
    if (sscanf(output, "%d %d %zu %d", &error, &value, &total, &refused) != 4)
        fail_and_end("the program said: %s", output);
    figure("cudaMemGetInfo_total", (double)total, "bytes");
    if (error)
        fail("the runtime's first calls answered %d", error);
    if (value != 42)
        fail("its kernel wrote %d where it writes 42", value);
    if (total != CHECK_QUOTA_BYTES)
        fail("in a session of %llu bytes cudaMemGetInfo says %zu", (unsigned long long)CHECK_QUOTA_BYTES,
             total);
    if (refused != 2 /* cudaErrorMemoryAllocation */)
        fail("cudaMalloc of the whole quota answered %d", refused);
}

void check_cudart_static(const struct check *check)
{
    if (settings.simulated)
        not_run("NVIDIA's runtime library refuses a simulated driver");
    run_runtime("static");
}

void check_cudart_shared(const struct check *check)
{
    run_runtime("shared");
}
