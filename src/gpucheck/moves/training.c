/* training.c - a training whose session leaves the card in the middle of steps. Its losses and weights must be the
 * same bits as without that: for a program of our own, and for PyTorch.
 *
 * A training is a part. It answers "step" with "begin" when it begins a step, with "back" when the backward pass
 * begins, and at the end with the loss and the moments of all three by CLOCK_MONOTONIC. To "state" it answers a
 * checksum of its weights. When it is ready it says how many bytes it has on the card. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/moves/moves.h"
#include "gpucheck/part.h"
#include "gpucheck/python.h"

#define LOSS_CHARS 40

/* --- A program of our own ---------------------------------------------------------------------------- */

#define LAYERS 16
#define LAYER_US 2000 /* time on the GPU */

static struct {
    uint64_t layer_bytes;
    CUdeviceptr weights[LAYERS], values[LAYERS + 1], sum;
    CUfunction saxpy, spin, checksum;
} net;

static void launch(CUfunction kernel, void **parameters)
{
    must(cuLaunchKernel(kernel, 64, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL));
}

static void add_scaled(float factor, CUdeviceptr from, CUdeviceptr to)
{
    uint64_t count = net.layer_bytes / sizeof(float);
    launch(net.saxpy, (void *[]){&count, &factor, &from, &to});
}

/* A layer of numbers from 0 to 1, different from every other layer. */
static CUdeviceptr make_layer(float *numbers, uint32_t *state)
{
    CUdeviceptr layer;
    for (uint64_t i = 0; i < net.layer_bytes / sizeof(float); i++) {
        *state = *state * 1664525 + 1013904223;
        numbers[i] = (float)(*state >> 8) / (float)(1 << 24);
    }
    must(cuMemAlloc_v2(&layer, net.layer_bytes));
    must(cuMemcpyHtoD_v2(layer, numbers, net.layer_bytes));
    return layer;
}

static void make_net(void)
{
    uint32_t state = 7;
    net.layer_bytes = scaled(32 * MIB, MIB);
    net.saxpy = load_kernel("gs_saxpy_f32");
    net.spin = load_kernel("gs_spin_us");
    net.checksum = load_kernel("gs_checksum_u32");
    float *numbers = malloc(net.layer_bytes);
    if (!numbers)
        not_run("no host memory");
    must(cuMemAlloc_v2(&net.sum, sizeof(uint32_t)));
    for (unsigned i = 0; i < LAYERS; i++)
        net.weights[i] = make_layer(numbers, &state);
    for (unsigned i = 0; i < LAYERS + 1; i++)
        net.values[i] = make_layer(numbers, &state);
    free(numbers);
}

/* The host waits for each layer, like programs that launch little at a time, so it is in the middle of a step when
 * memory leaves. */
static void wait_layer(void)
{
    uint64_t microseconds = LAYER_US;
    must(cuLaunchKernel(net.spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&microseconds}, NULL));
    must(cuCtxSynchronize());
}

static void go_forward(void)
{
    for (unsigned i = 0; i < LAYERS; i++) {
        add_scaled(0.03125f, net.values[i], net.values[i + 1]);
        add_scaled(0.0625f, net.weights[i], net.values[i + 1]);
        wait_layer();
    }
}

static void go_back(void)
{
    for (unsigned i = LAYERS; i > 0; i--) {
        add_scaled(-0.015625f, net.values[i], net.weights[i - 1]);
        add_scaled(-0.0625f, net.weights[i - 1], net.values[i - 1]);
        wait_layer();
    }
}

static uint32_t add_up(CUdeviceptr layer, uint32_t sum)
{
    uint64_t count = net.layer_bytes / sizeof(float);
    must(cuMemcpyHtoD_v2(net.sum, &sum, sizeof(sum)));
    launch(net.checksum, (void *[]){&layer, &count, &net.sum});
    must(cuMemcpyDtoH_v2(&sum, net.sum, sizeof(sum)));
    return sum;
}

/* training: as above; its argument is not used. */
void part_training(const char *argument)
{
    (void)argument;
    open_context();
    make_net();
    part_tell("ready %llu", (unsigned long long)((2 * LAYERS + 1) * net.layer_bytes));
    for (;;) {
        if (strcmp(part_listen(), "step") == 0) {
            double begin_s = now_s();
            part_tell("begin");
            go_forward();
            double back_s = now_s();
            part_tell("back");
            go_back();
            uint32_t loss = add_up(net.values[LAYERS], 0);
            part_tell("%08x %.6f %.6f %.6f", loss, begin_s, back_s, now_s());
        } else {
            uint32_t sum = 0;
            for (unsigned i = 0; i < LAYERS; i++)
                sum = add_up(net.weights[i], sum * 31);
            part_tell("%08x", sum);
        }
    }
}

/* --- The checks -------------------------------------------------------------------------------------- */

#define STEPS_MOST 40
#define UNDISTURBED 2 /* steps that show how long one takes; the first one loads code */
/* steps in which it must leave on the forward pass, and as many on the backward pass */
#define HITS_LEAST scaled(3, 1)

struct step {
    char loss[LOSS_CHARS];
    double begin_s, back_s, end_s;
};

static void take_step(struct part *training, struct step *step,
                      void (*meanwhile)(struct part *training, bool is_back))
{
    part_say(training, "step");
    for (unsigned way = 0; way < 2; way++) {
        part_hear(training); /* until it begins this pass */
        if (meanwhile)
            meanwhile(training, way);
    }
    if (sscanf(part_hear(training), "%39s %lf %lf %lf", step->loss, &step->begin_s, &step->back_s,
               &step->end_s) != 4)
        fail_and_end("the training says '%s'", training->line);
}

/* The length of each pass of a step, the pass on which the session is to leave, when it left, and how much. */
static struct {
    double way_s[2], lag_s, told_s, until_s;
    bool is_aimed_back;
    uint64_t least_bytes; /* what it has on the card, so that much has to leave */
} aim;

static void leave_and_return(struct part *training, bool is_back)
{
    double moment_s = drand48() * aim.way_s[is_back];
    if (is_back != aim.is_aimed_back)
        return;
    sleep_s(moment_s > aim.lag_s ? moment_s - aim.lag_s : 0);
    aim.told_s = now_s();
    aim.until_s = moves_suspend(training->session, aim.least_bytes).end_s;
    moves_resume(training->session);
    aim.lag_s = (aim.until_s - aim.told_s) / 2; /* the gate closes first, and then the memory leaves */
}

/* In the session: it leaves in the middle of steps, on the forward or the backward pass, until each was hit often
 * enough. `steps` gets the losses of all steps; returns how many there were. */
static unsigned train_disturbed(struct part *training, struct step *steps)
{
    unsigned count = 0, met[2] = {0, 0};
    for (; count < UNDISTURBED; count++)
        take_step(training, &steps[count], NULL);
    aim.way_s[false] = steps[count - 1].back_s - steps[count - 1].begin_s;
    aim.way_s[true] = steps[count - 1].end_s - steps[count - 1].back_s;
    struct moved first =
        moves_suspend(training->session, aim.least_bytes); /* host memory must be made first */
    moves_resume(training->session);
    figure("left", (double)first.bytes, "bytes");
    srand48((long)(fmod(now_s(), 1e3) * 1e6));
    for (; count < STEPS_MOST && (met[false] < HITS_LEAST || met[true] < HITS_LEAST); count++) {
        aim.is_aimed_back = met[true] < met[false];
        take_step(training, &steps[count], leave_and_return);
        met[aim.is_aimed_back] +=
            aim.until_s < (aim.is_aimed_back ? steps[count].end_s : steps[count].back_s);
    }
    figure("suspensions", count - UNDISTURBED, "count");
    figure("in_the_middle_of_the_way_there", met[false], "count");
    figure("in_the_middle_of_the_way_back", met[true], "count");
    figure("step", (aim.way_s[false] + aim.way_s[true]) * 1e3, "ms");
    if (met[false] < HITS_LEAST || met[true] < HITS_LEAST)
        fail("in %u steps it left %u times on the way there, and %u times on the way back", count, met[false],
             met[true]);
    return count;
}

static void compare(struct part *undisturbed, struct part *disturbed, const struct step *steps,
                    unsigned count)
{
    char state[LOSS_CHARS];
    for (unsigned i = 0; i < count; i++) {
        struct step step;
        take_step(undisturbed, &step, NULL);
        if (strcmp(step.loss, steps[i].loss) != 0)
            fail("the loss of step %u is %s, and undisturbed %s", i + 1, steps[i].loss, step.loss);
    }
    part_say(disturbed, "state");
    snprintf(state, sizeof(state), "%.39s", part_hear(disturbed));
    part_say(undisturbed, "state");
    if (strcmp(part_hear(undisturbed), state) != 0)
        fail("the weights are %s, and undisturbed %s", state, undisturbed->line);
    figure("steps", count, "count");
    figure_text("last_loss", "%s", steps[count - 1].loss);
}

/* Hear "ready" and how many bytes it has, or "not-run" and the reason. Returns the bytes. */
static uint64_t hear_ready(struct part *training, bool in_session)
{
    static const char no[] = "not-run ";
    unsigned long long bytes;
    const char *line = part_hear(training);
    if (sscanf(line, "ready %llu", &bytes) == 1)
        return bytes;
    if (strncmp(line, no, strlen(no)) != 0)
        fail_and_end("the training says '%s'", line);
    if (in_session)
        fail_and_end("outside it runs, and in the session not: %s", line + strlen(no));
    not_run("%s", line + strlen(no));
}

static void train_both(struct part *undisturbed, struct part *disturbed)
{
    static struct step steps[STEPS_MOST];
    unsigned count = train_disturbed(disturbed, steps);
    compare(undisturbed, disturbed, steps, count);
    part_end(disturbed);
    part_end(undisturbed);
}

void check_moves_training(const struct check *check)
{
    struct part undisturbed, disturbed;
    (void)check;
    part_start(&undisturbed, PART_OUTSIDE, "training", "");
    hear_ready(&undisturbed, false);
    part_start(&disturbed, PART_MOVES(4 * GIB), "training", "");
    aim.least_bytes = hear_ready(&disturbed, true);
    train_both(&undisturbed, &disturbed);
}

void check_torch_moves(const struct check *check)
{
    struct part undisturbed, disturbed;
    char script[PATH_MAX];
    (void)check;
    need_python();
    find_script("torch_moves", script);
    const char *const words[] = {"python3", script, NULL};
    part_start_program(&undisturbed, PART_OUTSIDE, words);
    hear_ready(&undisturbed, false);
    part_start_program(&disturbed, PART_MOVES(4 * GIB), words);
    aim.least_bytes = hear_ready(&disturbed, true);
    train_both(&undisturbed, &disturbed);
}

void check_torch_moves_expandable(const struct check *check)
{
    use_expandable_segments();
    check_torch_moves(check);
}
