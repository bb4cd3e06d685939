#include "cuda/uuid.h"

#include <string.h>

static bool is_dash_position(unsigned byte)
{
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

const char *gpu_uuid_format(const uint8_t uuid[static GPU_UUID_BYTES], char text[static GPU_UUID_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    char *at = text;
    memcpy(at, "GPU-", 4);
    at += 4;
    for (unsigned i = 0; i < GPU_UUID_BYTES; i++) {
        if (is_dash_position(i))
            *at++ = '-';
        *at++ = digits[uuid[i] >> 4];
        *at++ = digits[uuid[i] & 15];
    }
    *at = '\0';
    return text;
}

const char *gpu_uuid_set_mig(char text[static GPU_UUID_TEXT])
{
    memcpy(text, "MIG-", 4);
    return text;
}

static int hex_digit(char letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    letter = (char)(letter | 0x20);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static bool has_prefix(const char *text, const char *prefix)
{
    for (; *prefix; text++, prefix++)
        if ((*text | 0x20) != (*prefix | 0x20))
            return false;
    return true;
}

bool gpu_uuid_parse(const char *text, uint8_t uuid[static GPU_UUID_BYTES])
{
    uint8_t bytes[GPU_UUID_BYTES];
    if (has_prefix(text, "gpu-") || has_prefix(text, "mig-"))
        text += 4;
    for (unsigned i = 0; i < GPU_UUID_BYTES; i++) {
        if (is_dash_position(i) && *text++ != '-')
            return false;
        int high = hex_digit(text[0]);
        int low = high < 0 ? -1 : hex_digit(text[1]);
        if (low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    if (*text)
        return false;
    memcpy(uuid, bytes, sizeof(bytes));
    return true;
}
