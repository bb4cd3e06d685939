#include "config/ini.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool is_blank(char letter)
{
    return letter == ' ' || letter == '\t' || letter == '\r';
}

/* `text` without the blanks around it. */
static char *trim(char *text)
{
    while (is_blank(*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && is_blank(end[-1]))
        end--;
    *end = '\0';
    return text;
}

char *ini_next_line(char **rest)
{
    char *line = *rest;
    if (!line)
        return NULL;
    char *end = strchr(line, '\n');
    *rest = end ? end + 1 : NULL;
    if (end)
        *end = '\0';
    return trim(line);
}

static bool has_control_characters(const char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            return true;
    return false;
}

static int begin_section(char *text, struct ini_entry *entry, struct error *error)
{
    char *end = strchr(text, ']');
    if (!end || end[1] != '\0')
        return error_set(error, EINVAL, NULL, "'%.80s' is not a section; expected [NAME] alone on its line",
                         text);
    *end = '\0';
    entry->section = trim(text + 1);
    entry->key = entry->value = NULL;
    if (*entry->section == '\0')
        return error_set(error, EINVAL, NULL, "the section has no name; expected [NAME]");
    return 0;
}

static int split_pair(char *text, struct ini_entry *entry, struct error *error)
{
    char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return error_set(error, EINVAL, NULL,
                         "'%.80s' is neither a section nor a setting; expected [NAME] or KEY = VALUE", text);
    *equals = '\0';
    entry->key = trim(text);
    entry->value = trim(equals + 1);
    return 0;
}

int ini_parse(char *text, ini_take take, void *context, unsigned *line, struct error *error)
{
    struct ini_entry entry = {.section = ""};
    char *rest = text, *at;
    while ((at = ini_next_line(&rest))) {
        *line = ++entry.line;
        int result = 0;
        if (has_control_characters(at))
            return error_set(error, EINVAL, NULL,
                             "the line has the line has a control character; expected text");
        if (*at == '\0' || *at == '#' || *at == ';')
            continue;
        result = *at == '[' ? begin_section(at, &entry, error) : split_pair(at, &entry, error);
        if (result < 0 || (result = take(context, &entry, error)) < 0)
            return result;
    }
    return 0;
}
