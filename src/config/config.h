/* config.h - gpuslice.conf and sessions.conf: what they may say, and what they say.
 *
 * key      a setting that can be made (keys.def)
 * entry    a setting that was made: its text, and whether by default, file, environment or option
 * ceiling  what [user:NAME] or [group:NAME] allows its user, or each user of the group
 *
 * A file counts as a whole or not at all. What is wrong with it is reported with its path and line, and then
 * nothing in it counts. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/units.h"
#include "config/session_properties.h"

#define CONFIG_FILE "gpuslice.conf"
#define CONFIG_SESSIONS_FILE "sessions.conf"
#define CONFIG_FILE_BYTES_MAX (1u << 20)
#define CONFIG_SECTIONS_MAX 4096
#define CONFIG_KEYS_MAX 96
#define CONFIG_NAME_BYTES 64 /* of the name of a user, group or session, with its zero */
#define CONFIG_ADDRESS_BYTES 256
#define CONFIG_SECRET_BYTES 512

/* --- Keys ------------------------------------------------------------------------------------------ */

/* Those before CONFIG_CEILING are there once. */
enum config_section { CONFIG_DAEMON, CONFIG_DEFAULTS, CONFIG_SCHEDULER, CONFIG_CEILING, CONFIG_SESSION };

/* How a value is written and stored. */
enum config_kind {
    CONFIG_SIZE,      /* uint64_t bytes, above 0 */
    CONFIG_MEMORY,    /* struct config_memory: a size, or a percentage of the GPU's memory */
    CONFIG_HOST_SIZE, /* uint64_t bytes, at least HOST_MEMORY_LEAST_BYTES */
    CONFIG_DURATION,  /* uint64_t microseconds, above 0 */
    CONFIG_SECONDS,   /* uint64_t whole seconds, 1 to 2147483647 */
    CONFIG_COUNT,     /* uint32_t, 0 allowed */
    CONFIG_FLAG,      /* bool: yes, no */
    CONFIG_COMPAT,    /* bool: gslice, none */
    CONFIG_LINES,     /* bool: influx, json */
    CONFIG_STOP,      /* enum config_stop: no, report, yes */
    CONFIG_PLACEMENT, /* bool: spread, pack */
    CONFIG_ADDRESS,   /* char[CONFIG_ADDRESS_BYTES] */
    CONFIG_PATH,      /* char[PATH_MAX], absolute */
    CONFIG_SECRET,    /* char[CONFIG_SECRET_BYTES]; never in a file, never shown */
    CONFIG_USER,      /* uid_t */
    CONFIG_WORDS,     /* char *: comma-separated words; owned */
    CONFIG_PROPERTY,  /* struct session_properties: the property of the key */
    CONFIG_MATCH,     /* struct config_match: comma-separated rules; owned */
};

enum config_when { CONFIG_LIVE, CONFIG_AT_START };

struct config_key {
    enum config_section section;
    const char *name;
    enum config_kind kind;
    size_t offset; /* in the section's struct */
    enum session_property property;
    const char *standard, *environment, *option;
    enum config_when when;
    const char *help;
};

/* All keys; ends with a NULL name. */
extern const struct config_key config_keys[];
/* The first key, and the one after `key`; NULL: there are no more. Rows without help are no keys: properties that a section does
 * not have. */
const struct config_key *config_next_key(const struct config_key *key);

/* Parse `text` as a value of `key` and store it in `section`, the section's struct. -EINVAL or -ERANGE; the message
 * does not say where the text came from. */
int config_key_set(const struct config_key *key, void *section, const char *text, struct error *error);

/* --- gpuslice.conf --------------------------------------------------------------------------------- */

/* What becomes of programs outside of every session: nothing, a notice, or a notice and signals. */
enum config_stop { CONFIG_STOP_NO, CONFIG_STOP_REPORT, CONFIG_STOP_YES };

struct config_daemon {
    uint64_t recovery_usec, idle_exit_usec, wait_told_usec;
    uint64_t history_bytes;
    uint64_t host_memory_bytes;   /* 0: half of the machine's memory */
    uint32_t history_days;        /* 0: no history is kept */
    uint32_t history_records;     /* of each kind */
    uint32_t requests_per_second; /* 0: no limit */
    uint64_t metrics_file_bytes, metrics_file_seconds, audit_file_bytes;
    bool metrics_file_is_json;
    enum config_stop stop_uncovered;
    uint64_t stop_uncovered_grace_seconds;
    bool stop_uncovered_root;
    bool placement_packs;
    bool host_memory_ahead;
    bool metrics_debug, metrics_labels, metrics_as_gslice, debug, ipc_token_required;
    char metrics_address[CONFIG_ADDRESS_BYTES], http_address[CONFIG_ADDRESS_BYTES]; /* HOST:PORT; "": none */
    char metrics_file[PATH_MAX];                                                    /* "": none */
    char log_file[PATH_MAX];                                                        /* "": none */
    char audit_file[PATH_MAX];                                                      /* "": none */
    char ipc_token[CONFIG_SECRET_BYTES];                                            /* "": none */
};

/* A limit on each of a session's GPUs; all 0: none is given. */
struct config_memory {
    uint64_t bytes; /* 0: not given so */
    uint32_t part;  /* of the GPU's memory, in ten-thousandths; 0: not given so */
};

struct config_defaults {
    struct config_memory memory;
    struct session_properties properties;
};

struct config_scheduler {
    uint64_t stop_undrainable_seconds; /* 0: never */
};

/* A value that the section does not give is the greatest of its type. */
struct config_ceiling {
    bool is_group;
    char name[CONFIG_NAME_BYTES];
    unsigned line;
    uint64_t memory_bytes;
    uint32_t sessions;
    struct session_properties properties; /* the most of each that is given; of a share, its upper end */
};

enum config_origin { CONFIG_BY_DEFAULT, CONFIG_BY_FILE, CONFIG_BY_ENVIRONMENT, CONFIG_BY_OPTION };

struct config_entry {
    const struct config_key *key;
    char *section, *value; /* value NULL: none */
    enum config_origin origin;
    unsigned line; /* if the origin is CONFIG_BY_FILE */
    bool waits;    /* the file now has next_value, which counts from the next start */
    char *next_value;
};

struct config {
    char path[PATH_MAX];
    bool is_there; /* the file exists */
    struct config_daemon daemon;
    struct config_defaults defaults;
    struct config_scheduler scheduler;
    struct config_ceiling *ceilings;
    size_t ceiling_count;
    /* first one for each key of [daemon], [defaults] and [scheduler], then those of ceilings */
    struct config_entry *entries;
    size_t entry_count;
};

/* A value from gpusliced's command line. */
struct config_option {
    const char *option, *value; /* `option` as in keys.def; NULL ends a list */
};

/* Read `folder`/gpuslice.conf, which need not exist, the environment, and `options` (may be NULL). On failure there
 * is nothing to free. */
int config_load(struct config *config, const char *folder, const struct config_option *options,
                struct error *error);
/* The same with the file at `path` alone, which must exist: for checking it. */
int config_load_file(struct config *config, const char *path, struct error *error);
/* Before `next` replaces `now`: keep in `next` the present value of each key that changes only at a start, and note
 * the new value as its next_value. */
int config_carry_over(struct config *next, const struct config *now, struct error *error);
void config_free(struct config *config);

/* --- sessions.conf --------------------------------------------------------------------------------- */

/* A condition on a program. */
struct config_rule {
    enum config_rule_kind {
        CONFIG_RULE_USER,
        CONFIG_RULE_GROUP,
        CONFIG_RULE_EXECUTABLE,
        CONFIG_RULE_KINDS
    } kind;
    uint32_t number; /* uid or gid */
    char *path;      /* of the executable: an absolute fnmatch(3) pattern whose * and ? stop at a slash */
};

/* Which programs run in a session. */
struct config_match {
    struct config_rule *rules;
    size_t count; /* 0: none */
};

/* The facts about a program that rules test. */
struct config_program {
    uid_t uid;
    gid_t groups[1024]; /* all of the process's groups */
    size_t group_count;
    char executable[PATH_MAX]; /* "": not visible to us */
    /* Whether the file of that name is what it runs. Asked only where a rule has matched the name, because it looks at
     * files. */
    bool (*runs_executable)(const struct config_program *program);
    pid_t pid;
};

/* A session that the file declares. */
struct config_session {
    char name[CONFIG_NAME_BYTES];
    unsigned line;
    uid_t owner;
    char *gpus; /* NULL: the GPU that placement chooses */
    struct config_match match;
    struct config_memory memory;
    struct session_properties properties;
    bool memory_is_cap; /* a size beyond every GPU's memory means no limit, rather than an error */
};

struct config_sessions {
    char path[PATH_MAX];
    bool is_there;
    struct config_session *sessions;
    size_t count;
};

/* Read `folder`/sessions.conf, which need not exist: sections [NAME] of keys, or the format of Gemini's
 * resource-config.txt (N, then N lines ID REQUEST LIMIT GPU_MEM). */
int config_sessions_load(struct config_sessions *sessions, const char *folder, struct error *error);
int config_sessions_load_file(struct config_sessions *sessions, const char *path, struct error *error);
/* The same from `text`, the content of the file `sessions->path`; `text` is cut into pieces. */
int config_sessions_parse(struct config_sessions *sessions, char *text, struct error *error);
void config_sessions_free(struct config_sessions *sessions);

/* Replace `*match` by the rules in `words`, a comma-separated list, which is cut into pieces. */
int config_match_parse(struct config_match *match, char *words, struct error *error);
void config_match_free(struct config_match *match);
/* Whether the program is one of those that `match` is for: of each kind of rule in it, at least one must be true. */
bool config_match_is(const struct config_match *match, const struct config_program *program);

/* --- Warnings -------------------------------------------------------------------------------------- */

/* Whether the section is [user:*], which is about each user but root. */
bool config_is_everyone(const struct config_ceiling *ceiling);

/* Whether the section names a user or a group that the machine does not have; then `text` says so, with file and line. */
#define CONFIG_WARNING_TEXT (PATH_MAX + 4 * CONFIG_NAME_BYTES)
bool config_warning(const struct config *config, size_t ceiling, char text[static CONFIG_WARNING_TEXT]);

/* --- As JSON --------------------------------------------------------------------------------------- */

/* The `values` of GET /v1/config (docs/api.md). */
json_t *config_json(const struct config *config);
/* An array of {name, owner_uid, source} for the declared sessions. */
json_t *config_sessions_json(const struct config_sessions *sessions);
/* An array of texts: what config_warning() says of the sections. */
json_t *config_warnings_json(const struct config *config);
/* One element of `files`. `problem`: why the file is not in force; NULL if it is. */
json_t *config_file_json(const char *path, bool is_there, const char *problem);

/* --- For the readers of both files ----------------------------------------------------------------- */

/* Read a whole text file of at most CONFIG_FILE_BYTES_MAX, and end it with a zero. The file must belong to root or
 * to this user and not be writable by everybody. If it does not exist, sets `*text` to NULL and returns 0. */
int config_read_file(const char *path, char **text, struct error *error);
/* The key with this name in `section`; else -EINVAL, with a message that lists the keys of the section. */
int config_key_find(enum config_section section, const char *name, const struct config_key **key,
                    struct error *error);
/* Put "PATH:LINE: " before the message of `cause`. */
int config_blame(const char *path, unsigned line, const struct error *cause, struct error *error);
