/* claims.c - runs a group in a process of its own, and passes its records to ours. */
#include "gpucheck/claims/claims.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GROUP_S 20 /* a call that never returns ends its group alone, and leaves the others their time */

static const char *group_name;
static int record_pipe; /* from the group's process */
_Static_assert(sizeof(struct claim_record) <= 512, "written as one");

const struct group *const claim_rooms[] = {groups_of_contexts, groups_of_memory, groups_of_streams,
                                           groups_of_graphs, NULL};

/* --- In the group's process ------------------------------------------------------------------------ */

static void pass_on(const struct claim_record *made)
{
    if (write(record_pipe, made, sizeof(*made)) != (ssize_t)sizeof(*made))
        _exit(3);
}

static void record(const char *name, const char *claimed, const char *observed, bool ok)
{
    struct claim_record made = {.ok = ok};
    snprintf(made.group, sizeof(made.group), "%s", group_name);
    snprintf(made.name, sizeof(made.name), "%s", name);
    snprintf(made.claimed, sizeof(made.claimed), "%s", claimed);
    snprintf(made.observed, sizeof(made.observed), "%s", observed);
    pass_on(&made);
}

static void result_text(CUresult result, char text[static 64])
{
    const char *name = NULL;
    if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
        snprintf(text, 64, "%s", name);
    else
        snprintf(text, 64, "%d", (int)result);
}

void claim_result(const char *name, CUresult claimed, CUresult observed)
{
    char claimed_text[64], observed_text[64];
    result_text(claimed, claimed_text);
    result_text(observed, observed_text);
    record(name, claimed_text, observed_text, claimed == observed);
}

void claim_number(const char *name, uint64_t claimed, uint64_t observed)
{
    char claimed_text[64], observed_text[64];
    snprintf(claimed_text, sizeof(claimed_text), "%llu", (unsigned long long)claimed);
    snprintf(observed_text, sizeof(observed_text), "%llu", (unsigned long long)observed);
    record(name, claimed_text, observed_text, claimed == observed);
}

void claim_true(const char *name, const char *claimed, bool observed)
{
    record(name, claimed, observed ? "so" : "not so", observed);
}

void need(const char *what, CUresult result)
{
    struct claim_record made = {.claimed = "CUDA_SUCCESS", .ends_group = true};
    if (result == CUDA_SUCCESS)
        return;
    snprintf(made.group, sizeof(made.group), "%s", group_name);
    snprintf(made.name, sizeof(made.name), "%.60s, which the group %s needs", what, group_name);
    result_text(result, made.observed);
    pass_on(&made);
    _exit(0);
}

bool driver_is_since(int version)
{
    int own = 0;
    need("cuDriverGetVersion", cuDriverGetVersion(&own));
    return own >= version;
}

CUcontext need_context(void)
{
    CUcontext context;
    need("cuInit", cuInit(0));
    need("cuCtxCreate_v2", cuCtxCreate_v2(&context, 0, 0));
    return context;
}

CUfunction need_store_kernel(void)
{
    static const char ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry gs_fill_u32(.param .u64 address, .param .u32 value, .param .u64 "
        "count)\n{\n.reg .u64 %rd<2>;\n.reg .u32 %r<2>;\n"
        "ld.param.u64 %rd1, [address];\nld.param.u32 %r1, [value];\n"
        "st.global.u32 [%rd1], %r1;\nret;\n}\n";
    CUmodule module;
    CUfunction function;
    need("cuModuleLoadData", cuModuleLoadData(&module, ptx));
    need("cuModuleGetFunction", cuModuleGetFunction(&function, module, "gs_fill_u32"));
    return function;
}

static void gate_wait(void *argument)
{
    struct gate *gate = argument;
    while (!gate->is_open)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

void gate_close(struct gate *gate, CUstream stream)
{
    gate->is_open = 0;
    need("cuLaunchHostFunc", cuLaunchHostFunc(stream, gate_wait, gate));
}

void gate_open(struct gate *gate)
{
    gate->is_open = 1;
}

/* --- In our process ------------------------------------------------------------------------------- */

bool claims_run(const struct group *group, void (*keep)(const struct claim_record *record))
{
    int ends[2];
    if (pipe(ends) < 0)
        return false;
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return false;
    }
    if (child == 0) {
        close(ends[0]);
        record_pipe = ends[1];
        group_name = group->name;
        alarm(GROUP_S);
        group->run();
        _exit(0);
    }
    close(ends[1]);
    struct claim_record made;
    while (read(ends[0], &made, sizeof(made)) == (ssize_t)sizeof(made))
        keep(&made);
    close(ends[0]);
    int status;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    struct claim_record died = {.claimed = "exit 0", .ends_group = true};
    snprintf(died.name, sizeof(died.name), "the group %s runs to its end", group->name);
    snprintf(died.group, sizeof(died.group), "%s", group->name);
    snprintf(died.observed, sizeof(died.observed), WIFSIGNALED(status) ? "signal %d" : "exit %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    keep(&died);
    return true;
}
