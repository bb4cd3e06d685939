/* memory_saver - PyTorch's native allocator under memory_saver_preload.c, as a server that trains and generates by turns: its memory
 * is paused, resumed, and filled anew where no copy of it was kept. */
#include "torch_heaps.h"
#include "workload.h"

#include <dlfcn.h>
#include <stdlib.h>

static struct torch_heaps heaps;
static struct tensors tensors;

static CUresult alloc(struct tensor *tensor)
{
    return torch_alloc(&heaps, tensor);
}

static void release(struct tensor *tensor)
{
    torch_free(&heaps, tensor);
}

/* The saver's function, if it was preloaded. */
static void call_saver(const char *name)
{
    void (*function)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, name);
    if (!function)
        gallery_fail("%s is not there: memory_saver_preload.so was not preloaded", name);
    function();
}

static void pause_and_resume(const char *point)
{
    const size_t bytes = held(MEMORY), backup = getenv("SAVER_BACKUP") ? bytes : 0;
    call_saver("saver_pause");
    hold(MEMORY, -(ptrdiff_t)bytes);
    hold(PINNED, (ptrdiff_t)backup - (ptrdiff_t)held(PINNED));
    gallery_pause(point);
    call_saver("saver_resume");
    hold(MEMORY, (ptrdiff_t)bytes);
    if (backup == 0)
        for (unsigned i = 0; i < tensors.count; i++)
            tensor_fill(&tensors.list[i]);
    tensors_check(&tensors);
}

int main(int argument_count, char **words)
{
    const struct allocator allocator = {alloc, release, torch_empty_cache};
    gallery_begin(argument_count, words);
    torch_heaps_begin(&heaps);
    tensors_grow(&tensors, &allocator, wanted_bytes);
    gallery_pause("full");
    pause_and_resume("paused");
    tensors_drop(&tensors, &allocator, 3);
    tensors_grow(&tensors, &allocator, wanted_bytes);
    gallery_pause("resumed");
    pause_and_resume("paused-again");
    tensors_drop(&tensors, &allocator, 1);
    torch_empty_cache();
    return gallery_end();
}
