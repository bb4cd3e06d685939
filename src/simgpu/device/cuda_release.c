#include "simgpu/device/cuda_release.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/driver.h"

static const struct cuda_release releases[] = {
#define CUDA_RELEASE(number, branch, ptx_newest) {number, branch, ptx_newest},
#include "simgpu/device/cuda_releases.def"
};
#define RELEASES (sizeof(releases) / sizeof(releases[0]))

static const struct cuda_release *find(int number)
{
    for (size_t i = 0; i < RELEASES; i++)
        if (releases[i].number == number)
            return &releases[i];
    return NULL;
}

/* "12.4"; NULL for what is not a release of the table. */
static const struct cuda_release *parse(const char *text)
{
    int major, minor, used = 0;
    if (sscanf(text, "%2d.%1d%n", &major, &minor, &used) != 2 || text[used] != '\0')
        return NULL;
    return find(1000 * major + 10 * minor);
}

static const char *given(void)
{
    const char *text = secure_getenv("FAKECUDA_CUDA_VERSION");
    return text && *text ? text : NULL;
}

const struct cuda_release *cuda_release(void)
{
    const struct cuda_release *named = given() ? parse(given()) : NULL;
    return named ? named : find(CUDA_VERSION);
}

int cuda_release_check(const char *card, int card_since, struct error *error)
{
    const struct cuda_release *first = &releases[0], *last = &releases[RELEASES - 1], *used = cuda_release();
    if (given() && !parse(given()))
        return error_set(error, EINVAL, NULL,
                         "FAKECUDA_CUDA_VERSION is '%.20s'; set a CUDA version from %d.%d to %d.%d", given(),
                         first->number / 1000, first->number / 10 % 100, last->number / 1000,
                         last->number / 10 % 100);
    if (used->number < card_since)
        return error_set(
            error, EINVAL, NULL,
            "FAKECUDA_CUDA_VERSION is '%.20s', whose driver does not know the card '%s'; set %d.%d or later",
            given(), card, card_since / 1000, card_since / 10 % 100);
    return 0;
}
