/* samples.h - what is kept of how much was used, and how it is written down. Pure: no clock, no file.
 *
 * series   one session on one of its GPUs, or one GPU as a whole; has a number in the history's file
 * sample   what one series did in one tick
 * tick     a stretch of time, and the samples of all series in it that were not nothing, as one row of bytes
 * level    ticks of one length: a second, ten, a minute */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum samples_level { SAMPLES_SECONDS, SAMPLES_TENS, SAMPLES_MINUTES, SAMPLES_LEVELS };

/* The length of a tick, and for how long ticks of the level are kept. */
struct samples_level_times {
    uint32_t step_seconds, kept_seconds;
};
extern const struct samples_level_times samples_levels[SAMPLES_LEVELS];

/* `*_ns` and `refused` are of the tick alone. */
struct sample {
    uint64_t used_bytes; /* on the average over the tick */
    uint64_t peak_bytes; /* the most in it; not below used_bytes */
    uint64_t gpu_ns;     /* of the GPU's time, as the arbiter measured it; of a GPU, as NVML shows it */
    uint64_t nvml_ns;    /* the same as NVML shows it, while nothing else measured it */
    uint64_t waited_ns;  /* at gates, over all threads */
    uint64_t refused;    /* requests for memory */
    uint32_t processes;  /* at most */
    uint32_t series;
};

bool sample_is_nothing(const struct sample *sample);

/* Samples of one series that become one of a longer tick. */
struct sample_sum {
    uint64_t length;
    unsigned __int128 byte_length;
    struct sample sum; /* all but used_bytes */
};

/* `length` is that of the tick that `sample` is of, in any unit. */
void sample_sum_add(struct sample_sum *sum, const struct sample *sample, uint64_t length);
/* The sample that they make, and an empty sum again. */
struct sample sample_sum_take(struct sample_sum *sum, uint32_t series);

/* A row of bytes that grows. */
struct sample_bytes {
    uint8_t *bytes;
    size_t length, room;
};

/* Write one more sample at the end. False without memory, with the row as it was. */
bool samples_write(struct sample_bytes *row, const struct sample *sample);

/* Read the sample at `*at` and move on. False at the end, and where what is there is no sample. */
bool samples_read(const uint8_t *bytes, size_t length, size_t *at, struct sample *sample);
