#include "daemon/gpu/gpu.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/units.h"
#include "daemon/gpu/traits.h"
#include "daemon/loop/daemon.h"

int gpu_find_uuid(const struct daemon *daemon, const uint8_t uuid[static GPU_UUID_BYTES])
{
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        if (memcmp(daemon->gpus[i].uuid, uuid, GPU_UUID_BYTES) == 0)
            return (int)i;
    return -1;
}

static bool begins_with(const struct gpu *gpu, const char *text)
{
    size_t length = strlen(text);
    return strncasecmp(gpu->uuid_text, text, length) == 0 ||
           strncasecmp(gpu->uuid_text + strlen("GPU-"), text, length) == 0; /* or "MIG-" */
}

static int find_label(const struct daemon *daemon, const char *text, unsigned *gpu, struct error *error)
{
    const size_t length = strlen(text);
    const struct gpu *instance = NULL;
    for (unsigned i = 0; i < daemon->gpu_count; i++) {
        const char *label = daemon->gpus[i].label;
        if (strcmp(label, text) == 0) {
            *gpu = i;
            return 0;
        }
        if (strncmp(label, text, length) == 0 && label[length] == ':')
            instance = &daemon->gpus[i];
    }
    if (instance)
        return error_set(
            error, ENOENT, "ERR_GPU_NOT_FOUND",
            "GPU %s is in MIG mode; name one of its instances, like %s, as GET /v1/gpus lists them", text,
            instance->label);
    return error_set(error, ENOENT, "ERR_GPU_NOT_FOUND",
                     "there is no GPU %.40s; there are %u, counted from 0", text, daemon->gpu_count);
}

int gpu_find(const struct daemon *daemon, const char *text, unsigned *gpu, struct error *error)
{
    uint64_t index;
    /* Up to three digits are an index; more may be the start of a UUID. */
    if ((strlen(text) <= 3 && units_parse_number(text, 999, &index, NULL) == 0) || strchr(text, ':'))
        return find_label(daemon, text, gpu, error);
    unsigned count = 0;
    for (unsigned i = 0; i < daemon->gpu_count && *text; i++) {
        if (!begins_with(&daemon->gpus[i], text))
            continue;
        *gpu = i;
        count++;
    }
    if (count > 1)
        return error_set(error, EBUSY, "ERR_AMBIGUOUS",
                         "the UUIDs of %u GPUs begin with '%.80s'; give more of it", count, text);
    if (count == 0)
        return error_set(
            error, ENOENT, "ERR_GPU_NOT_FOUND",
            "'%.80s' is not a GPU; expected an index or the beginning of a UUID, as GET /v1/gpus lists them",
            text);
    return 0;
}

/* Where NVML has no figures, CUDA's size counts. A GPU that shares the host's memory has no more free than the host. */
static void take_hosts_figures(struct gpu *gpu, const struct gpu_figures *figures)
{
    gpu->total_bytes = gpu->cuda_bytes ? gpu->cuda_bytes : figures->total_bytes;
    gpu->used_bytes = figures->used_bytes;
    gpu->kept_bytes = 0;
    gpu->free_bytes = gpu->total_bytes > gpu->used_bytes ? gpu->total_bytes - gpu->used_bytes : 0;
    if (gpu_has(gpu, GPU_UNIFIED) && figures->free_bytes < gpu->free_bytes)
        gpu->free_bytes = figures->free_bytes;
}

/* NVML that has no figures is the sign by which one knows a GPU without memory of its own, until the driver has been asked. */
static void see_traits(struct gpu *gpu, const struct gpu_figures *figures)
{
    if (figures->is_hosts && !gpu->knows_traits)
        gpu->traits |= GPU_TRAIT_BIT(GPU_UNIFIED);
    bool is_plain = !figures->is_hosts || gpu_has(gpu, GPU_UNIFIED); /* NO_FIGURES says nothing new then */
    gpu->traits &= ~GPU_TRAIT_BIT(GPU_NO_FIGURES);
    gpu->traits |= is_plain ? 0 : GPU_TRAIT_BIT(GPU_NO_FIGURES);
}

void gpu_take_figures(struct gpu *gpu, const struct gpu_figures *figures)
{
    uint64_t total = figures->total_bytes, kept = figures->kept_bytes;
    gpu->figures = *figures;
    see_traits(gpu, figures);
    if (figures->is_hosts) {
        take_hosts_figures(gpu, figures);
        return;
    }
    if (gpu->cuda_bytes && gpu->cuda_bytes < total && total - gpu->cuda_bytes > kept)
        kept = total - gpu->cuda_bytes;
    kept = kept < total ? kept : 0;
    gpu->total_bytes = total - kept;
    gpu->free_bytes = figures->free_bytes;
    gpu->used_bytes = figures->used_bytes > kept ? figures->used_bytes - kept : 0;
    gpu->kept_bytes = kept;
}

void gpu_take_cuda_bytes(struct gpu *gpu, uint64_t bytes)
{
    const struct gpu_figures figures = gpu->figures;
    gpu->cuda_bytes = bytes;
    gpu_take_figures(gpu, &figures);
}

void gpu_take_traits(struct gpu *gpu, uint32_t traits)
{
    const struct gpu_figures figures = gpu->figures;
    gpu->traits = traits;
    gpu->knows_traits = true;
    gpu_take_figures(gpu, &figures);
}
