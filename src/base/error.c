#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Marks that end a line, or turn round the order in which what follows them is shown (Unicode TR 9). */
static bool is_for_layout(uint32_t code)
{
    return code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* The number of bytes of the UTF-8 character at `text`; 0 when it is not UTF-8 (RFC 3629), a control character, or a mark for
 * the layout. */
static size_t character_bytes(const char *text)
{
    static const uint32_t least[] = {[2] = 0x80, [3] = 0x800, [4] = 0x10000};
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80)
        return at[0] >= ' ' && at[0] != 0x7f;
    size_t bytes = at[0] < 0xc0 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf8 ? 4 : 0;
    if (!bytes)
        return 0;
    uint32_t code = at[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) /* also where the text ends */
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    bool is_text =
        code >= least[bytes] && !is_surrogate && code <= 0x10ffff && code >= 0xa0 && !is_for_layout(code);
    return is_text ? bytes : 0;
}

void error_make_one_line(char *text)
{
    while (*text) {
        size_t bytes = character_bytes(text);
        if (!bytes)
            *text = '?';
        text += bytes ? bytes : 1;
    }
}

int error_set(struct error *error, int status, const char *code, const char *format, ...)
{
    if (error) {
        va_list arguments;
        error->status = status;
        error->code = code;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
        error_make_one_line(error->message);
    }
    return -status;
}

int error_set_errno(struct error *error, int status, const char *format, ...)
{
    if (error) {
        va_list arguments;
        error->status = status;
        error->code = NULL;
        va_start(arguments, format);
        int length = vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
        size_t used = length < 0 ? 0 : (size_t)length;
        if (used < sizeof(error->message))
            snprintf(error->message + used, sizeof(error->message) - used, ": %s", strerror(status));
        error_make_one_line(error->message);
    }
    return -status;
}
