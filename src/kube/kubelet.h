/* kubelet.h - gpuslice-kubelet's whole state: one node's GPUs, offered to its kubelet. One thread owns all of it.
 * What waits for an answer of the daemon or of the API server runs as a task (tasks.h).
 *
 * node     this machine: its daemon (node.h) and its kubelet, whose sockets are below kubelet_dir
 * slice    an equal part of a GPU, which the device plug-in offers to clusters without DRA
 * claim    what a pod asks for through DRA; becomes one session
 *
 * The daemon keeps all state: a session's name says what it was made for, so that it is found after any restart. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <systemd/sd-event.h>

#include "base/engine.h"
#include "base/paths.h"
#include "base/units.h"
#include "client/container.h"
#include "kube/node/ask.h"

struct dra;
struct slices;

/* Where the API server is, and how we prove who we are. The files are read for each request, as tokens change. */
struct api_place {
    const char *url;        /* "https://HOST:PORT" */
    const char *token_file; /* NULL: none */
    const char *ca_file;
};

struct kubelet_options {
    bool simulated;
    bool slices, dra;                /* which of the two interfaces are offered */
    const char *node;                /* the node's name in the cluster */
    const char *resource;            /* the name of slices in pods */
    unsigned slice_count;            /* slices of each GPU */
    uint64_t slice_bytes;            /* 0: an equal part of the GPU's memory */
    enum ledger_engine slice_engine; /* how slices' memory can leave the card */
    struct share slice_compute;      /* max 0: an equal part as the minimum, no maximum */
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
    bool is_daemon_known;    /* it has answered at least once */
    bool is_looking;         /* a task is asking the daemon */
    uint64_t daemon_lost_ns; /* since when it does not answer; 0: it answers */
    json_t *gpus;            /* the daemon's last answer; NULL: none yet */
    struct slices *slices;
    struct dra *dra;
};

/* Look after everything at once, rather than at the next second. */
void kubelet_look_soon(struct kubelet *kubelet);
/* The same after `usec`. */
void kubelet_look_in(struct kubelet *kubelet, uint64_t usec);

/* The path of a socket below the kubelet's folder. -ENAMETOOLONG with the bound if it is too long for a socket. */
int kubelet_path(const struct kubelet *kubelet, char path[static PATH_MAX], const char *below,
                 struct error *error);
