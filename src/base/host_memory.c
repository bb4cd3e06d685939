#include "base/host_memory.h"

#include <errno.h>

#include "base/units.h"

int host_memory_check_bound(uint64_t bytes, struct error *error)
{
    char bound[UNITS_BYTES_TEXT], least[UNITS_BYTES_TEXT];
    if (bytes >= HOST_MEMORY_LEAST_BYTES)
        return 0;
    return error_set(error, ERANGE, "ERR_BAD_REQUEST",
                     "%s of host memory is too little, because sessions get it in pieces of at least %s; "
                     "expected %s or more",
                     units_format_bytes(bytes, bound), units_format_bytes(HOST_MEMORY_LEAST_BYTES, least),
                     least);
}
