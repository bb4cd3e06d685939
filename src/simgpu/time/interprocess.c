/* interprocess.c - events that several processes record and wait for.
 *
 * Such an event is a place in a file of the process that made it: how often it was recorded, by anyone, and
 * the last of these records that was reached. A wait is for the last record there was when the wait began.
 * Places and their files stay mapped, as work that nobody waited for may still look at them; a place is used
 * again once all its records were reached.
 *
 * To a stream, recording is raising the second number and waiting is waiting for it: stream memory operations
 * (memops.h). */
#include "simgpu/time/interprocess.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "simgpu/time/execution.h"
#include "simgpu/time/memops.h"

#define PLACES 4096u
#define EVENT_MAGIC 0x67706576u
#define LOOK_NS 50000

struct event_place {
    _Atomic uint64_t recorded; /* how often */
    _Atomic uint64_t reached;  /* which of them, the highest */
};

/* What a handle of 64 bytes says. */
struct event_handle {
    uint32_t magic; /* EVENT_MAGIC */
    int32_t pid, fd;
    uint32_t place;
    uint32_t gpu;
    uint64_t inode; /* of `fd`, as `pid` may be another process by then */
};
_Static_assert(sizeof(struct event_handle) <= sizeof(CUipcEventHandle), "a handle's 64 bytes");

/* A file of places, ours or another process's. */
struct places {
    struct places *next;
    uint64_t inode;
    struct event_place *place;
};

static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static struct places *all_places;
static pid_t own_pid; /* whose the following are: a forked child begins anew */
static struct places *own_places;
static int own_fd = -1;
static bool is_used[PLACES];

/* --- Places ---------------------------------------------------------------------------------------- */

/* Under places_lock. The file's places; NULL without memory, or when it is not one of these files. */
static struct places *places_map(int fd)
{
    struct stat file;
    if (fstat(fd, &file) < 0 || file.st_size != (off_t)(PLACES * sizeof(struct event_place)))
        return NULL;
    for (struct places *known = all_places; known; known = known->next)
        if (known->inode == (uint64_t)file.st_ino)
            return known;
    struct places *places = malloc(sizeof(*places));
    void *memory = mmap(NULL, PLACES * sizeof(struct event_place), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!places || memory == MAP_FAILED) {
        if (memory != MAP_FAILED)
            munmap(memory, PLACES * sizeof(struct event_place));
        free(places);
        return NULL;
    }
    *places = (struct places){.next = all_places, .inode = (uint64_t)file.st_ino, .place = memory};
    all_places = places;
    return places;
}

/* Under places_lock. */
static bool own_places_make(void)
{
    if (own_pid == getpid())
        return own_places;
    own_pid = getpid();
    memset(is_used, 0, sizeof(is_used));
    own_places = NULL;
    if (own_fd >= 0)
        close(own_fd);
    own_fd = memfd_create("simulated-events", MFD_CLOEXEC);
    if (own_fd >= 0 && ftruncate(own_fd, PLACES * sizeof(struct event_place)) == 0)
        own_places = places_map(own_fd);
    return own_places;
}

static bool is_idle(const struct event_place *place)
{
    return atomic_load(&place->reached) >= atomic_load(&place->recorded);
}

struct event_place *interprocess_make(void)
{
    struct event_place *found = NULL;
    pthread_mutex_lock(&places_lock);
    if (own_places_make())
        for (unsigned i = 0; i < PLACES && !found; i++)
            if (!is_used[i] && is_idle(&own_places->place[i])) {
                is_used[i] = true;
                found = &own_places->place[i];
            }
    pthread_mutex_unlock(&places_lock);
    return found;
}

void interprocess_end(struct event_place *place)
{
    pthread_mutex_lock(&places_lock);
    if (own_pid == getpid() && own_places && place >= own_places->place && place < own_places->place + PLACES)
        is_used[place - own_places->place] = false;
    pthread_mutex_unlock(&places_lock);
}

/* --- Handles --------------------------------------------------------------------------------------- */

bool interprocess_name(const struct event_place *place, unsigned gpu, CUipcEventHandle *handle_out)
{
    pthread_mutex_lock(&places_lock);
    bool is_own =
        own_pid == getpid() && own_places && place >= own_places->place && place < own_places->place + PLACES;
    if (is_own) {
        const struct event_handle handle = {.magic = EVENT_MAGIC,
                                            .pid = (int32_t)own_pid,
                                            .fd = own_fd,
                                            .place = (uint32_t)(place - own_places->place),
                                            .gpu = gpu,
                                            .inode = own_places->inode};
        memset(handle_out, 0, sizeof(*handle_out));
        memcpy(handle_out, &handle, sizeof(handle));
    }
    pthread_mutex_unlock(&places_lock);
    return is_own;
}

CUresult interprocess_open(const CUipcEventHandle *given, unsigned *gpu, struct event_place **place)
{
    char path[64];
    struct event_handle handle;
    memcpy(&handle, given, sizeof(handle));
    SIM_REQUIRE(handle.magic == EVENT_MAGIC && handle.place < PLACES);
    if (handle.pid == (int32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT; /* as with memory: a process does not open its own */
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)handle.pid, (int)handle.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED; /* it is gone */
    pthread_mutex_lock(&places_lock);
    struct places *places = places_map(fd);
    pthread_mutex_unlock(&places_lock);
    close(fd);
    if (!places || places->inode != handle.inode)
        return CUDA_ERROR_MAP_FAILED;
    *gpu = handle.gpu;
    *place = &places->place[handle.place];
    return CUDA_SUCCESS;
}

/* --- Recording and waiting ------------------------------------------------------------------------- */

static CUstreamBatchMemOpParams on_reached(CUstreamBatchMemOpType type, struct event_place *place,
                                           uint64_t value)
{
    return (CUstreamBatchMemOpParams){
        .waitValue = {.operation = type,
                      .address = (CUdeviceptr)(uintptr_t)&place->reached,
                      .value64 = value,
                      .flags = type == CU_STREAM_MEM_OP_WAIT_VALUE_64 ? CU_STREAM_WAIT_VALUE_GEQ : 0}};
}

CUresult interprocess_record(struct event_place *place, CUcontext context, CUstream stream)
{
    CUstreamBatchMemOpParams raise =
        on_reached(MEMOP_RAISE_64, place, atomic_fetch_add(&place->recorded, 1) + 1);
    return memops_submit(context, stream, &raise, 1);
}

CUresult interprocess_wait(struct event_place *place, CUcontext context, CUstream stream)
{
    CUstreamBatchMemOpParams wait =
        on_reached(CU_STREAM_MEM_OP_WAIT_VALUE_64, place, atomic_load(&place->recorded));
    return memops_submit(context, stream, &wait, 1);
}

bool interprocess_query(const struct event_place *place)
{
    return is_idle(place);
}

void interprocess_synchronize(const struct event_place *place)
{
    uint64_t wanted = atomic_load(&place->recorded);
    while (atomic_load(&place->reached) < wanted)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
}
