/* swap_answers.h - answers what the program asks about addresses of the swap engine, on the card or not (struct engine). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cuda/driver.h"

bool swap_has_physical_memory(CUdeviceptr address);
CUresult swap_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
CUresult swap_pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr address);
CUresult swap_pointer_attributes(unsigned count, CUpointer_attribute *which, void **values,
                                 CUdeviceptr address);
