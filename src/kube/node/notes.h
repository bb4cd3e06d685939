/* notes.h - what whoever runs this node should know now.
 *
 * A note stands for as long as it is true. When it changes it is told in the log and in the node's events
 * (GpuSliceNode); all that stand are in a file, one line each, for `gpuslice doctor`. */
#pragma once

#include "kube/kubelet.h"

#define NOTES_FOLDER "plugins/gpu.gpuslice.io" /* below the kubelet's folder */
#define NOTES_FILE NOTES_FOLDER "/notes"

/* Set the note about `about`, or with a `text` of NULL take it back. */
void notes_set(struct kubelet *kubelet, const char *about, const char *text);

/* Take all back without a word. */
void notes_stop(struct kubelet *kubelet);
