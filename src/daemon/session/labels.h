/* labels.h - what a cluster calls the container that a session is for. */
#pragma once

#define LABEL_TEXT 254 /* the longest name in Kubernetes, and a terminating zero */

/* Each is empty where the session is not for a container. */
struct session_labels {
    char namespace[64], pod[LABEL_TEXT], container[64];
};
