/* replay - hand a fuzz target every file of a corpus folder once: replay FOLDER. */
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz.h"

static void replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    fuzz_require(file && fstat(fileno(file), &status) == 0);
    size_t bytes = (size_t)status.st_size;
    uint8_t *data = malloc(bytes ? bytes : 1);
    fuzz_require(data && fread(data, 1, bytes, file) == bytes);
    fclose(file);
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, bytes);
    free(data);
}

int main(int count, char **arguments)
{
    fuzz_require(count == 2);
    struct dirent **entries;
    int found = scandir(arguments[1], &entries, NULL, alphasort);
    unsigned replayed = 0;
    for (int i = 0; i < found; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", arguments[1], entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            replay(path);
            replayed++;
        }
        free(entries[i]);
    }
    fuzz_require(found >= 0 && replayed > 0);
    free(entries);
    return 0;
}
