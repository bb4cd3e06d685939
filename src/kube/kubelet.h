/* kubelet.h - gpuslice-kubelet's whole state: one node's GPUs, offered to its kubelet. One thread owns all of it;
 * what waits for an answer of the daemon or of the API server is a task (tasks.h).
 *
 * node     this machine: its daemon (node.h) and its kubelet, whose sockets are below kubelet_dir
 * slice    an equal part of a GPU, which the device plug-in offers to clusters without DRA
 * claim    what a pod asked for by DRA; becomes one session
 *
 * The daemon keeps all state: a session's name says what it was made for, so that whoever restarts finds it. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <systemd/sd-event.h>

#include "base/engine.h"
#include "base/paths.h"
#include "base/units.h"
#include "client/container.h"
#include "kube/api_server.h"
#include "kube/ask.h"

struct dra;
struct slices;

struct kubelet_options {
    bool simulated;
    bool slices, dra;                /* which roads are open */
    const char *node;                /* the node's name */
    const char *resource;            /* what slices are called in pods */
    unsigned slice_count;            /* a GPU's */
    uint64_t slice_bytes;            /* 0: an equal part of the GPU's memory */
    enum ledger_engine slice_engine; /* how their memory can leave the card */
    struct share slice_compute;      /* max 0: from an equal part of its time on */
    enum container_driver driver;
    const char *kubelet_dir, *cdi_dir, *device_dir;
    struct api_place api;
};

struct kubelet {
    struct kubelet_options options;
    sd_event *loop;
    sd_event_source *tick;
    struct asker *asker;
    struct paths paths;      /* the daemon's */
    bool is_daemon_known;    /* it has answered */
    bool is_looking;         /* a task does */
    uint64_t daemon_lost_ns; /* when it answered no more; 0: it does */
    json_t *gpus;            /* as the daemon said last; NULL before */
    struct slices *slices;
    struct dra *dra;
};

/* Look after everything at once, and not only when the next second is over. */
void kubelet_look_soon(struct kubelet *kubelet);
/* After so long, instead of when the next second is over. */
void kubelet_look_in(struct kubelet *kubelet, uint64_t usec);

/* A socket's path below the kubelet's folder. One that no socket can have is an error that says so. */
int kubelet_path(const struct kubelet *kubelet, char path[static PATH_MAX], const char *below,
                 struct error *error);
