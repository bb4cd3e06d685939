/* session_properties.h - what can be said of a session: one row a property, and one struct for the values.
 *
 * The struct is the same in the command line, in requests, in the configuration, in the daemon's sessions and in the state
 * file. Each room fills and reads it by the rows, so that a property is added in session_properties.def. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/engine.h"
#include "base/error.h"
#include "base/priority.h"
#include "base/units.h"
#include "base/when_full.h"

#define PROPERTY_NAME_TEXT 64 /* a label of DNS, and a terminating zero */
#define PROPERTY_LABEL_TEXT 240
#define PROPERTY_POD_TEXT 254 /* the longest name in Kubernetes, and a terminating zero */

/* What happens to the programs of a session whose time is over. */
enum ttl_action { TTL_ACTION_NONE, TTL_ACTION_KILL, TTL_ACTION_COUNT };

enum session_property {
#define SESSION_PROPERTY(id, ...) PROPERTY_##id,
#include "config/session_properties.def"
#undef SESSION_PROPERTY
    PROPERTY_COUNT
};

struct session_properties {
    uint32_t given; /* the properties that somebody has named: bit 1 << PROPERTY_... of each */
    struct share compute;
    enum session_priority priority;
    uint64_t ttl_seconds; /* 0: no end */
    enum ttl_action ttl_action;
    enum ledger_engine engine;  /* how its memory is backed */
    bool may_pass_card;         /* its limits may be more than the card has */
    enum when_full when_full;   /* what happens when memory is short */
    uint64_t host_memory_bytes; /* the most that its evicted memory may take; 0: as much as there is */
    uint64_t
        wait_for_card_seconds; /* how long its programs wait for room on the card; 0: as long as it takes */
    uint64_t idle_suspend_seconds; /* it leaves the card after this long without work; 0: never by itself */
    /* What a cluster calls the container that the session is for; "": it is for none. */
    char namespace[PROPERTY_NAME_TEXT], pod[PROPERTY_POD_TEXT], container[PROPERTY_NAME_TEXT];
    char label[PROPERTY_LABEL_TEXT]; /* free words, "KEY=VALUE" with commas between; "": none */
};

/* How a value is written and stored. */
enum property_kind {
    PROPERTY_KIND_SHARE,   /* struct share: "25%", "20%..60%" */
    PROPERTY_KIND_WORD,    /* an enum: one of the row's words */
    PROPERTY_KIND_FLAG,    /* bool */
    PROPERTY_KIND_SECONDS, /* uint64_t: "90s", 1 to 2147483647 s; 0 for "never" */
    PROPERTY_KIND_SIZE,    /* uint64_t bytes: "4GiB", above 0; 0: no bound */
    PROPERTY_KIND_LABELS,  /* char[]: "KEY=VALUE,KEY=VALUE"; what is read is added to what is there */
    PROPERTY_KIND_NAME,    /* char[]: A-Z a-z 0-9 . _ - */
};

enum property_flag {
    IS_FIXED = 1 << 0,
    IN_SLICE = 1 << 1,
    IN_SLURM = 1 << 2,
    IS_LABEL = 1 << 3,
    NO_COLUMN = 1 << 4,
    BY_CHOICE = 1 << 5,
};

/* A row of session_properties.def, as far as code reads it. */
struct property {
    enum session_property id;
    enum property_kind kind;
    const char *name, *json, *noun;
    const char *answer;
    const char *const *words; /* by value; ends with NULL; the first may be NULL too: it has no word */
    size_t offset, bytes;     /* in struct session_properties */
    const char *claim;
    const char *option_help;
    unsigned flags;
};

extern const struct property session_properties[PROPERTY_COUNT];

static inline bool property_is_given(const struct session_properties *properties, enum session_property id)
{
    return properties->given >> id & 1;
}

/* Where the value of `row` is. */
static inline void *property_at(const struct property *row, struct session_properties *properties)
{
    return (char *)properties + row->offset;
}
static inline const void *property_of(const struct property *row, const struct session_properties *properties)
{
    return (const char *)properties + row->offset;
}

/* The row whose `name` is this, or whose JSON field is; NULL: there is none. */
const struct property *property_find_name(const char *name, size_t length);
const struct property *property_find_json(const char *field);

/* Read a value as people write it, and mark it as given. -EINVAL or -ERANGE changes nothing. */
int property_parse(const struct property *row, const char *text, struct session_properties *properties,
                   struct error *error);
/* Read the value of a request's field. -EINVAL with ERR_BAD_REQUEST. */
int property_from_json(const struct property *row, const json_t *value, struct session_properties *properties,
                       struct error *error);
/* The value for a request; null for "never" and "no bound". */
json_t *property_json(const struct property *row, const struct session_properties *properties);
/* Add what is given to the body of a request. */
void properties_to_json(const struct session_properties *properties, json_t *body);

/* Whether the value is within the bounds that hold for it whoever names it. */
int property_check_bound(const struct property *row, const struct session_properties *properties,
                         struct error *error);

/* Write the value as property_parse() reads it; for people. Returns `text`. */
#define PROPERTY_TEXT 256
const char *property_format(const struct property *row, const struct session_properties *properties,
                            char text[static PROPERTY_TEXT]);

/* Take the value of one property over, or that of each that is given in `from`. */
void property_copy(const struct property *row, struct session_properties *to,
                   const struct session_properties *from);
void properties_take_given(struct session_properties *to, const struct session_properties *from);

bool property_is_same(const struct property *row, const struct session_properties *one,
                      const struct session_properties *other);

/* How much a value allows: higher for more, as ceilings compare them. */
uint64_t property_rank(const struct property *row, const struct session_properties *properties);

/* "low, normal, high or critical", with `quote` around each word. Returns `text`. */
#define PROPERTY_WORDS_TEXT 128
const char *property_list_words(const struct property *row, const char *quote,
                                char text[static PROPERTY_WORDS_TEXT]);
