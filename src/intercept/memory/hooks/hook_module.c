/* hook_module.c - modules and libraries of code. What they take of the GPU for code and variables is not
 * told, and known to the driver alone: it is found by the daemon in the difference between what the card
 * shows for the process and what it was charged (the driver line), for which it is given notice here. */
#include "intercept/resolve/real.h"
#include "intercept/session/session.h"

#define CHANGES(symbol, parameters, arguments)                                                               \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        real_needed(symbol);                                                                                 \
        CUresult result = real(symbol) arguments;                                                            \
        if (result == CUDA_SUCCESS)                                                                          \
            session_notice(WIRE_NOTICE_MODULE);                                                              \
        return result;                                                                                       \
    }
CHANGES(cuModuleLoad, (CUmodule * module, const char *path), (module, path))
CHANGES(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
CHANGES(cuModuleLoadDataEx,
        (CUmodule * module, const void *image, unsigned int count, CUjit_option *options, void **values),
        (module, image, count, options, values))
CHANGES(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image))
CHANGES(cuModuleUnload, (CUmodule module), (module))
CHANGES(cuLibraryLoadData,
        (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values, unsigned int jit_count,
         CUlibraryOption *options, void **values, unsigned int count),
        (library, code, jit, jit_values, jit_count, options, values, count))
CHANGES(cuLibraryLoadFromFile,
        (CUlibrary * library, const char *path, CUjit_option *jit, void **jit_values, unsigned int jit_count,
         CUlibraryOption *options, void **values, unsigned int count),
        (library, path, jit, jit_values, jit_count, options, values, count))
CHANGES(cuLibraryUnload, (CUlibrary library), (library))
