/* quantity.h - Kubernetes' way to write numbers. */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* A quantity ("4Gi", "1500M", "25", "2.5e9"), rounded up to a whole number. */
int quantity_parse(const char *text, uint64_t *number, struct error *error);
