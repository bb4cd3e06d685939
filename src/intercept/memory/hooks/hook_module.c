/* hook_module.c - modules and libraries of code. What they take of the GPU for code and variables only the driver
 * knows. It is found by comparing before and after (ahead.h), and a load that does not fit is refused. The daemon finds it as
 * the difference between what the card shows for the process and what the process was charged (the driver line), so these
 * hooks send it a notice. Where the card is full they wait for room. None of these calls gives the GPU work, but the driver
 * may compile meanwhile, so the gate is told when a load begins and ends. */
#include "intercept/memory/ahead.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/code_room.h"
#include "intercept/memory/refusal.h"
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

static CUresult unload_module(void *module)
{
    return real(cuModuleUnload) ? real(cuModuleUnload)(module) : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult unload_library(void *library)
{
    return real(cuLibraryUnload) ? real(cuLibraryUnload)(library) : CUDA_ERROR_NOT_SUPPORTED;
}

/* Other processes may have taken what seems to be this load's. They hardly do so each time. */
#define ATTEMPTS 3u

struct load {
    CUresult (*unload)(void *loaded); /* takes back what was loaded, where it does not fit */
    struct gate *gate;
    struct ahead ahead;
    CUresult result;
    unsigned waits, attempts;
    bool has_begun;
};

/* After an attempt: whether to make another. `*loaded`: what was loaded. Otherwise `load->result` is the program's answer. */
static bool is_tried_again(struct load *load, void *const *loaded)
{
    end(load->gate, load->result);
    if (load->result == CUDA_ERROR_OUT_OF_MEMORY && code_wait_for_room(load->waits++))
        return true;
    if (load->result != CUDA_SUCCESS || ahead_end(&load->ahead) || load->unload(*loaded) != CUDA_SUCCESS)
        return false;
    if (++load->attempts < ATTEMPTS)
        return true;
    refusal_by_limit(load->ahead.gpu, load->ahead.found_bytes);
    load->result = CUDA_ERROR_OUT_OF_MEMORY;
    return false;
}

/* Whether to ask the driver now, the first time or once more. */
static bool load_goes_on(struct load *load, void *const *loaded)
{
    if (load->has_begun && !is_tried_again(load, loaded))
        return false;
    load->has_begun = true;
    load->gate = begin();
    ahead_begin(&load->ahead);
    return true;
}

#define LOADS(symbol, loaded, unloads, parameters, arguments)                                                \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        struct load load = {.unload = unloads};                                                              \
        real_needed(symbol);                                                                                 \
        while (load_goes_on(&load, (void *const *)loaded))                                                   \
            load.result = real(symbol) arguments;                                                            \
        return load.result;                                                                                  \
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
LOADS(cuModuleLoad, module, unload_module, (CUmodule * module, const char *path), (module, path))
LOADS(cuModuleLoadData, module, unload_module, (CUmodule * module, const void *image), (module, image))
LOADS(cuModuleLoadDataEx, module, unload_module,
      (CUmodule * module, const void *image, unsigned int count, CUjit_option *options, void **values),
      (module, image, count, options, values))
LOADS(cuModuleLoadFatBinary, module, unload_module, (CUmodule * module, const void *image), (module, image))
UNLOADS(cuModuleUnload, (CUmodule module), (module))
LOADS(cuLibraryLoadData, library, unload_library,
      (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values, unsigned int jit_count,
       CUlibraryOption *options, void **values, unsigned int count),
      (library, code, jit, jit_values, jit_count, options, values, count))
LOADS(cuLibraryLoadFromFile, library, unload_library,
      (CUlibrary * library, const char *path, CUjit_option *jit, void **jit_values, unsigned int jit_count,
       CUlibraryOption *options, void **values, unsigned int count),
      (library, path, jit, jit_values, jit_count, options, values, count))
UNLOADS(cuLibraryUnload, (CUlibrary library), (library))
