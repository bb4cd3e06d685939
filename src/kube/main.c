/* gpuslice-kubelet: options, start and end. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "kube/dra/dra.h"
#include "kube/kubelet.h"
#include "kube/node/node.h"
#include "kube/node/notes.h"
#include "kube/node/tasks.h"
#include "kube/slices/offered.h"
#include "kube/slices/pods.h"
#include "kube/slices/slices.h"

#define TICK_USEC UINT64_C(1000000)
#define LOOK_NS (UINT64_C(3) * 1000000000) /* between two requests for the GPUs */
#define RETRY_NS (UINT64_C(1) * 1000000000)
#define SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/"

static const struct {
    const char *name, *argument;
    int letter;
    const char *help;
} options[] = {
    {"mode", "MODE", 'm', "dra, device-plugin or both (dra)"},
    {"node", "NAME", 'n', "the node's name in the cluster (NODE_NAME)"},
    {"resource", "NAME", 'r', "the resource that pods ask for by the device plug-in (gpuslice.io/gpu)"},
    {"slices", "NUMBER", 's', "how many slices a GPU has for the device plug-in (10)"},
    {"slice-memory", "SIZE", 'M', "memory of a slice; without it, an equal part of the GPU's"},
    {"slice-compute", "SHARE", 'C',
     "share of a container with slices; without it, an equal part for each, up to 100%"},
    {"slice-oversubscribe", "[=ENGINE]", 'o',
     "the memory of containers with slices can leave the card: swap (without ENGINE), managed, or none"},
    {"without-driver", NULL, 'w',
     "something else gives containers the NVIDIA driver, such as nvidia.com/gpu"},
    {"kubelet-dir", "FOLDER", 'k', "the kubelet's folder (/var/lib/kubelet)"},
    {"cdi-dir", "FOLDER", 'c', "the folder for CDI specifications (/var/run/cdi)"},
    {"device-dir", "FOLDER", 'd', "the path of the host's /dev (/dev)"},
    {"api-server", "URL", 'a',
     "the API server, https://HOST:PORT; without it, the server that the pod's environment names"},
    {"token-file", "FILE", 't', "the service account's token, read for each request"},
    {"ca-file", "FILE", 'A', "the file with which to check the API server's certificate"},
    {"simulated", NULL, 'f', "the daemon offers simulated GPUs (also GPUSLICE_SIMULATED=1)"},
    {"version", NULL, 'V', "print the version"},
    {"help", NULL, 'h', "print this"},
};
#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

static bool is_optional(const char *argument)
{
    return argument[0] == '[';
}

static int has_argument(const char *argument)
{
    return !argument ? no_argument : is_optional(argument) ? optional_argument : required_argument;
}

static void print_help(void)
{
    puts("Usage: gpuslice-kubelet [OPTION]...\nOffers this node's GPUs to its kubelet, so that pods can "
         "share them.\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char left[40];
        bool is_spaced = options[i].argument && !is_optional(options[i].argument);
        snprintf(left, sizeof(left), "--%s%s%s", options[i].name, is_spaced ? " " : "",
                 options[i].argument ? options[i].argument : "");
        printf("  %-22s %s\n", left, options[i].help);
    }
}

static int wrong(const char *option, const char *message)
{
    fprintf(stderr, "gpuslice-kubelet: --%s: %s\n", option, message);
    return 2;
}

/* Returns -1 to go on; otherwise the exit status. */
static int take_option(struct kubelet_options *chosen, int letter, const char *value)
{
    struct error error;
    uint64_t number;
    switch (letter) {
    case 'm':
        chosen->dra = strcmp(value, "dra") == 0 || strcmp(value, "both") == 0;
        chosen->slices = strcmp(value, "device-plugin") == 0 || strcmp(value, "both") == 0;
        return chosen->dra || chosen->slices ? -1 : wrong("mode", "expected dra, device-plugin or both");
    case 's':
        if (units_parse_number(value, 1000, &number, &error) < 0 || number == 0)
            return wrong("slices", "expected a number from 1 to 1000");
        chosen->slice_count = (unsigned)number;
        return -1;
    case 'M':
        return units_parse_bytes(value, &chosen->slice_bytes, &error) < 0
                   ? wrong("slice-memory", error.message)
                   : -1;
    case 'C':
        return units_parse_share(value, &chosen->slice_compute, &error) < 0
                   ? wrong("slice-compute", error.message)
                   : -1;
    case 'o':
        if (!value || strcmp(value, "true") == 0) /* the chart's value may be `true` */
            value = "swap";
        return session_engine_parse(value, &chosen->slice_engine)
                   ? -1
                   : wrong("slice-oversubscribe", "expected swap, managed or none");
    case 'n':
        chosen->node = value;
        return -1;
    case 'r':
        chosen->resource = value;
        return -1;
    case 'w':
        chosen->driver = CONTAINER_DRIVER_ABSENT;
        return -1;
    case 'k':
        chosen->kubelet_dir = value;
        return -1;
    case 'c':
        chosen->cdi_dir = value;
        return -1;
    case 'd':
        chosen->device_dir = value;
        return -1;
    case 'a':
        chosen->api.url = value;
        return -1;
    case 't':
        chosen->api.token_file = value;
        return -1;
    case 'A':
        chosen->api.ca_file = value;
        return -1;
    case 'f':
        chosen->simulated = true;
        return -1;
    case 'V':
        printf("gpuslice-kubelet %s\n", GPUSLICE_VERSION);
        return 0;
    default:
        print_help();
        return 0;
    }
}

static int parse_options(struct kubelet_options *chosen, int count, char **arguments)
{
    struct option table[OPTION_COUNT + 1] = {0};
    int status = -1;
    for (size_t i = 0; i < OPTION_COUNT; i++)
        table[i] = (struct option){
            .name = options[i].name, .has_arg = has_argument(options[i].argument), .val = options[i].letter};
    opterr = 0; /* we print the message ourselves, in one line */
    for (int letter; status == -1 && (letter = getopt_long(count, arguments, ":", table, NULL)) != -1;) {
        if (letter == ':' || letter == '?') {
            fprintf(stderr, "gpuslice-kubelet: '%.80s' %s; try 'gpuslice-kubelet --help'\n",
                    arguments[optind - 1],
                    letter == ':' ? "needs a value" : "is not an option, or takes no value");
            return 2;
        }
        status = take_option(chosen, letter, optarg);
    }
    if (status == -1 && optind < count) {
        fprintf(stderr, "gpuslice-kubelet: '%s' is an unexpected argument; try 'gpuslice-kubelet --help'\n",
                arguments[optind]);
        return 2;
    }
    return status;
}

/* The API server that Kubernetes names in a pod's environment. */
static void find_api_server(struct api_place *api)
{
    static char url[300];
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    if (api->url || !host || !port)
        return;
    snprintf(url, sizeof(url), strchr(host, ':') ? "https://[%.200s]:%.20s" : "https://%.200s:%.20s", host,
             port);
    api->url = url;
    if (!api->token_file)
        api->token_file = SERVICE_ACCOUNT "token";
    if (!api->ca_file)
        api->ca_file = SERVICE_ACCOUNT "ca.crt";
}

static int check_options(const struct kubelet_options *chosen)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz-.";
    const char *node = chosen->node, *slash = strchr(chosen->resource, '/');
    if (chosen->dra && (!node || !*node || strlen(node) > 253 || node[strspn(node, letters)] != '\0'))
        return wrong("node", "expected the node's name in the cluster; or set NODE_NAME");
    if (chosen->dra && !chosen->api.url)
        return wrong("api-server", "expected https://HOST:PORT; only inside a pod the environment names it");
    if (chosen->slices && (!slash || slash == chosen->resource || !slash[1]))
        return wrong("resource", "expected a name like gpuslice.io/gpu");
    return -1;
}

/* --- The loop -------------------------------------------------------------------------------------- */

static void ask_node(void *context)
{
    struct kubelet *kubelet = context;
    static bool is_failure_told;
    struct error error;
    int result = node_look(kubelet, &error);
    if (result == 0 && kubelet->options.slices)
        result = offered_look(kubelet, &error);
    if (result == -ECANCELED)
        return;
    if (result < 0 && !is_failure_told)
        fprintf(stderr, "gpuslice-kubelet: %s; asking again\n", error.message);
    if (result == 0 && is_failure_told)
        fprintf(stderr, "gpuslice-kubelet: the daemon answers\n");
    is_failure_told = result < 0;
    kubelet->is_looking = false;
    kubelet_look_soon(kubelet);
}

/* Only one request at a time: a daemon that hangs delays nothing else. */
static void look_at_node(struct kubelet *kubelet)
{
    static uint64_t looked_ns;
    if (kubelet->is_looking ||
        (looked_ns && monotonic_ns() - looked_ns < (kubelet->daemon_lost_ns ? RETRY_NS : LOOK_NS)))
        return;
    looked_ns = monotonic_ns();
    kubelet->is_looking = true;
    if (!task_start(ask_node, kubelet))
        kubelet->is_looking = false;
}

/* ldconfig may run several times in a row, when packages are installed. */
#define SETTLE_NS (UINT64_C(30) * 1000000000)

/* A container has the host's cache of libraries as it was when the container was made. So when the host gets another
 * one, as with a driver, the plug-in ends and is started again, in a new container. */
static void look_at_linker_cache(struct kubelet *kubelet)
{
    static uint64_t outdated_ns; /* since when; 0: it is not */
    const struct kubelet_options *chosen = &kubelet->options;
    if (chosen->simulated || chosen->driver != CONTAINER_DRIVER_HOST ||
        !container_mount_is_outdated(CONTAINER_LINKER_CACHE)) {
        outdated_ns = 0;
        return;
    }
    if (!outdated_ns)
        outdated_ns = monotonic_ns();
    if (monotonic_ns() - outdated_ns < SETTLE_NS)
        return;
    fprintf(stderr, "gpuslice-kubelet: the host has another " CONTAINER_LINKER_CACHE
                    " now, perhaps with another driver; a new container gets it\n");
    sd_event_exit(kubelet->loop, -EBUSY);
}

static int on_tick(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct kubelet *kubelet = userdata;
    sd_event_source_set_time_relative(source, TICK_USEC);
    look_at_node(kubelet);
    look_at_linker_cache(kubelet);
    slices_tick(kubelet);
    pods_tick(kubelet);
    dra_tick(kubelet);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int run(struct kubelet *kubelet, struct error *error)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    signal(SIGPIPE, SIG_IGN);
    int result = sd_event_new(&kubelet->loop);
    if (result >= 0)
        result = sd_event_add_signal(kubelet->loop, NULL, SIGTERM, NULL, NULL);
    if (result >= 0)
        result = sd_event_add_signal(kubelet->loop, NULL, SIGINT, NULL, NULL);
    if (result >= 0)
        result = sd_event_add_time_relative(kubelet->loop, &kubelet->tick, CLOCK_MONOTONIC, 0, 0, on_tick,
                                            kubelet);
    if (result < 0)
        return error_set_errno(error, -result, "cannot start the event loop");
    if ((result = asker_open(kubelet->loop, &kubelet->asker, error)) < 0)
        return result;
    if ((kubelet->options.slices && (result = slices_start(kubelet, error)) < 0) ||
        (result = dra_start(kubelet, error)) < 0)
        return result;
    result = sd_event_loop(kubelet->loop);
    if (result == -EBUSY)
        return error_set(error, EBUSY, NULL, "gpuslice-kubelet ends; see the line above");
    return result < 0 ? error_set_errno(error, -result, "the event loop broke") : 0;
}

int main(int count, char **arguments)
{
    static struct kubelet kubelet = {.options = {.dra = true,
                                                 .resource = "gpuslice.io/gpu",
                                                 .slice_count = 10,
                                                 .kubelet_dir = "/var/lib/kubelet",
                                                 .cdi_dir = "/var/run/cdi",
                                                 .device_dir = "/dev"}};
    const char *simulated = getenv("GPUSLICE_SIMULATED");
    struct error error;
    kubelet.options.node = getenv("NODE_NAME");
    kubelet.options.simulated = simulated && *simulated && strcmp(simulated, "0") != 0;
    int status = parse_options(&kubelet.options, count, arguments);
    if (status == -1) {
        find_api_server(&kubelet.options.api);
        status = check_options(&kubelet.options);
    }
    if (status != -1)
        return status;
    int result = paths_find(&kubelet.paths, PATHS_SYSTEM_DAEMON, kubelet.options.simulated, &error);
    if (result == 0)
        result = run(&kubelet, &error);
    asker_close(kubelet.asker);
    notes_stop(&kubelet);
    pods_stop(&kubelet);
    slices_stop(&kubelet);
    dra_stop(&kubelet);
    sd_event_source_unref(kubelet.tick);
    if (kubelet.loop)
        sd_event_unref(kubelet.loop);
    json_decref(kubelet.gpus);
    if (result == 0)
        return EXIT_SUCCESS;
    fprintf(stderr, "gpuslice-kubelet: %s\n", error.message);
    return EXIT_FAILURE;
}
