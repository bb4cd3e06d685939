/* http_connection.h - what http.c serves, and what answers need of the connection they are sent on. */
#pragma once

#include <stdbool.h>
#include <systemd/sd-event.h>

#include "daemon/http/http.h"
#include "daemon/http/http_tcp.h"

#define TURNED_AWAY_MAX 16

struct MHD_Daemon;
struct listener;
struct http_crowd;
struct http_guest;
struct http_relay;
struct deferred;

/* One listening socket: libmicrohttpd without threads, its epoll descriptor inside our loop. */
struct server {
    struct daemon *daemon;
    struct MHD_Daemon *mhd;
    enum http_door door;
    struct listener *listener;
    struct http_crowd *crowd; /* for TCP */
    /* The guest that on_enter_tcp() is about to hand over; NULL: libmicrohttpd has it. */
    struct http_guest *entering_guest;
    struct peer entering;              /* the peer that on_enter() is about to hand over */
    struct http_relay *entering_relay; /* NULL: that peer needs none, or libmicrohttpd has it */
    int turned_away[TURNED_AWAY_MAX];  /* the last ones, as descriptor + 1; 0: none */
    unsigned turned_away_count;
    sd_event_source *turned_away_end;
    sd_event_source *ready, *timer;
    struct deferred *due; /* MHD_run() has something to do that no descriptor shows */
};

struct http {
    http_handler handle;
    struct http_turns *turns;
    struct server servers[HTTP_DOORS];
    uint64_t run_began_usec; /* when libmicrohttpd was last called */
    bool is_stopping;
    char token[HTTP_TOKEN_TEXT];     /* for HTTP_TOKEN */
    char address[HTTP_ADDRESS_TEXT]; /* the same; "": not served */
};

/* Have libmicrohttpd leave the connection alone until it is resumed. */
void http_suspend(struct http_request *request);
/* Nothing if the connection is not suspended. */
void http_resume(struct http_request *request);

/* Suspend the connection until the request has its turn (http_turns.h). */
void http_wait_for_turn(struct http_request *request);
/* Whether the loop has been inside libmicrohttpd for so long that others should come first. */
bool http_has_run_long(const struct http_request *request);

/* The body that reports an error; the caller frees it. NULL without memory. */
char *http_error_text(const struct error *error);
