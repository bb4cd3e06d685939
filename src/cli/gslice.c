#include "cli/gslice.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static bool is_number(const char *word)
{
    return *word && word[strspn(word, "0123456789")] == '\0';
}

static bool ends_with(const char *word, const char *ending)
{
    size_t length = strlen(word), wanted = strlen(ending);
    return length >= wanted && strcmp(word + length - wanted, ending) == 0;
}

bool gslice_is_run(char *const *operands, unsigned count)
{
    return count >= 5 && is_number(operands[0]) && is_number(operands[1]) && ends_with(operands[2], ".so");
}

#define OPERAND_TEXT 40

/* gslice's numbers have no unit, which ours must have. */
static const char *with_unit(const char *operand, const char *unit, char text[static OPERAND_TEXT])
{
    snprintf(text, OPERAND_TEXT, "%.32s%s", operand, is_number(operand) ? unit : "");
    return text;
}

/* BYTES and SECONDS, or what --memory and --ttl take. */
static int read_wish(char *const *operands, unsigned count, struct session_wish *wish, struct error *error)
{
    char text[OPERAND_TEXT];
    int result = count > 0 ? memory_limits_parse(&wish->memory, with_unit(operands[0], "B", text), error) : 0;
    if (result == 0 && count > 1)
        result = property_parse(&session_properties[PROPERTY_TTL], with_unit(operands[1], "s", text),
                                &wish->properties, error);
    return result;
}

/* gslice's library folder holds its own stand-in for CUDA; the simulated GPU replaces that. Any other folder is
 * added to LD_LIBRARY_PATH, as gslice does. */
static void take_folder(const char *folder, struct cli_arguments *meant)
{
    char path[PATH_MAX];
    const char *old = getenv("LD_LIBRARY_PATH");
    cleanup_free char *both = NULL;
    snprintf(path, sizeof(path), "%s/libfakecuda.so", folder);
    if (access(path, F_OK) == 0)
        meant->simulated = true;
    else if (asprintf(&both, "%s%s%s", folder, old && *old ? ":" : "", old ? old : "") >= 0)
        setenv("LD_LIBRARY_PATH", both, 1);
}

int gslice_read_run(const struct cli_arguments *given, struct cli_arguments *meant, struct error *error)
{
    *meant = *given;
    int result = read_wish(given->operands, 2, &meant->wish, error);
    if (result < 0)
        return result;
    take_folder(given->operands[3], meant);
    meant->operands += 4;
    meant->operand_count -= 4;
    fprintf(stderr,
            "gpuslice: gslice's form of 'run'; it finds its libraries itself: gpuslice run%s --memory %sB "
            "--ttl %ss -- %s\n",
            meant->simulated ? " --simulated" : "", given->operands[0], given->operands[1],
            meant->operands[0]);
    return 0;
}

int gslice_read_run_existing(const struct cli_arguments *given, struct cli_arguments *meant,
                             struct error *error)
{
    *meant = *given;
    meant->session = given->operands[0];
    take_folder(given->operands[2], meant);
    meant->operands += 3;
    meant->operand_count -= 3;
    fprintf(stderr,
            "gpuslice: gslice's form; it finds its libraries itself: gpuslice run%s --session %s -- %s\n",
            meant->simulated ? " --simulated" : "", meant->session, meant->operands[0]);
    return 0;
}

int gslice_read_allocate(const struct cli_arguments *given, struct cli_arguments *meant, struct error *error)
{
    *meant = *given;
    meant->operand_count = 0;
    return read_wish(given->operands, given->operand_count, &meant->wish, error);
}
