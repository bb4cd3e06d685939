/* led_daemon.h - a daemon whose cards are shown by an NVML that the test leads. For tests whose argv[1] is the led NVML;
 * lead_nvml() loads it. */
#pragma once

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "daemon/gpu/gpu.h"
#include "daemon/gpu/sampler.h"
#include "daemon/loop/daemon.h"
#include "led_nvml.h"

static const char *library;
static struct led_nvml *led;
static struct daemon daemon_state;

/* Changes what NVML shows. */
#define LEAD(statement)                                                                                      \
    do {                                                                                                     \
        pthread_mutex_lock(&led->lock);                                                                      \
        statement;                                                                                           \
        pthread_mutex_unlock(&led->lock);                                                                    \
    } while (0)

/* A daemon with a loop, not started yet, and one card of 1,000 bytes that nobody uses. */
static int begin_daemon(void **state)
{
    daemon_state = (struct daemon){.options.simulated = true};
    LEAD(led->init_result = led->memory_result = NVML_SUCCESS; led->card_count = 1; led->total_bytes = 1000;
         led->used_bytes = led->kept_bytes = 0; led->kept_result = NVML_SUCCESS; led->is_partitioned = false;
         led->instances = 0; led->process_count = 0; led->bytes_of_each = 0; led->on_processes = NULL;
         led->entry_bytes = 0; led->processes_result = NVML_SUCCESS; led->lost_cards = led->busy_percent = 0);
    return sd_event_new(&daemon_state.loop) < 0 ? -1 : 0;
}

static int end_daemon(void **state)
{
    gpu_stop(&daemon_state);
    sd_event_unref(daemon_state.loop);
    return 0;
}

static void start(void)
{
    struct error error = {0};
    if (gpu_start(&daemon_state, library, &error) < 0)
        fail_msg("%s", error.message);
}

static void set_true(void *argument)
{
    *(bool *)argument = true;
}

/* Run the loop until `*done`, at most a while. */
static void run_until(const bool *done)
{
    uint64_t limit = daemon_now_usec() + 20000000;
    while (!*done && daemon_now_usec() < limit)
        assert_true(sd_event_run(daemon_state.loop, 1000000) >= 0);
    assert_true(*done);
}

static void refresh(void)
{
    bool done = false;
    gpu_refresh(&daemon_state, set_true, &done);
    run_until(&done);
}

/* Whether the led NVML named on the command line could be loaded; says why not. */
static bool lead_nvml(int count, char **arguments)
{
    if (count != 2) {
        fprintf(stderr, "usage: %s LED_NVML\n", arguments[0]);
        return false;
    }
    library = arguments[1];
    void *handle = dlopen(library, RTLD_NOW);
    led = handle ? dlsym(handle, "led") : NULL;
    if (!led)
        fprintf(stderr, "%s\n", dlerror());
    return led;
}
