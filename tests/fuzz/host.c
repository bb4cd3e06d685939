/* The Host header of requests over TCP. */
#include <strings.h>

#include "daemon/http/http_tcp.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    if (http_tcp_is_local_host(text))
        fuzz_require(strncasecmp(text, "localhost", 9) == 0 || strncmp(text, "127.", 4) == 0 ||
                     strncmp(text, "[::1]", 5) == 0);
    free(text);
    return 0;
}
