#include "daemon/session/identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

void identity_random_hex(char *text, size_t digits)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t bytes[64];
    for (size_t done = 0; done < digits;) {
        size_t wanted = (digits - done + 1) / 2;
        if (wanted > sizeof(bytes))
            wanted = sizeof(bytes);
        /* Up to 256 bytes never come short once the pool is seeded; only before that can a signal interrupt the call. */
        if (getrandom(bytes, wanted, 0) != (ssize_t)wanted) {
            if (errno == EINTR)
                continue;
            abort();
        }
        for (size_t i = 0; i < 2 * wanted && done < digits; i++)
            text[done++] = hex[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4];
    }
    text[digits] = '\0';
}

bool identity_is_id(const char *text)
{
    return strspn(text, "0123456789abcdef") == SESSION_ID_DIGITS && text[SESSION_ID_DIGITS] == '\0';
}

bool identity_is_token(const char *text)
{
    return strspn(text, "0123456789abcdef") == SESSION_TOKEN_TEXT - 1 && text[SESSION_TOKEN_TEXT - 1] == '\0';
}

bool identity_is_key(const char *text)
{
    return strspn(text, "0123456789abcdef") == SESSION_KEY_TEXT - 1 && text[SESSION_KEY_TEXT - 1] == '\0';
}

bool identity_is_valid(const char *name)
{
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return length > 0 && length < SESSION_NAME_TEXT && name[length] == '\0';
}

bool identity_may_be_given(const char *name)
{
    return identity_is_valid(name) && name[0] != '-' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

bool identity_token_matches(const char *expected, const char *given)
{
    size_t expected_length = strlen(expected), given_length = strlen(given);
    volatile unsigned char difference = expected_length == given_length ? 0 : 1;
    for (size_t i = 0; i < given_length; i++)
        difference |= (unsigned char)(given[i] ^ expected[expected_length ? i % expected_length : 0]);
    return difference == 0 && expected_length > 0;
}

const char *identity_format_time(int64_t seconds, char text[static TIME_TEXT])
{
    time_t moment = (time_t)seconds;
    struct tm utc;
    if (!gmtime_r(&moment, &utc) || !strftime(text, TIME_TEXT, "%Y-%m-%dT%H:%M:%SZ", &utc))
        strcpy(text, "1970-01-01T00:00:00Z");
    return text;
}
