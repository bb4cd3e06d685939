/* oci.h - what a container's runtime tells its hooks (the OCI runtime specification), which may be anything.
 *
 * state    of the container, on stdin: its ID, and its bundle
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

/* -EINVAL where it names no container with a bundle at an absolute path. */
int oci_read_state(FILE *from, struct oci_state *state, struct error *error);

/* Where config.json (NULL: it could not be read) says that the root is; absolute, and not looked at. */
int oci_root(const struct oci_state *state, const json_t *config, char root[static PATH_MAX],
             struct error *error);
