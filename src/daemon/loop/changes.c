#include "daemon/loop/changes.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "daemon/loop/daemon.h"

#define MESSAGE_BYTES 512

void change_observe(struct daemon *daemon, struct observer *observer)
{
    SLIST_INSERT_HEAD(&daemon->observers, observer, next);
}

void change_observe_no_more(struct daemon *daemon, struct observer *observer)
{
    SLIST_REMOVE(&daemon->observers, observer, observer, next);
}

void change_publish(struct daemon *daemon, const struct change *change, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    struct change told = *change;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    error_make_one_line(message); /* it may quote what others wrote, and be cut */
    told.message = message;
    for (struct observer *at = SLIST_FIRST(&daemon->observers), *next; at; at = next) {
        next = SLIST_NEXT(at, next);
        at->take(at->context, &told);
    }
}

void change_await(struct daemon *daemon, const char *session_id, change_done done, void *argument)
{
    struct observer *observer;
    SLIST_FOREACH (observer, &daemon->observers, next) {
        if (observer->await) {
            observer->await(observer->context, session_id, done, argument);
            return;
        }
    }
    done(argument, 0, NULL);
}

const char *change_event(enum change_kind kind)
{
    static const char *const events[CHANGE_KINDS] = {
#define CHANGE(name, event, audience, rate) [CHANGE_##name] = event,
#include "daemon/loop/changes.def"
#undef CHANGE
    };
    return events[kind];
}
