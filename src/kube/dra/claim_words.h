/* claim_words.h - the names that our DRA driver has in the cluster. */
#pragma once

#define CLAIM_DRIVER "gpu.gpuslice.io"
#define CLAIM_CONFIG_VERSION "gpu.gpuslice.io/v1alpha1"
#define CLAIM_CONFIG_KIND "SessionConfig"
#define CLAIM_CDI_KIND "gpuslice.io/claim"
#define CLAIM_PREFIX "claim-" /* how the names of their sessions begin; the UID follows */
