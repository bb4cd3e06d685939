/* entry_points.h - the driver's entry points as a table in memory (rows: entry_points.def), and the rule by which
 * cuGetProcAddress picks a form. */
#pragma once

#include <stdint.h>

#include "cuda/driver.h"

enum cuda_class {
    CUDA_ALLOCATES,
    CUDA_FREES,
    CUDA_SUBMITS,
    CUDA_WAITS,
    CUDA_QUERIES,
    CUDA_RESOLVES,
    CUDA_NEUTRAL,
};

enum cuda_stream_form {
    CUDA_STREAM_ANY,
    CUDA_STREAM_LEGACY,
    CUDA_STREAM_PER_THREAD,
};

/* A row's number: CUDA_ID_cuMemAlloc_v2. Rows stand in the order of their symbols (strcmp). */
enum cuda_entry_id {
#define CUDA_ENTRY(symbol, name, since, stream, class) CUDA_ID_##symbol,
#include "cuda/entry_points.def"
#undef CUDA_ENTRY
    CUDA_ENTRY_COUNT
};

struct cuda_entry {
    const char *symbol;
    const char *name;
    int since;
    enum cuda_stream_form stream;
    enum cuda_class class;
};

extern const struct cuda_entry cuda_entries[CUDA_ENTRY_COUNT];

/* The newest CUDA version whose names are in the table. */
#define CUDA_ENTRY_NEWEST 13040

/* The row of an exported symbol, or -1. */
int cuda_entry_find(const char *symbol);

/* The row that cuGetProcAddress(name, version, flags) means in a driver of all that the table has: the newest form
 * not above `version`; with CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM the per-thread form where the name has one. -1 when
 * the name is unknown; -2 when all its forms are newer. */
#define CUDA_ENTRY_UNKNOWN (-1)
#define CUDA_ENTRY_TOO_NEW (-2)
int cuda_entry_resolve(const char *name, int version, cuuint64_t flags);

/* "CUDA_ERROR_OUT_OF_MEMORY"; NULL for a value that is not a result. */
const char *cuda_result_name(CUresult result);
