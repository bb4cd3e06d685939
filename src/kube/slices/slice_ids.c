#include "kube/slices/slice_ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session_fields.h"

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* FNV-1a */
#define HASH_START UINT64_C(14695981039346656037)

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (;; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
        if (!*text)
            return hash;
    }
}

void slices_session_name(const char *const *ids, size_t count, char name[static SLICES_NAME_TEXT])
{
    const char **sorted = calloc(count + 1, sizeof(*sorted));
    uint64_t hash = HASH_START;
    for (size_t i = 0; sorted && i < count; i++)
        sorted[i] = ids[i];
    if (sorted)
        qsort(sorted, count, sizeof(*sorted), compare_texts);
    for (size_t i = 0; sorted && i < count; i++)
        hash = hash_text(hash, sorted[i]);
    free(sorted);
    snprintf(name, SLICES_NAME_TEXT, SLICES_PREFIX "%016llx", (unsigned long long)hash);
}

void slices_file_name(const char *session, char file[static SLICES_FILE_TEXT])
{
    snprintf(file, SLICES_FILE_TEXT, "gpuslice-%.40s", session);
}

bool slices_session_of(const char *file, char session[static SLICES_NAME_TEXT])
{
    return sscanf(file, "gpuslice-%31[^.].json", session) == 1 &&
           strncmp(session, SLICES_PREFIX, strlen(SLICES_PREFIX)) == 0;
}

static uint32_t resource_hash(const struct kubelet *kubelet)
{
    uint64_t hash = hash_text(HASH_START, kubelet->options.resource);
    return (uint32_t)(hash ^ hash >> 32);
}

void slice_ids_format(const struct kubelet *kubelet, const char *uuid, unsigned number,
                      char id[static SLICE_ID_TEXT])
{
    snprintf(id, SLICE_ID_TEXT, "%.64s-%08x-slice-%u", uuid, resource_hash(kubelet), number);
}

json_t *slice_ids_gpu(const struct kubelet *kubelet, const char *id)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        const char *uuid = session_text(gpu, "uuid");
        unsigned number, hash;
        int end = 0;
        if (strncmp(id, uuid, strlen(uuid)) == 0 &&
            sscanf(id + strlen(uuid), "-%8x-slice-%u%n", &hash, &number, &end) == 2 &&
            id[strlen(uuid) + (size_t)end] == '\0' && hash == resource_hash(kubelet) &&
            number < kubelet->options.slice_count)
            return gpu;
    }
    return NULL;
}

uint64_t slice_bytes(const struct kubelet *kubelet, const json_t *gpu)
{
    return kubelet->options.slice_bytes ? kubelet->options.slice_bytes
                                        : session_number(gpu, "total_bytes") / kubelet->options.slice_count;
}

size_t slice_ids_count(const struct kubelet *kubelet, const json_t *gpu, char *const *ids, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += slice_ids_gpu(kubelet, ids[i]) == gpu;
    return found;
}

bool slice_ids_have(char *const *list, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], text) == 0)
            return true;
    return false;
}
