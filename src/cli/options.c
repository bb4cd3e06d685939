/* The options of verbs: a verb's own rows, and in their place those of the properties. */
#include "cli/cli.h"

#define FIRST property_options
#define END (property_options + PROPERTY_COUNT)

static const struct cli_option property_options[PROPERTY_COUNT] = {
#define SESSION_PROPERTY(id, field, kind_, words, noun, name_, json, answer, value_, option_help, ...)       \
    [PROPERTY_##id] = {.name = name_,                                                                        \
                       .value = value_,                                                                      \
                       .kind = CLI_PROPERTY,                                                                 \
                       .offset = offsetof(struct cli_arguments, wish.properties),                            \
                       .help = option_help,                                                                  \
                       .property = &session_properties[PROPERTY_##id]},
#include "config/session_properties.def"
#undef SESSION_PROPERTY
};

static bool has_property(enum cli_properties which, const struct property *property)
{
    if (!property->option_help)
        return false;
    return which == CLI_PROPERTIES_NEW      ? true
           : which == CLI_PROPERTIES_CHANGE ? !(property->flags & IS_FIXED)
                                            : property->flags & IN_SLICE;
}

/* The first option at `row` or after it. */
static const struct cli_option *at_or_after(const struct cli_option *row)
{
    if (row->kind != CLI_PROPERTIES)
        return row->name ? row : NULL;
    for (const struct cli_option *option = FIRST; option < END; option++)
        if (has_property((enum cli_properties)row->offset, option->property))
            return option;
    return at_or_after(row + 1);
}

const struct cli_option *cli_next_option(const struct cli_verb *verb, const struct cli_option *option)
{
    if (!option)
        return at_or_after(verb->options);
    if (option->kind != CLI_PROPERTY)
        return at_or_after(option + 1);
    const struct cli_option *place = verb->options;
    while (place->kind != CLI_PROPERTIES)
        place++;
    while (++option < END)
        if (has_property((enum cli_properties)place->offset, option->property))
            return option;
    return at_or_after(place + 1);
}

bool cli_option_may_lack_value(const struct cli_option *option)
{
    return option->value && option->value[0] == '[';
}

bool cli_option_takes_word(const struct cli_option *option)
{
    return option->value && !cli_option_may_lack_value(option);
}
