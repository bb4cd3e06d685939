/* driver.h - access to the driver. The entry points are those of cuda/prototypes.h (driver.S); one that this driver
 * lacks answers CUDA_ERROR_NOT_FOUND. */
#pragma once

#include <stdbool.h>

#include "cuda/entry_points.h"
#include "cuda/prototypes.h"

/* The ways in which programs reach the driver; an interceptor must cover each. */
enum driver_route {
    DRIVER_BY_DLSYM,           /* dlopen("libcuda.so.1"), dlsym */
    DRIVER_BY_GET_PROC_ADDRESS /* cuGetProcAddress for the version and kind of stream of each form */
};

/* Load the driver, and direct all entry points through `route`. Call it again to change the route. Returns NULL, or
 * a static text that says why there is no driver. */
const char *driver_open(enum driver_route route);

/* Whether this driver has the entry point, and the address that calls of it go to. */
bool driver_has(enum cuda_entry_id id);
void *driver_function(enum cuda_entry_id id);
