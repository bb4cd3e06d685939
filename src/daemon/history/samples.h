/* samples.h - what is kept of how much was used, and how it is written down. Pure: no clock, no file.
 *
 * series   one session on one of its GPUs, or one GPU as a whole; it has a number in the history's file
 * sample   what one series did in one tick
 * tick     a stretch of time, with the samples of all series that did anything in it, as one row of bytes
 * level    ticks of one length: a second, ten seconds, a minute */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum samples_level { SAMPLES_SECONDS, SAMPLES_TENS, SAMPLES_MINUTES, SAMPLES_LEVELS };

/* The length of a level's ticks, and for how long they are kept; UINT32_MAX: as long as anything is. */
struct samples_level_times {
    uint32_t step_seconds, kept_seconds;
};
extern const struct samples_level_times samples_levels[SAMPLES_LEVELS];

/* `*_ns` and `refused` count within the tick alone. */
struct sample {
    uint64_t used_bytes; /* the average over the tick */
    uint64_t peak_bytes; /* the most within the tick; not below used_bytes */
    uint64_t gpu_ns;     /* GPU time, as the arbiter measured it; of a whole GPU, as NVML shows it */
    uint64_t nvml_ns;    /* GPU time as NVML shows it, while nothing else measures it */
    uint64_t waited_ns;  /* at gates, over all threads; in the queue; and for room on the card */
    uint64_t refused;    /* requests for memory that were refused */
    uint32_t processes;  /* the most at a time */
    uint32_t series;
};

/* Whether the peak is not below the average. */
bool sample_is_valid(const struct sample *sample);
bool sample_is_nothing(const struct sample *sample);

/* Samples of one series that are being added up to one of a longer tick. */
struct sample_sum {
    uint64_t length;
    unsigned __int128 byte_length;
    struct sample sum; /* all but used_bytes */
};

/* `length` is the length of the sample's tick, in any unit that the caller keeps to. */
void sample_sum_add(struct sample_sum *sum, const struct sample *sample, uint64_t length);
/* The sum as one sample; empties the sum. */
struct sample sample_sum_take(struct sample_sum *sum, uint32_t series);

/* A row of bytes that grows. */
struct sample_bytes {
    uint8_t *bytes;
    size_t length, room;
};

/* Add a sample at the end. False without memory; the row is then unchanged. */
bool samples_write(struct sample_bytes *row, const struct sample *sample);

/* Read the sample at `*at` and move on. False at the end, and where the bytes are not a sample. */
bool samples_read(const uint8_t *bytes, size_t length, size_t *at, struct sample *sample);
