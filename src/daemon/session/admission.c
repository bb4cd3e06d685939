#include "daemon/session/admission.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/units.h"

uint64_t admission_unreserved(uint64_t total_bytes, uint64_t reserved_bytes, uint64_t others_bytes)
{
    uint64_t taken;
    return __builtin_add_overflow(reserved_bytes, others_bytes, &taken) || taken >= total_bytes
               ? 0
               : total_bytes - taken;
}

int admission_check(const char *gpu, uint64_t total_bytes, uint64_t reserved_bytes, uint64_t others_bytes,
                    uint64_t wanted_bytes, struct error *error)
{
    char wanted[UNITS_BYTES_TEXT], total[UNITS_BYTES_TEXT], reserved[UNITS_BYTES_TEXT],
        left[UNITS_BYTES_TEXT], others[UNITS_BYTES_TEXT], outside[UNITS_BYTES_TEXT + 64] = "";
    uint64_t unreserved = admission_unreserved(total_bytes, reserved_bytes, others_bytes);
    if (wanted_bytes <= unreserved)
        return 0;
    units_format_bytes(wanted_bytes, wanted);
    units_format_bytes(total_bytes, total);
    if (wanted_bytes > total_bytes)
        return error_set(error, EBUSY, "ERR_ADMISSION",
                         "%s (%" PRIu64 " bytes) is more than GPU %s has (%s, %" PRIu64
                         " bytes); ask for less",
                         wanted, wanted_bytes, gpu, total, total_bytes);
    if (others_bytes)
        snprintf(outside, sizeof(outside), " and processes in no session here hold %s",
                 units_format_bytes(others_bytes, others));
    return error_set(
        error, EBUSY, "ERR_ADMISSION",
        "%s (%" PRIu64
        " bytes) does not fit on GPU %s: of %s, other sessions reserved %s%s, which leaves %s (%" PRIu64
        " bytes); ask for less or release a session",
        wanted, wanted_bytes, gpu, total, units_format_bytes(reserved_bytes, reserved), outside,
        units_format_bytes(unreserved, left), unreserved);
}

int admission_check_share(const char *gpu, uint32_t promised, uint32_t wanted, struct error *error)
{
    char wanted_text[UNITS_SHARE_TEXT], promised_text[UNITS_SHARE_TEXT], left_text[UNITS_SHARE_TEXT];
    uint32_t left = promised < SHARE_WHOLE ? SHARE_WHOLE - promised : 0;
    if (wanted <= left)
        return 0;
    return error_set(error, EBUSY, "ERR_ADMISSION",
                     "a minimum of %s of GPU %s's time is more than is left: %s is promised to other "
                     "sessions, which leaves "
                     "%s; ask for less, for a minimum of 0%%, or release a session",
                     units_format_share((struct share){wanted, wanted}, wanted_text), gpu,
                     units_format_share((struct share){promised, promised}, promised_text),
                     units_format_share((struct share){left, left}, left_text));
}

size_t admission_roomiest(const uint64_t *unreserved_bytes, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (unreserved_bytes[i] > unreserved_bytes[best])
            best = i;
    return best;
}
