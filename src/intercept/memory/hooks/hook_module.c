/* hook_module.c - modules and libraries of code. What they take of the GPU for code and variables only the driver
 * knows. The daemon finds it as the difference between what the card shows for the process and what the process was
 * charged (the driver line), so these hooks send it a notice. Where the card is full they wait for room. None of these
 * calls gives the GPU work, but the driver may compile meanwhile, so the gate is told when a load begins and ends. */
#include "intercept/memory/code_room.h"
#include "intercept/resolve/real.h"
#include "intercept/session/session.h"
#include "intercept/submit/gate.h"

static struct gate *begin(void)
{
    struct gate *gate = gate_of();
    if (gate)
        gate_load_begin(gate);
    return gate;
}

static void end(struct gate *gate, CUresult result)
{
    if (gate)
        gate_load_end(gate);
    if (result == CUDA_SUCCESS)
        session_notice(WIRE_NOTICE_MODULE);
}

static void forget(void)
{
    if (gate_of())
        gate_forget_functions(gate_of());
}

#define LOADS(symbol, parameters, arguments)                                                                 \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        CUresult result;                                                                                     \
        unsigned attempt = 0;                                                                                \
        do {                                                                                                 \
            struct gate *gate = begin();                                                                     \
            result = real(symbol) arguments;                                                                 \
            end(gate, result);                                                                               \
        } while (result == CUDA_ERROR_OUT_OF_MEMORY && code_wait_for_room(attempt++));                       \
        return result;                                                                                       \
    }
#define UNLOADS(symbol, parameters, arguments)                                                               \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        forget();                                                                                            \
        CUresult result = real(symbol) arguments;                                                            \
        end(NULL, result);                                                                                   \
        return result;                                                                                       \
    }
LOADS(cuModuleLoad, (CUmodule * module, const char *path), (module, path))
LOADS(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
LOADS(cuModuleLoadDataEx,
      (CUmodule * module, const void *image, unsigned int count, CUjit_option *options, void **values),
      (module, image, count, options, values))
LOADS(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image))
UNLOADS(cuModuleUnload, (CUmodule module), (module))
LOADS(cuLibraryLoadData,
      (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values, unsigned int jit_count,
       CUlibraryOption *options, void **values, unsigned int count),
      (library, code, jit, jit_values, jit_count, options, values, count))
LOADS(cuLibraryLoadFromFile,
      (CUlibrary * library, const char *path, CUjit_option *jit, void **jit_values, unsigned int jit_count,
       CUlibraryOption *options, void **values, unsigned int count),
      (library, path, jit, jit_values, jit_count, options, values, count))
UNLOADS(cuLibraryUnload, (CUlibrary library), (library))
