#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Messages quote words and answers of others, so control characters are replaced here too, whatever was done
 * before. */
static void print_line(const char *message, const char *behind)
{
    char line[ERROR_MESSAGE_BYTES];
    size_t length = 0;
    for (; message[length] && length < sizeof(line) - 1; length++)
        line[length] =
            (unsigned char)message[length] < ' ' || message[length] == 0x7f ? '?' : message[length];
    line[length] = '\0';
    fprintf(stderr, "gpuslice: %s%s\n", line, behind);
}

enum cli_status cli_report(const struct error *error)
{
    print_line(error->message, "");
    return CLI_FAILED;
}

enum cli_status cli_report_usage(const struct cli_verb *verb, const struct error *error)
{
    char behind[64];
    snprintf(behind, sizeof(behind), "; see 'gpuslice %s%s--help'", verb ? verb->name : "", verb ? " " : "");
    print_line(error->message, behind);
    return CLI_WRONG_USAGE;
}

enum cli_status cli_finish_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CLI_DONE;
    struct error error;
    error_set_errno(&error, errno, "cannot write to standard output");
    return cli_report(&error);
}
