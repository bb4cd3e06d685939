#include "daemon/history/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/saturating.h"

#define HOUR_SECONDS 3600u
#define DAY_SECONDS 86400u
#define NUMBER_BYTES_MAX 10 /* 64 bits, seven per byte */
#define NUMBERS 8           /* per sample */

const struct samples_level_times samples_levels[SAMPLES_LEVELS] = {
    [SAMPLES_SECONDS] = {1, HOUR_SECONDS},
    [SAMPLES_TENS] = {10, DAY_SECONDS},
    [SAMPLES_MINUTES] = {60, UINT32_MAX},
};

bool sample_is_valid(const struct sample *sample)
{
    return sample->used_bytes <= sample->peak_bytes;
}

bool sample_is_nothing(const struct sample *sample)
{
    return sample->peak_bytes == 0 && sample->gpu_ns == 0 && sample->nvml_ns == 0 && sample->waited_ns == 0 &&
           sample->refused == 0 && sample->processes == 0;
}

/* --- Sums ------------------------------------------------------------------------------------------ */

void sample_sum_add(struct sample_sum *sum, const struct sample *sample, uint64_t length)
{
    GS_CHECK(sample_is_valid(sample));
    struct sample *all = &sum->sum;
    sum->length += length;
    sum->byte_length += (unsigned __int128)sample->used_bytes * length;
    if (sample->peak_bytes > all->peak_bytes)
        all->peak_bytes = sample->peak_bytes;
    if (sample->processes > all->processes)
        all->processes = sample->processes;
    all->gpu_ns = saturating_add(all->gpu_ns, sample->gpu_ns);
    all->nvml_ns = saturating_add(all->nvml_ns, sample->nvml_ns);
    all->waited_ns = saturating_add(all->waited_ns, sample->waited_ns);
    all->refused = saturating_add(all->refused, sample->refused);
}

struct sample sample_sum_take(struct sample_sum *sum, uint32_t series)
{
    struct sample whole = sum->sum;
    whole.series = series;
    whole.used_bytes = sum->length ? (uint64_t)(sum->byte_length / sum->length) : 0;
    *sum = (struct sample_sum){0};
    GS_CHECK(sample_is_valid(&whole));
    return whole;
}

/* --- Bytes ----------------------------------------------------------------------------------------- */

/* Seven bits per byte, the lowest first; the highest bit of a byte says that more follow. */
static size_t write_number(uint8_t *bytes, uint64_t number)
{
    size_t length = 0;
    for (; number >= 0x80; number >>= 7)
        bytes[length++] = (uint8_t)(number | 0x80);
    bytes[length++] = (uint8_t)number;
    return length;
}

static bool read_number(const uint8_t *bytes, size_t length, size_t *at, uint64_t *number)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < NUMBER_BYTES_MAX && *at < length; i++) {
        uint8_t byte = bytes[(*at)++];
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) {
            *number = value;
            return true;
        }
    }
    return false;
}

bool samples_write(struct sample_bytes *row, const struct sample *sample)
{
    GS_CHECK(sample_is_valid(sample) && row->length <= row->room);
    const uint64_t numbers[NUMBERS] = {
        sample->series,  sample->used_bytes, sample->peak_bytes - sample->used_bytes,
        sample->gpu_ns,  sample->nvml_ns,    sample->waited_ns,
        sample->refused, sample->processes};
    if (row->room - row->length < NUMBERS * NUMBER_BYTES_MAX) {
        size_t room = 2 * row->room + NUMBERS * NUMBER_BYTES_MAX;
        uint8_t *bytes = realloc(row->bytes, room);
        if (!bytes)
            return false;
        row->bytes = bytes;
        row->room = room;
    }
    for (unsigned i = 0; i < NUMBERS; i++)
        row->length += write_number(row->bytes + row->length, numbers[i]);
    return true;
}

bool samples_read(const uint8_t *bytes, size_t length, size_t *at, struct sample *sample)
{
    uint64_t numbers[NUMBERS];
    for (unsigned i = 0; i < NUMBERS; i++)
        if (!read_number(bytes, length, at, &numbers[i]))
            return false;
    if (numbers[0] > UINT32_MAX || numbers[7] > UINT32_MAX)
        return false;
    *sample = (struct sample){
        .series = (uint32_t)numbers[0],
        .used_bytes = numbers[1],
        .peak_bytes = saturating_add(numbers[1], numbers[2]),
        .gpu_ns = numbers[3],
        .nvml_ns = numbers[4],
        .waited_ns = numbers[5],
        .refused = numbers[6],
        .processes = (uint32_t)numbers[7],
    };
    return true;
}
