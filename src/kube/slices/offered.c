#include "kube/slices/offered.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/session_fields.h"
#include "kube/node/node.h"
#include "kube/node/notes.h"
#include "kube/node/tasks.h"
#include "kube/slices/slice_files.h"
#include "kube/slices/slices_allocate.h"

/* The slices that are offered, by ID; NULL: not known. And by GPU how many were offered when that was told last. */
static json_t *offered, *told;

/* The slices that sessions have, by ID. */
static json_t *read_taken(const struct kubelet *kubelet)
{
    json_t *taken = json_object();
    cleanup_dir DIR *folder = opendir(kubelet->options.cdi_dir);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct slice_file file;
        if (!slice_file_read(kubelet->options.cdi_dir, entry->d_name, &file))
            continue;
        for (size_t i = 0; i < file.own_count; i++)
            json_object_set_new(taken, slice_file_name_at(&file, i), json_true());
        json_decref(file.document);
    }
    return taken;
}

/* Ask the daemon for how many more sessions of one slice the GPU has room. */
static int ask_room(struct kubelet *kubelet, const json_t *gpu, json_t **room, struct error *error)
{
    char id[SLICE_ID_TEXT], *ids[] = {id}, path[64];
    json_t *body = json_object();
    slice_ids_format(kubelet, session_text(gpu, "uuid"), 0, id);
    snprintf(path, sizeof(path), "/v1/room?most=%u", kubelet->options.slice_count);
    int result = slices_fill_wish(kubelet, ids, 1, body, error);
    if (result == 0)
        result = node_request(kubelet, "POST", path, body, room, error);
    json_decref(body);
    return result;
}

/* The text changes only with the numbers: the reason's own figures change with each session. */
static void note_shortage(struct kubelet *kubelet, const json_t *gpu, const json_t *room)
{
    const char *uuid = session_text(gpu, "uuid");
    unsigned all = kubelet->options.slice_count, count = (unsigned)session_number(room, "offered");
    unsigned before = json_object_get(told, uuid) ? (unsigned)session_number(told, uuid) : all;
    char text[700];
    if (count == before)
        return;
    told = told ? told : json_object();
    json_object_set_new(told, uuid, json_integer(count));
    snprintf(text, sizeof(text), "GPU %s offers %u of its %u slices; one more does not fit: %.500s", uuid,
             count, all, session_text(room, "reason"));
    notes_set(kubelet, uuid, count < all ? text : NULL);
}

/* Add the GPU's slices to `list`: those that are taken, and the first `room` of the others. Returns how many. */
static unsigned add_slices(const struct kubelet *kubelet, const json_t *gpu, const json_t *taken,
                           unsigned room, json_t *list)
{
    unsigned count = 0;
    for (unsigned number = 0; number < kubelet->options.slice_count; number++) {
        char id[SLICE_ID_TEXT];
        slice_ids_format(kubelet, session_text(gpu, "uuid"), number, id);
        bool is_taken = json_object_get(taken, id);
        if (!is_taken && room == 0)
            continue;
        room -= !is_taken;
        json_object_set_new(list, id, json_true());
        count++;
    }
    return count;
}

/* Adds to `list` what the GPU offers, and to `rooms` what the daemon said, with how many are offered. */
static int look_at_gpu(struct kubelet *kubelet, const json_t *gpu, const json_t *taken, json_t *list,
                       json_t *rooms, struct error *error)
{
    json_t *room = NULL;
    int result = ask_room(kubelet, gpu, &room, error);
    if (result == 0) {
        unsigned count = add_slices(kubelet, gpu, taken, (unsigned)session_number(room, "sessions"), list);
        json_object_set_new(room, "offered", json_integer(count));
        json_array_append_new(rooms, room);
    }
    return result;
}

/* Under SLICES_LOCK, so that no slices are given meanwhile. */
static int look_at_gpus(struct kubelet *kubelet, const json_t *gpus, json_t *list, json_t *rooms,
                        struct error *error)
{
    json_t *taken = read_taken(kubelet), *gpu;
    size_t i;
    int result = 0;
    json_array_foreach((json_t *)gpus, i, gpu)
    {
        if (result == 0)
            result = look_at_gpu(kubelet, gpu, taken, list, rooms, error);
    }
    json_decref(taken);
    return result;
}

int offered_look(struct kubelet *kubelet, struct error *error)
{
    json_t *list = json_object(), *rooms = json_array(), *gpus = json_incref(kubelet->gpus), *room;
    struct task_lock lock;
    size_t i;
    task_lock(&lock, SLICES_LOCK);
    int result = look_at_gpus(kubelet, gpus, list, rooms, error);
    task_unlock(&lock);
    if (result == 0) {
        json_decref(offered);
        offered = json_incref(list);
        json_array_foreach(rooms, i, room) note_shortage(kubelet, json_array_get(gpus, i), room);
    }
    json_decref(gpus);
    json_decref(rooms);
    json_decref(list);
    return result;
}

bool offered_is_known(void)
{
    return offered;
}

bool offered_has(const char *id)
{
    return json_object_get(offered, id);
}

void offered_stop(void)
{
    json_decref(offered);
    json_decref(told);
    offered = told = NULL;
}
