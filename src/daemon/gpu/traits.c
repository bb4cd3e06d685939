#include "daemon/gpu/traits.h"

#include <stddef.h>

#include "daemon/gpu/card.h"

enum keeps { NOTHING, SWAP, ALL };

static const struct {
    const char *word, *text;
    enum keeps keeps;
} rows[GPU_TRAITS] = {
#define GPU_TRAIT(name, word, keeps, text) {word, text, keeps},
#include "daemon/gpu/traits.def"
#undef GPU_TRAIT
};

bool gpu_has(const struct gpu *gpu, enum gpu_trait trait)
{
    return gpu->traits & GPU_TRAIT_BIT(trait);
}

const char *gpu_trait_word(enum gpu_trait trait)
{
    return rows[trait].word;
}

const char *gpu_trait_text(enum gpu_trait trait)
{
    return rows[trait].text;
}

const char *gpu_why_stays(const struct gpu *gpu, enum ledger_engine engine)
{
    for (unsigned trait = 0; trait < GPU_TRAITS; trait++)
        if (gpu_has(gpu, trait) &&
            (rows[trait].keeps == ALL || (rows[trait].keeps == SWAP && engine == LEDGER_ENGINE_SWAP)))
            return rows[trait].text;
    return NULL;
}
