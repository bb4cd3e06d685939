#include "kube/slices/slice_ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session_fields.h"

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void slices_session_name(const char *const *ids, size_t count, char name[static SLICES_NAME_TEXT])
{
    const char **sorted = calloc(count + 1, sizeof(*sorted));
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; sorted && i < count; i++)
        sorted[i] = ids[i];
    if (sorted)
        qsort(sorted, count, sizeof(*sorted), compare_texts);
    for (size_t i = 0; sorted && i < count; i++)
        for (const char *at = sorted[i];; at++) {
            hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
            if (!*at)
                break;
        }
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

void slice_ids_format(const char *uuid, unsigned number, char id[static SLICE_ID_TEXT])
{
    snprintf(id, SLICE_ID_TEXT, "%.64s-slice-%u", uuid, number);
}

json_t *slice_ids_gpu(const struct kubelet *kubelet, const char *id)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        const char *uuid = session_text(gpu, "uuid");
        unsigned number;
        int end = 0;
        if (strncmp(id, uuid, strlen(uuid)) == 0 &&
            sscanf(id + strlen(uuid), "-slice-%u%n", &number, &end) == 1 &&
            id[strlen(uuid) + (size_t)end] == '\0' && number < kubelet->options.slice_count)
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
