/* driver.h - the driver as this program finds it. The entry points themselves are those of cuda/prototypes.h
 * (driver.S); one that this driver does not have answers CUDA_ERROR_NOT_FOUND. */
#pragma once

#include <stdbool.h>

#include "cuda/entry_points.h"
#include "cuda/prototypes.h"

/* The ways in which programs reach the driver; an interceptor has to stand in each. */
enum driver_route {
    DRIVER_BY_DLSYM,           /* dlopen("libcuda.so.1"), dlsym */
    DRIVER_BY_GET_PROC_ADDRESS /* cuGetProcAddress for the version and kind of stream of each form */
};

/* Load the driver, and lead all entry points through `route`. Call again to change the route. NULL, or why
 * there is no driver: text that stays. */
const char *driver_open(enum driver_route route);

/* Whether this driver has the entry point; and where calls of it go. */
bool driver_has(enum cuda_entry_id id);
void *driver_function(enum cuda_entry_id id);
