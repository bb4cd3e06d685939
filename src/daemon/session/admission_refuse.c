#include "daemon/session/admission_refuse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/units.h"
#include "daemon/session/admission_gpu.h"

#define KEPT_TEXT (UNITS_BYTES_TEXT + 64)

/* What is said after the size of the GPU: that the card has more, which is the driver's. */
static const char *format_kept(const struct admission_gpu *gpu, char text[static KEPT_TEXT])
{
    char kept[UNITS_BYTES_TEXT];
    text[0] = '\0';
    if (gpu->kept_bytes)
        snprintf(text, KEPT_TEXT, " beside %s that the driver keeps for itself",
                 units_format_bytes(gpu->kept_bytes, kept));
    return text;
}

int admission_refuse_bytes(const struct admission_gpu *gpu, uint64_t wanted_bytes, uint64_t unreserved_bytes,
                           struct error *error)
{
    char wanted[UNITS_BYTES_TEXT], total[UNITS_BYTES_TEXT], reserved[UNITS_BYTES_TEXT],
        left[UNITS_BYTES_TEXT], others[UNITS_BYTES_TEXT], kept[KEPT_TEXT],
        outside[UNITS_BYTES_TEXT + 64] = "", stay[UNITS_BYTES_TEXT], staying[UNITS_BYTES_TEXT + 96] = "";
    if (!error)
        return -EBUSY;
    units_format_bytes(wanted_bytes, wanted);
    units_format_bytes(gpu->total_bytes, total);
    if (wanted_bytes > gpu->total_bytes)
        return error_set(error, EBUSY, "ERR_ADMISSION",
                         "%s (%" PRIu64 " bytes) is more than GPU %s has (%s, %" PRIu64
                         " bytes)%s; ask for less",
                         wanted, wanted_bytes, gpu->label, total, gpu->total_bytes, format_kept(gpu, kept));
    if (gpu->outside_bytes)
        snprintf(outside, sizeof(outside), " and processes in no session here hold %s",
                 units_format_bytes(gpu->outside_bytes, others));
    if (gpu->staying_bytes)
        snprintf(staying, sizeof(staying),
                 ", contexts that stay while other sessions' memory is away take %s",
                 units_format_bytes(gpu->staying_bytes, stay));
    return error_set(
        error, EBUSY, "ERR_ADMISSION",
        "%s (%" PRIu64
        " bytes) does not fit on GPU %s: of %s%s, other sessions reserved %s%s%s, which leaves %s (%" PRIu64
        " bytes); ask for less or release a session",
        wanted, wanted_bytes, gpu->label, total, format_kept(gpu, kept),
        units_format_bytes(gpu->reserved_bytes, reserved), staying, outside,
        units_format_bytes(unreserved_bytes, left), unreserved_bytes);
}

int admission_refuse_context(const struct admission_gpu *gpu, struct error *error)
{
    char context[UNITS_BYTES_TEXT], total[UNITS_BYTES_TEXT], largest[UNITS_BYTES_TEXT],
        staying[UNITS_BYTES_TEXT];
    if (!error)
        return -EBUSY;
    return error_set(error, EBUSY, "ERR_ADMISSION",
                     "another session does not fit on GPU %s: its context of %s stays there while its memory "
                     "is away, and the largest of the others needs %s of the %s, beside contexts of %s; "
                     "release a session, or lower its limit",
                     gpu->label, units_format_bytes(gpu->context_bytes, context),
                     units_format_bytes(gpu->movable_bytes, largest),
                     units_format_bytes(gpu->total_bytes, total),
                     units_format_bytes(gpu->staying_bytes, staying));
}

int admission_refuse_share(const struct admission_gpu *gpu, uint32_t wanted, uint32_t left,
                           struct error *error)
{
    const uint32_t promised = gpu->promised_share;
    char wanted_text[UNITS_SHARE_TEXT], promised_text[UNITS_SHARE_TEXT], left_text[UNITS_SHARE_TEXT];
    if (!error)
        return -EBUSY;
    return error_set(error, EBUSY, "ERR_ADMISSION",
                     "the minimum of %s of GPU %s's time is more than is left: other sessions were promised "
                     "%s, which leaves %s; ask for less, for a minimum of 0%%, or release a session",
                     units_format_share((struct share){wanted, wanted}, wanted_text), gpu->label,
                     units_format_share((struct share){promised, promised}, promised_text),
                     units_format_share((struct share){left, left}, left_text));
}

int admission_refuse_behind(const struct admission_gpu *gpu, struct error *error)
{
    return error_set(
        error, EBUSY, "ERR_ADMISSION",
        "%u session%s for room on GPU %s already; wait behind %s with --wait, or name another GPU",
        gpu->waiting, gpu->waiting == 1 ? " waits" : "s wait", gpu->label, gpu->waiting == 1 ? "it" : "them");
}
