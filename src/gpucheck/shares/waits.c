/* waits.c - programs that end with work in flight, and programs that wait for each other, while gates close. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpucheck/checks.h"
#include "gpucheck/part.h"
#include "gpucheck/work.h"

/* --- Exits ----------------------------------------------------------------------------------------- */

/* leave: ends like a program that returns from main, with 40 ms of work left for the GPU. */
void part_leave(const char *argument)
{
    open_context();
    for (unsigned i = 0; i < 8; i++)
        work_launch(5000, NULL);
    part_tell("leaving");
}

/* Start a session with a share, kept by a process that holds a little memory, and a rival that always wants the
 * GPU. */
static void start_company(struct part *keeper, struct part *rival)
{
    work_calibrate();
    part_start(keeper, PART_SHARE("50%..100%"), "hold", "4096");
    part_start(rival, PART_SHARE("50%..100%"), "work", "");
    part_hear(keeper);
    part_hear(rival);
    scheduler_quantum("1ms");
    part_say(rival, "%.9f %.9f", now_s(), now_s() + 3600);
}

static void end_company(struct part *keeper, struct part *rival)
{
    scheduler_quantum("auto");
    part_kill(rival);
    part_end(keeper);
}

void check_exits(const struct check *check)
{
    const unsigned most = (unsigned)scaled(150, 40), least = 20;
    struct part keeper, rival, leaver;
    double longest_s = 0;
    unsigned exits = 0;
    start_company(&keeper, &rival);
    uint64_t before = lease_handovers();
    for (; exits < most && has_time(6); exits++) {
        part_start(&leaver, PART_BESIDE(&keeper), "leave", "");
        part_hear(&leaver);
        double begin_s = now_s();
        part_end(&leaver); /* a bad end fails the check */
        longest_s = fmax(longest_s, now_s() - begin_s);
    }
    end_company(&keeper, &rival);
    figure("exits", exits, "count");
    figure("longest", longest_s * 1e3, "ms");
    if (exits < least)
        not_run("in its time %u processes ended; %u are needed to say anything", exits, least);
    tell_closings(before);
}

/* --- Ranks ----------------------------------------------------------------------------------------- */

/* The host waits for a whole batch of rounds, so that the session keeps the GPU busy and takes turns. */
enum { BATCHES = 100, ROUNDS = 8, ROUND_US = 200 };

static void submit_round(CUdeviceptr own, CUdeviceptr other, unsigned round)
{
    work_launch(ROUND_US, NULL);
    CUresult result = cuStreamWriteValue32_v2(NULL, own, round, 0);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        not_run("the driver does not support cuStreamWriteValue32 here");
    must_succeed("cuStreamWriteValue32", result);
    must(cuStreamWaitValue32_v2(NULL, other, round, 0 /* CU_STREAM_WAIT_VALUE_GEQ */));
}

/* rank NUMBER:FD: for each line, batches of rounds of work; after each round it waits for the other rank's, through a
 * word of each in the memory behind the descriptor. Answers the median, the 99th percentile and the longest round in microseconds. */
void part_rank(const char *argument)
{
    static double times[BATCHES];
    unsigned own, round = 0;
    int fd;
    CUdeviceptr words;
    if (sscanf(argument, "%u:%d", &own, &fd) != 2 || own > 1)
        fail_and_end("a part was told no rank");
    void *file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        fail_and_end("a part cannot map what the ranks share");
    open_context();
    CUresult result = cuMemHostRegister_v2(file, 4096, 2 /* CU_MEMHOSTREGISTER_DEVICEMAP */);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        not_run("the driver registers no host memory here");
    must_succeed("cuMemHostRegister", result);
    must(cuMemHostGetDevicePointer_v2(&words, file, 0));
    part_tell("ready");
    for (;;) {
        part_listen();
        for (unsigned i = 0; i < BATCHES; i++) {
            double begin_s = now_s();
            for (unsigned j = 0; j < ROUNDS; j++)
                submit_round(words + 64 * own, words + 64 * (1 - own), ++round);
            must(cuCtxSynchronize());
            times[i] = (now_s() - begin_s) / ROUNDS * 1e6;
        }
        double middle = median(times, BATCHES), late = quantile(times, BATCHES, 0.99);
        part_tell("%.1f %.1f %.1f", middle, late, times[BATCHES - 1]);
    }
}

/* Both run their rounds; reports the times of the slower one. */
static void run_ranks(struct part *ranks, const char *where)
{
    double times[2][3];
    char name[64];
    part_say(&ranks[0], "go");
    part_say(&ranks[1], "go");
    for (unsigned i = 0; i < 2; i++)
        if (sscanf(part_hear(&ranks[i]), "%lf %lf %lf", &times[i][0], &times[i][1], &times[i][2]) != 3)
            fail_and_end("its part '%s' said '%s'", ranks[i].name, ranks[i].line);
    static const char *const words[] = {"median", "p99", "longest"};
    for (unsigned i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "round_%s_%s", where, words[i]);
        figure(name, fmax(times[0][i], times[1][i]), "us");
    }
}

void check_ranks(const struct check *check)
{
    struct part keeper, rival, ranks[2];
    char argument[64];
    work_calibrate();
    int fd = memfd_create("gpu-check-ranks", 0); /* the parts inherit it */
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        fail_and_end("no memory for the ranks to share");
    part_start(&keeper, PART_SHARE("50%..100%"), "hold", "4096");
    part_hear(&keeper);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(argument, sizeof(argument), "%u:%d", i, fd);
        part_start(&ranks[i], PART_BESIDE(&keeper), "rank", argument);
    }
    part_hear(&ranks[0]);
    part_hear(&ranks[1]);
    close(fd);
    run_ranks(ranks, "alone");
    part_start(&rival, PART_SHARE("50%..100%"), "work", "");
    part_hear(&rival);
    scheduler_quantum("1ms");
    part_say(&rival, "%.9f %.9f", now_s(), now_s() + 3600);
    uint64_t before = lease_handovers();
    run_ranks(ranks, "beside");
    tell_closings(before);
    part_end(&ranks[0]);
    part_end(&ranks[1]);
    end_company(&keeper, &rival);
}
