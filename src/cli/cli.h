/* cli.h - the words of the command line.
 *
 * verb      what `gpuslice VERB` does: its options, its operands, its function
 * option    one row, which the parser, --help and shell completion all read
 * operand   a word that is not an option: a session, or the command to run
 *
 * The words are checked before any request goes to a daemon. If they alone are wrong, the status is 2 and nothing
 * has changed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/units.h"
#include "client/session_wish.h"

enum cli_status {
    CLI_DONE = 0,
    CLI_FAILED = 1,           /* refused or failed */
    CLI_WRONG_USAGE = 2,      /* the words alone are wrong */
    CLI_IN_PART = 3,          /* of `suspend`: some of the memory cannot leave the card */
    CLI_CANNOT_EXECUTE = 126, /* of `run`, as in sh */
    CLI_NOT_FOUND = 127,
};

/* What a word is: how it is checked, stored and completed. The comment names the type in which it is stored. */
enum cli_kind {
    CLI_NOTHING,
    CLI_FLAG,           /* bool */
    CLI_SESSION_NAME,   /* const char *: a name for a session */
    CLI_SESSION,        /* const char *: a session's ID, prefix of one, or name */
    CLI_GPU,            /* struct gpu_names; each one is added */
    CLI_MEMORY,         /* struct memory_limits */
    CLI_USER,           /* const char *: a user's name or number */
    CLI_FIELDS,         /* const char *: comma-separated names of the API's fields */
    CLI_USAGE_BY,       /* const char *: one of cli_usage_by */
    CLI_FORM,           /* const char *: one of cli_forms */
    CLI_SORT,           /* const char *: one of cli_sort_keys */
    CLI_COLUMNS,        /* const char *: comma-separated keys of columns */
    CLI_COUNT,          /* unsigned: above 0 */
    CLI_QUANTUM,        /* const char *: "auto" or a duration */
    CLI_ANTI_THRASH,    /* const char *: one of cli_anti_thrash */
    CLI_DURATION,       /* uint64_t: microseconds, above 0 */
    CLI_MOMENT,         /* uint64_t: microseconds ago, above 0 (moment.h) */
    CLI_MAYBE_DURATION, /* uint64_t: microseconds; UINT64_MAX when the option has no "=VALUE" */
    CLI_PROPERTY,       /* struct session_properties: the option's property */
    CLI_PROPERTIES,     /* no option, but the place of those of properties; `offset`: which */
    CLI_COMMAND,        /* operands: a program and its arguments */
    CLI_SHELL,          /* operands: bash, zsh or fish */
    CLI_VERB,           /* operands: a verb's name */
    CLI_CONFIG,         /* operands: "check", and a file after it */
    CLI_FOLDER,         /* const char *: a path */
};

struct cli_arguments {
    bool help, json, simulated;
    struct session_wish wish;
    const char *session;
    const char *quantum;     /* NULL: not given */
    const char *anti_thrash; /* NULL: not given */
    const char *by;          /* NULL: not given */
    uint64_t since_usec;     /* 0: not given */
    uint64_t until_usec;     /* ago; 0: not given */
    const char *user;        /* a name or number; NULL: not given */
    const char *fields;      /* NULL: not given */
    const char *folder;      /* NULL: not given */
    const char *form;        /* NULL: not given */
    const char *columns;     /* NULL: not given */
    const char *sort;        /* NULL: not given */
    const char *slice;       /* NULL: not given */
    unsigned lines;          /* 0: not given */
    bool kill, follow, csv, open, quiet, watch, all, container, without_driver, no_wait, hook, tunables;
    char **operands; /* ends with NULL */
    unsigned operand_count;
};

struct cli_option {
    const char *name;  /* without its "--" */
    const char *value; /* what --help calls the value; NULL for a flag */
    enum cli_kind kind;
    size_t offset; /* of the value in struct cli_arguments */
    const char *help;
    char letter; /* "-q" is the same; 0: none */
    const struct property *property;
};

/* Which properties a verb has options for. */
enum cli_properties { CLI_PROPERTIES_NEW, CLI_PROPERTIES_CHANGE, CLI_PROPERTIES_SLICE };

struct cli_verb {
    const char *name;
    const char *aliases[4]; /* ends with NULL */
    const char *operands;   /* as --help writes them; NULL for none */
    enum cli_kind operand_kind;
    unsigned operands_min, operands_max;
    const char *summary;        /* one line, no capital, no full stop */
    const char *text;           /* what else --help says; NULL for nothing */
    const char *examples;       /* whole lines; NULL for none */
    const char *const *columns; /* headings that --help explains, as columns.h has them; NULL for none */
    const struct cli_option *options;
    /* Checks the options against each other; NULL if any combination is allowed. */
    int (*check)(const struct cli_arguments *arguments, struct error *error);
    enum cli_status (*act)(const struct cli_arguments *arguments);
};

/* What --anti-thrash takes; ends with NULL. */
extern const char *const cli_anti_thrash[];
/* What --by takes; ends with NULL. */
extern const char *const cli_usage_by[];
/* What --sort takes; ends with NULL. */
extern const char *const cli_sort_keys[];
/* What --output takes; ends with NULL. */
extern const char *const cli_forms[];

/* The verb's first option (`option` NULL), and the one after `option`; NULL after the last. */
const struct cli_option *cli_next_option(const struct cli_verb *verb, const struct cli_option *option);

/* Whether the option may stand without its value, and whether it takes the next word as its value. */
bool cli_option_may_lack_value(const struct cli_option *option);
bool cli_option_takes_word(const struct cli_option *option);

/* All verbs, in the order of `gpuslice help`; ends with NULL. */
extern const struct cli_verb *const cli_verbs[];

/* The verb of this name or alias, or NULL. */
const struct cli_verb *cli_verb_find(const char *name);

/* Read the words after the verb, up to NULL, into `arguments`. Where the operands are a command, the first one ends
 * the options; "--" ends them everywhere. After --help nothing else is checked. -EINVAL or -ERANGE for wrong usage. */
int cli_parse(const struct cli_verb *verb, char **words, struct cli_arguments *arguments,
              struct error *error);

/* Print "gpuslice: MESSAGE" on stderr. Returns CLI_FAILED. */
enum cli_status cli_report(const struct error *error);

/* The same for wrong usage, and says where to read more. Returns CLI_WRONG_USAGE. */
enum cli_status cli_report_usage(const struct cli_verb *verb, const struct error *error);

/* The last call of a verb that printed: CLI_FAILED, with a line on stderr, if stdout did not take all of it. */
enum cli_status cli_finish_output(void);
