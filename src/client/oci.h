/* oci.h - what a container runtime tells its hooks (the OCI runtime specification). None of it is trusted.
 *
 * state    of the container, on stdin: its ID and its bundle
 * bundle   the folder with the container's config.json, which says where its root is */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdio.h>

#include "base/error.h"

struct oci_state {
    char id[256];
    char bundle[PATH_MAX];
};

/* Read the state. -EINVAL when it does not name a container with a bundle at an absolute path. */
int oci_read_state(FILE *from, struct oci_state *state, struct error *error);

/* The container's root according to `config`, the content of config.json (NULL if it could not be read): an
 * absolute path, which is not checked to exist. */
int oci_root(const struct oci_state *state, const json_t *config, char root[static PATH_MAX],
             struct error *error);
