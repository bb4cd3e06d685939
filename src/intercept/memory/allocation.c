#include "intercept/memory/allocation.h"

#include "cuda/entry_points.h"

#define SHOWN false
#define HIDDEN true
#define MOVES true
#define STAYS false

const struct alloc_row alloc_rows[WAY_COUNT] = {
#define ALLOCATES(symbol, form, charged_, undone_by, record_, nvml, moves)                                   \
    [WAY_##symbol] = {.call = CUDA_ID_##symbol,                                                              \
                      .undo = RELEASE_##undone_by,                                                           \
                      .record = RECORD_##record_,                                                            \
                      .charged = ALLOC_##charged_,                                                           \
                      .is_hidden = (nvml),                                                                   \
                      .can_move = (moves)},
#include "intercept/memory/alloc.def"
};

const struct release_row release_rows[RELEASE_COUNT] = {
#define RELEASES(symbol, form, record_)                                                                      \
    [RELEASE_##symbol] = {.call = CUDA_ID_##symbol, .record = RECORD_##record_},
#include "intercept/memory/alloc.def"
};
