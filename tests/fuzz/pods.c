/* The annotations of a pod, which its author writes: what is asked of its session is never more than it has, and what cannot be
 * read is said in a text of bounded length. */
#include "fuzz.h"
#include "kube/slices/pod_annotations.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes), problems[POD_PROBLEMS_TEXT];
    json_t *annotations = json_loads(text, 0, NULL);
    json_t *gpus = json_loads(
        "[{\"uuid\":\"GPU-AA\",\"limit_bytes\":1000},{\"uuid\":\"GPU-BB\",\"limit_bytes\":2000}]", 0, NULL);
    json_t *said = json_object(), *wish = pod_annotations_read(annotations, gpus, said, problems);
    fuzz_require(memchr(problems, '\0', sizeof(problems)));
    const json_t *gpu;
    size_t i;
    json_array_foreach(json_object_get(wish, "gpus"), i, gpu)
        fuzz_require(json_integer_value(json_object_get(gpu, "memory_bytes")) <= 2000);
    fuzz_require(json_integer_value(json_object_get(wish, "memory_bytes")) <= 2000);
    fuzz_require(json_object_size(said) <= json_object_size(wish));
    json_decref(wish);
    json_decref(said);
    json_decref(gpus);
    json_decref(annotations);
    free(text);
    return 0;
}
