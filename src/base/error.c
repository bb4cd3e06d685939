#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *error, int status, const char *code, const char *format, ...)
{
    if (error) {
        va_list arguments;
        error->status = status;
        error->code = code;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
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
    }
    return -status;
}
