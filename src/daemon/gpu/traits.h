/* traits.h - in what a GPU, or its driver, is not like a card of its own (traits.def), and what of it stays for that.
 *
 * Most are found by the context probe, once for each driver; that NVML has no figures, the sampler sees. */
#pragma once

#include <stdbool.h>

#include "ledger/ledger.h"

struct gpu;

enum gpu_trait {
#define GPU_TRAIT(name, word, keeps, text) GPU_##name,
#include "daemon/gpu/traits.def"
#undef GPU_TRAIT
    GPU_TRAITS
};

/* As a bit of struct gpu's `traits`. */
#define GPU_TRAIT_BIT(trait) (1u << (trait))

bool gpu_has(const struct gpu *gpu, enum gpu_trait trait);
const char *gpu_trait_word(enum gpu_trait trait);
const char *gpu_trait_text(enum gpu_trait trait);

/* Why no memory of a session with this engine can leave the GPU, as in "GPU 0: ..."; NULL: it can, as far as is known.
 * Of LEDGER_ENGINE_PLAIN: by the driver's checkpoints. */
const char *gpu_why_stays(const struct gpu *gpu, enum ledger_engine engine);
