#include "kube/node/notes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kube/node/api_events.h"
#include "kube/node/tasks.h"

static json_t *notes; /* texts by what they are about; NULL: none was set yet */

static int write_file(const char *path)
{
    char draft[PATH_MAX + 8];
    const char *about;
    json_t *text;
    snprintf(draft, sizeof(draft), "%s.new", path);
    FILE *file = fopen(draft, "we");
    if (!file)
        return -errno;
    json_object_foreach(notes, about, text) fprintf(file, "%s\n", json_string_value(text));
    bool is_written = !ferror(file);
    is_written &= fclose(file) == 0;
    return is_written && rename(draft, path) == 0 ? 0 : -errno;
}

static void keep_file(const struct kubelet *kubelet)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%.3000s/" NOTES_FOLDER, kubelet->options.kubelet_dir);
    mkdir(path, 0750);
    snprintf(path, sizeof(path), "%.3000s/" NOTES_FILE, kubelet->options.kubelet_dir);
    int result = json_object_size(notes)                ? write_file(path)
                 : unlink(path) == 0 || errno == ENOENT ? 0
                                                        : -errno;
    if (result < 0)
        fprintf(stderr, "gpuslice-kubelet: cannot write %s: %s\n", path, strerror(-result));
}

/* A task that tells the node's events. */
struct telling {
    struct kubelet *kubelet;
    bool is_over;
    char *text;
};

static void tell(void *context)
{
    struct telling *telling = context;
    api_tell_node(telling->kubelet, telling->is_over ? "Normal" : "Warning", "GpuSliceNode", telling->text);
    free(telling->text);
    free(telling);
}

static void tell_all(struct kubelet *kubelet, bool is_over, const char *text)
{
    struct telling *telling = calloc(1, sizeof(*telling));
    fprintf(stderr, "gpuslice-kubelet: %s%s\n", is_over ? "it is over that " : "", text);
    if (!telling)
        return;
    *telling = (struct telling){.kubelet = kubelet, .is_over = is_over};
    if (asprintf(&telling->text, "%s%s", is_over ? "it is over that " : "", text) >= 0 &&
        task_start(tell, telling))
        return;
    free(telling->text);
    free(telling);
}

void notes_set(struct kubelet *kubelet, const char *about, const char *text)
{
    json_t *before = json_incref(json_object_get(notes, about));
    const char *had = json_string_value(before);
    if (text && !(had && strcmp(had, text) == 0)) {
        notes = notes ? notes : json_object();
        json_object_set_new(notes, about, json_string(text));
        tell_all(kubelet, false, text);
        keep_file(kubelet);
    } else if (!text && had) {
        json_object_del(notes, about);
        tell_all(kubelet, true, had);
        keep_file(kubelet);
    }
    json_decref(before);
}

void notes_stop(struct kubelet *kubelet)
{
    if (!notes)
        return;
    json_object_clear(notes);
    keep_file(kubelet);
    json_decref(notes);
    notes = NULL;
}
