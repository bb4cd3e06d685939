/* fidelity [--json] [--group NAME] - check each claim of the simulated GPU about the driver against the
 * libcuda.so.1 that this process finds: the simulated one, or NVIDIA's with a card. Ends with 0 if all hold,
 * 1 if one does not, 2 for wrong use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "claim.h"

struct record {
    char group[24], name[120], claimed[64], observed[64];
    bool ok;
};

static struct record *records;
static size_t record_count;
static const char *group_name;
static int record_pipe; /* from the group's process; a record is less than PIPE_BUF */
_Static_assert(sizeof(struct record) <= 512, "written as one");

/* --- In the group's process ------------------------------------------------------------------------ */

static void record(const char *name, const char *claimed, const char *observed, bool ok)
{
    struct record made = {.ok = ok};
    snprintf(made.group, sizeof(made.group), "%s", group_name);
    snprintf(made.name, sizeof(made.name), "%s", name);
    snprintf(made.claimed, sizeof(made.claimed), "%s", claimed);
    snprintf(made.observed, sizeof(made.observed), "%s", observed);
    if (write(record_pipe, &made, sizeof(made)) != (ssize_t)sizeof(made))
        _exit(3);
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
    char text[64];
    if (result == CUDA_SUCCESS)
        return;
    result_text(result, text);
    record(what, "CUDA_SUCCESS", text, false);
    _exit(0);
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

/* --- In ours --------------------------------------------------------------------------------------- */

static void record_keep(const struct record *made)
{
    struct record *grown = realloc(records, (record_count + 1) * sizeof(*records));
    if (!grown) {
        perror("fidelity");
        exit(2);
    }
    records = grown;
    records[record_count++] = *made;
}

static void group_run(const struct group *group)
{
    int ends[2];
    if (pipe(ends) < 0) {
        perror("fidelity: pipe");
        exit(2);
    }
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("fidelity: fork");
        exit(2);
    }
    if (child == 0) {
        close(ends[0]);
        record_pipe = ends[1];
        group_name = group->name;
        alarm(60); /* a call that never returns is a claim that does not hold */
        group->run();
        _exit(0);
    }
    close(ends[1]);
    struct record made;
    while (read(ends[0], &made, sizeof(made)) == (ssize_t)sizeof(made))
        record_keep(&made);
    close(ends[0]);
    int status;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    struct record died = {.name = "the group runs to its end", .claimed = "exit 0"};
    snprintf(died.group, sizeof(died.group), "%s", group->name);
    snprintf(died.observed, sizeof(died.observed), WIFSIGNALED(status) ? "signal %d" : "exit %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    record_keep(&died);
}

/* Where the claim was seen to hold, or NULL. */
static const char *verified(const char *name)
{
    static const struct {
        const char *name, *where;
    } rows[] = {
#define VERIFIED(claim, card, driver, date) {claim, card ", driver " driver ", " date},
#include "verified.def"
#undef VERIFIED
        {NULL, NULL},
    };
    for (size_t i = 0; rows[i].name; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].where;
    return NULL;
}

static void print_table(void)
{
    printf("%-12s %-72s %-38s %-38s %-4s %s\n", "GROUP", "CLAIM", "CLAIMED", "OBSERVED", "OK", "VERIFIED ON");
    size_t failed = 0;
    for (size_t i = 0; i < record_count; i++) {
        const struct record *row = &records[i];
        const char *where = verified(row->name);
        failed += !row->ok;
        printf("%-12s %-72s %-38s %-38s %-4s %s\n", row->group, row->name, row->claimed, row->observed,
               row->ok ? "yes" : "NO", where ? where : "unverified");
    }
    printf("%zu claims, %zu do not hold\n", record_count, failed);
}

static void print_json_text(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text >= ' ')
            putchar(*text);
    putchar('"');
}

static void print_json(void)
{
    static const char *const names[] = {"group", "name", "claimed", "observed"};
    puts("[");
    for (size_t i = 0; i < record_count; i++) {
        const struct record *row = &records[i];
        const char *const values[] = {row->group, row->name, row->claimed, row->observed};
        const char *where = verified(row->name);
        printf(" {");
        for (unsigned field = 0; field < 4; field++) {
            print_json_text(names[field]);
            printf(": ");
            print_json_text(values[field]);
            printf(", ");
        }
        printf("\"ok\": %s, \"verified\": ", row->ok ? "true" : "false");
        if (where)
            print_json_text(where);
        else
            printf("null");
        puts(i + 1 < record_count ? "}," : "}");
    }
    puts("]");
}

int main(int count, char **words)
{
    const struct group *const rooms[] = {groups_of_contexts, groups_of_memory, groups_of_streams,
                                          groups_of_graphs};
    const char *only = NULL;
    bool json = false, found = false;
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--json") == 0)
            json = true;
        else if (strcmp(words[i], "--group") == 0 && i + 1 < count)
            only = words[++i];
        else {
            fprintf(stderr, "usage: fidelity [--json] [--group NAME]\n");
            return 2;
        }
    }
    for (unsigned room = 0; room < sizeof(rooms) / sizeof(rooms[0]); room++)
        for (const struct group *group = rooms[room]; group->name; group++)
            if (!only || strcmp(only, group->name) == 0) {
                found = true;
                group_run(group);
            }
    if (!found) {
        fprintf(stderr, "fidelity: there is no group '%s'; leave --group out to run all\n", only);
        return 2;
    }
    if (json)
        print_json();
    else
        print_table();
    for (size_t i = 0; i < record_count; i++)
        if (!records[i].ok)
            return 1;
    return 0;
}
