/* gpuslice gpus: the cards, what is used of them and what sessions reserved. */
#include <stdio.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/session_fields.h"

static const struct cli_option options[] = {
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

enum { GPU, UUID, NAME, BAR, USAGE, BUSY, CELSIUS, WATTS, KEPT, UNCOVERED, RESERVED, SESSIONS };

static const struct table_column columns[] = {
    [GPU] = {"GPU", .right = true},
    [UUID] = {"UUID", .yields = 2},
    [NAME] = {"NAME", .shrink = true},
    [BAR] = {"MEMORY", .yields = 4},
    [USAGE] = {"USED / TOTAL", .right = true},
    [BUSY] = {"BUSY", .right = true},
    [CELSIUS] = {"TEMP", .right = true},
    [WATTS] = {"POWER", .right = true},
    [KEPT] = {"DRIVER", .right = true, .yields = 3},
    [UNCOVERED] = {"OUTSIDE", .right = true, .yields = 1},
    [RESERVED] = {"RESERVED", .right = true},
    [SESSIONS] = {"SESS", .right = true},
    {NULL},
};

#define UUID_SHOWN 12 /* "GPU-" and eight digits: enough for --gpu */

/* NVML's figure times `factor`, with its unit; "-" where NVML has none. */
static void fill_figure(struct table_cell *cell, const json_t *figure, double factor, const char *unit)
{
    if (json_is_number(figure))
        table_cell_print(cell, TABLE_PLAIN, "%.0f%s", factor * json_number_value(figure), unit);
    else
        table_cell_print(cell, TABLE_PLAIN, "-");
}

static void add_gpu(struct table *table, const json_t *gpu)
{
    char reserved[UNITS_BYTES_TEXT], uncovered[UNITS_BYTES_TEXT], kept[UNITS_BYTES_TEXT];
    bool healthy = json_is_true(json_object_get(gpu, "healthy"));
    struct table_cell *row = table_add_row(table);

    cells_gpu(&row[GPU], gpu);
    table_cell_print(&row[UUID], TABLE_PLAIN, "%.*s", UUID_SHOWN, session_text(gpu, "uuid"));
    if (healthy)
        cells_gpu_name(&row[NAME], gpu);
    else
        table_cell_print(&row[NAME], TABLE_RED, "does not answer");
    cells_usage(&row[BAR], session_number(gpu, "used_bytes"), session_number(gpu, "total_bytes"));
    fill_figure(&row[BUSY], json_object_get(gpu, "busy_ratio"), 100, "%");
    fill_figure(&row[CELSIUS], json_object_get(gpu, "temperature_celsius"), 1, "C");
    fill_figure(&row[WATTS], json_object_get(gpu, "power_watts"), 1, "W");
    table_cell_print(&row[KEPT], TABLE_PLAIN, "%s",
                     units_format_bytes(session_number(gpu, "kept_bytes"), kept));
    table_cell_print(&row[UNCOVERED], session_number(gpu, "uncovered_bytes") ? TABLE_YELLOW : TABLE_PLAIN,
                     "%s", units_format_bytes(session_number(gpu, "uncovered_bytes"), uncovered));
    table_cell_print(&row[RESERVED], TABLE_PLAIN, "%s",
                     units_format_bytes(session_number(gpu, "reserved_bytes"), reserved));
    table_cell_print(&row[SESSIONS], TABLE_PLAIN, "%llu",
                     (unsigned long long)session_number(gpu, "sessions"));
}

/* "train (pid 4711) of ana"; a program that has just ended, or is in another pid namespace, has neither name nor user. */
static void name_program(struct table_cell *cell, const json_t *process)
{
    unsigned long long pid = session_number(process, "pid");
    const char *command = session_text(process, "command"), *user = session_text(process, "user");
    if (*command)
        table_cell_print(cell, TABLE_PLAIN, "%s (pid %llu)%s%s", command, pid, *user ? " of " : "", user);
    else
        table_cell_print(cell, TABLE_PLAIN, "a program that cannot be seen from here (pid %llu)", pid);
}

/* Programs in no session, a line each. */
static void print_outsiders(const json_t *gpu)
{
    const json_t *process;
    size_t i;
    json_array_foreach(json_object_get(gpu, "processes"), i, process)
    {
        char used[UNITS_BYTES_TEXT];
        struct table_cell label, program;
        if (json_is_string(json_object_get(process, "session_id")))
            continue;
        cells_gpu(&label, gpu);
        name_program(&program, process);
        printf("outside of sessions on GPU %s: %s, %s\n", label.text, program.text,
               json_is_integer(json_object_get(process, "used_bytes"))
                   ? units_format_bytes(session_number(process, "used_bytes"), used)
                   : "the driver does not say how much");
    }
}

/* In what the GPU is not like a card of its own, a line each. */
static void print_traits(const json_t *gpu)
{
    const json_t *trait;
    size_t i;
    json_array_foreach(json_object_get(gpu, "traits"), i, trait)
    {
        struct table_cell label;
        cells_gpu(&label, gpu);
        printf("GPU %s is %s: %s\n", label.text, session_text(trait, "trait"), session_text(trait, "text"));
    }
}

static void print_table(const json_t *gpus)
{
    struct table table = {.columns = columns};
    const json_t *gpu;
    size_t i;
    json_array_foreach((json_t *)gpus, i, gpu)
    {
        add_gpu(&table, gpu);
    }
    table_print(&table, stdout, table_width(stdout), table_colour_wanted(stdout));
    json_array_foreach((json_t *)gpus, i, gpu)
    {
        print_traits(gpu);
        print_outsiders(gpu);
    }
    table_free(&table);
}

static enum cli_status run_gpus(const struct cli_arguments *arguments)
{
    json_t *gpus = NULL;
    struct error error;
    if (cells_get("/v1/gpus", arguments, &gpus, &error) < 0)
        return cli_report(&error);
    if (arguments->json)
        cells_print_json(gpus);
    else
        print_table(gpus);
    json_decref(gpus);
    return cli_finish_output();
}

const struct cli_verb verb_gpus = {
    .name = "gpus",
    .summary = "list the GPUs, what is used of them and what sessions reserved",
    .text = "TOTAL is the memory that programs can have, and DRIVER what the driver keeps beside it. BUSY is "
            "the part "
            "of the last second or so in which the GPU computed; it, TEMP and POWER are NVML's figures. "
            "RESERVED is the sum of what sessions were promised; USED is the memory of the card that any "
            "program holds; OUTSIDE is the part of it that processes outside of this daemon's sessions hold. "
            "Starts a daemon if none is running.",
    .options = options,
    .act = run_gpus,
};
