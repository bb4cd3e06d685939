/* differ.c - differ SEED CALLS [QUOTA]
 *
 * Writes a line a call on stdout:
 *
 *   actor.number symbol way arguments = RESULT what came back
 *
 * and at the end what each hooked entry point was called. With QUOTA the program runs under the interceptor
 * alone, and after every call checks what is charged against what the driver itself holds, asked behind the
 * interceptor's back: the same to the byte and never above the quota; and that what was refused did not fit.
 * The exit status is 1 if not.
 *
 * DIFFER_PEER: another process makes memory for this one to import; NVML, which would show that process
 * outside of a session alone, is then not asked.
 *
 * DIFFER_MOVES: the calls are those that answer alike wherever memory lies: nothing is done with an address that was given
 * back, which is another's sooner or later; and nothing is copied from behind an allocation's end, where an engine may have
 * room. How much a pool had at most follows from when the program waited. Memory of pools is used beyond the contexts that it was made
 * in; else, and with DIFFER_MOVES=managed, where what is allocated in a stream's order goes with its context, the program loses
 * sight of it.
 *
 * DIFFER_ALLOWED=more: in a daemon's session the driver line may charge what the driver takes unasked, so
 * what is charged may be more than what was asked for. */
#include "differ.h"

#include <dlfcn.h>
#include <elf.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/entry_points.h"
#include "kernels_ptx.h"

#define ACTORS 3
#define THINGS 20000
#define ROWS 192
#define NO_QUOTA_BYTES (UINT64_C(1) << 35) /* the largest that the test sets */

static struct actor actors[ACTORS];
static struct thing things[THINGS];
static unsigned thing_count, numbers[KINDS];
static struct row rows[ROWS];
static unsigned row_count, total_weight, called[ROWS], succeeded[ROWS];
static bool entry_tried[CUDA_ENTRY_COUNT];
void *nvml_library;
static void *cuda_library;
char *kernels_text;

static uint64_t quota_bytes;
static bool more_allowed;
bool memory_moves;
static bool loses_sight; /* of memory whose context has gone */
static unsigned faults;

/* --- Chance ---------------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    uint64_t word = *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

uint64_t chance(struct actor *actor, uint64_t below)
{
    return next(&actor->random) % below;
}

bool one_in(struct actor *actor, unsigned of)
{
    return chance(actor, of) == 0;
}

uint64_t some_bytes(struct actor *actor)
{
    static const uint64_t edges[] = {
        0,     1,       255,           511,     512,           513,     4096,
        65536, 1 << 20, (1 << 21) - 1, 1 << 21, (1 << 21) + 1, 1 << 22, 5 << 20,
    };
    static const uint64_t huge[] = {UINT64_C(1) << 40, SIZE_MAX, SIZE_MAX - 511, SIZE_MAX / 2,
                                    UINT64_C(1) << 63};
    switch (chance(actor, 8)) {
    case 0:
        return huge[chance(actor, 5)];
    case 1:
    case 2:
    case 3:
        return edges[chance(actor, sizeof(edges) / sizeof(edges[0]))];
    case 4:
        return chance(actor, 6 << 20);
    default:
        return chance(actor, 100000);
    }
}

CUdevice some_device(struct actor *actor)
{
    static const CUdevice devices[] = {0, 0, 0, 0, 0, 1, 1, 1, 2, -1, INT32_MAX};
    CUdevice device = devices[chance(actor, 11)];
    put(actor, "device %d ", device);
    return device;
}

CUdevice some_place(struct actor *actor)
{
    CUdevice device = some_device(actor);
    actor->gpu = device == 1;
    return device;
}

/* --- Things ---------------------------------------------------------------------------------------- */

static bool is_address(enum kind kind)
{
    return kind == MEMORY || kind == HOST || kind == ADDRESSES || kind == MAPPING || kind == OPENED;
}

/* Where the values of ended things are addresses, they may be somebody's again, here or there only as the
 * machine lays out memory: such a value is replaced by one that never is anybody's. */
static uint64_t ended_value(const struct thing *ended)
{
    static const uint64_t nothing[32];
    /* The interceptor makes some, one of which may have its handle now. */
    if (ended->kind == EVENT || (memory_moves && ended->kind == HANDLE))
        return (uint64_t)(uintptr_t)nothing;
    if (!is_address(ended->kind))
        return ended->value;
    if (memory_moves)
        return 0x200000;
    for (unsigned i = 0; i < thing_count; i++) {
        const struct thing *thing = &things[i];
        if (thing->alive && is_address(thing->kind) && ended->value + (4 << 20) > thing->value &&
            ended->value < thing->value + thing->bytes)
            return 0x200000;
    }
    return ended->value;
}

static struct thing *random_of(struct actor *actor, enum kind kind, bool alive)
{
    unsigned count = 0;
    for (unsigned i = 0; i < thing_count; i++)
        count += things[i].kind == kind && things[i].alive == alive;
    if (!count)
        return NULL;
    uint64_t which = chance(actor, count);
    for (unsigned i = 0;; i++)
        if (things[i].kind == kind && things[i].alive == alive && which-- == 0)
            return &things[i];
}

struct thing *random_living(struct actor *actor, enum kind kind)
{
    return random_of(actor, kind, true);
}

uint64_t pick(struct actor *actor, enum kind kind)
{
    uint64_t way = chance(actor, kind == STREAM ? 16 : 20); /* ended streams: stream_destroy() */
    struct thing *thing = random_of(actor, kind, way < 16);
    if (!thing || way == 19) {
        put(actor, "no%d ", (int)kind);
        return 0;
    }
    put(actor, "%s%d.%u ", way < 16 ? "" : "ended ", (int)kind, thing->number);
    return way < 16 ? thing->value : ended_value(thing);
}

struct thing *find_living(enum kind kind, uint64_t value)
{
    for (unsigned i = thing_count; i-- > 0;)
        if (things[i].kind == kind && things[i].alive && things[i].value == value)
            return &things[i];
    return NULL;
}

uint64_t current_context(void)
{
    CUcontext context = NULL;
    return cuCtxGetCurrent(&context) == CUDA_SUCCESS ? (uint64_t)(uintptr_t)context : 0;
}

unsigned current_gpu(void)
{
    CUdevice device;
    return cuCtxGetDevice(&device) == CUDA_SUCCESS && device == 1;
}

struct thing *add_thing(struct actor *actor, enum kind kind, uint64_t value, uint64_t bytes)
{
    if (thing_count == THINGS) {
        /* Forget what has ended. */
        unsigned kept = 0;
        for (unsigned i = 0; i < thing_count; i++)
            if (things[i].alive)
                things[kept++] = things[i];
        thing_count = kept;
    }
    if (thing_count == THINGS)
        abort();
    struct thing *thing = &things[thing_count++];
    *thing = (struct thing){.kind = kind,
                            .alive = true,
                            .number = numbers[kind]++,
                            .value = value,
                            .bytes = bytes,
                            .context = kind == CONTEXT ? value : current_context(),
                            .gpu = current_gpu()};
    return thing;
}

void name_address(struct named *named, uint64_t address)
{
    for (unsigned i = thing_count; i-- > 0 && named->count < NAMED_MOST;) {
        const struct thing *thing = &things[i];
        if (thing->alive && is_address(thing->kind) && thing->kind != ADDRESSES && address >= thing->value &&
            address - thing->value < (thing->bytes ? thing->bytes : 1)) {
            named->kinds[named->count] = thing->kind;
            named->numbers[named->count++] = thing->number;
            return;
        }
    }
    named->has_gone = true;
}

static bool is_there(enum kind kind, unsigned number)
{
    for (unsigned i = 0; i < thing_count; i++)
        if (things[i].alive && things[i].kind == kind && things[i].number == number)
            return true;
    return false;
}

bool is_named_there(const struct named *named)
{
    for (unsigned i = 0; i < named->count; i++)
        if (!is_there(named->kinds[i], named->numbers[i]))
            return false;
    return !named->has_gone;
}

void end_thing(enum kind kind, uint64_t value)
{
    struct thing *thing = find_living(kind, value);
    if (thing)
        thing->alive = false;
}

static bool is_gone(const struct thing *thing)
{
    CUmemorytype type;
    return thing->alive && thing->kind == MEMORY &&
           cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, thing->value) != CUDA_SUCCESS;
}

/* Of memory, that of pools is no context's. */
static bool outlives_contexts(const struct thing *thing)
{
    switch (thing->kind) {
    case MEMORY:
        return !loses_sight && !is_gone(thing);
    case POOL:
    case HANDLE:
    case ADDRESSES:
    case MAPPING:
    case LIBRARY:
    case GRAPH:
    case EXEC:
        return true;
    default:
        return false;
    }
}

void end_context(uint64_t context)
{
    for (unsigned i = 0; i < thing_count; i++)
        if (things[i].context == context && !outlives_contexts(&things[i]))
            things[i].alive = false;
}

unsigned count_living(enum kind kind)
{
    unsigned count = 0;
    for (unsigned i = 0; i < thing_count; i++)
        count += things[i].kind == kind && things[i].alive;
    return count;
}

bool has_context(unsigned gpu)
{
    CUdevice device;
    for (unsigned i = 0; i < thing_count; i++)
        if (things[i].alive && things[i].kind == CONTEXT &&
            cuCtxGetDevice_v2(&device, (CUcontext)(uintptr_t)things[i].value) == CUDA_SUCCESS &&
            device == (CUdevice)gpu)
            return true;
    return false;
}

void put_address(struct actor *actor, uint64_t address)
{
    for (unsigned i = thing_count; i-- > 0;) {
        const struct thing *thing = &things[i];
        if (thing->alive && is_address(thing->kind) && thing->kind != ADDRESSES && address >= thing->value &&
            address - thing->value < (thing->bytes ? thing->bytes : 1)) {
            put(actor, " %d.%u+%" PRIu64, (int)thing->kind, thing->number, address - thing->value);
            return;
        }
    }
    put(actor, " somewhere");
}

/* --- Lines ----------------------------------------------------------------------------------------- */

void put(struct actor *actor, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof(actor->line) - actor->length;
    int length = vsnprintf(actor->line + actor->length, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        actor->length += (size_t)length < room ? (size_t)length : room - 1;
}

static CUresult last_result;

void put_result(struct actor *actor, CUresult result)
{
    const char *name = cuda_result_name(result);
    last_result = result;
    put(actor, " = %s", name ? name : "a result that is none");
    if (result == CUDA_SUCCESS)
        succeeded[actor->row - rows]++;
}

void put_kept(struct actor *actor, uint64_t value)
{
    put(actor, value == UNTOUCHED || value == 0 ? " kept" : " written");
}

/* --- The driver behind the interceptor's back ------------------------------------------------------ */

/* A symbol of a loaded library, whatever dlsym would say. */
static void *symbol_of(void *library, const char *name)
{
    struct link_map *map;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
        return NULL;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            symbols = (const void *)entry->d_un.d_ptr;
        else if (entry->d_tag == DT_STRTAB)
            strings = (const void *)entry->d_un.d_ptr;
    }
    /* Linkers put the strings right behind the symbols. */
    for (const ElfW(Sym) *symbol = symbols; (const char *)symbol < strings; symbol++)
        if (symbol->st_value && strcmp(strings + symbol->st_name, name) == 0)
            return (void *)(map->l_addr + symbol->st_value);
    return NULL;
}

static struct {
    nvmlReturn_t (*real_info)(nvmlDevice_t, nvmlMemory_t *), (*seen_info)(nvmlDevice_t, nvmlMemory_t *);
    unsigned count; /* of GPUS */
    struct {
        nvmlDevice_t device;
        uint64_t empty_bytes; /* what the card has in use with nobody on it */
    } gpus[GPUS];
} watch;

static bool watch_open(void)
{
    nvmlReturn_t (*start)(void) = NULL;
    nvmlReturn_t (*get)(unsigned, nvmlDevice_t *) = NULL;
    nvmlMemory_t memory;
    nvml_library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml_library)
        return false;
    /* The simulated driver has NVML in the driver's library (src/simgpu/nvml/nvml_link.c). */
    *(void **)&start = symbol_of(cuda_library, "nvmlInit_v2");
    *(void **)&get = symbol_of(cuda_library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&watch.real_info = symbol_of(cuda_library, "nvmlDeviceGetMemoryInfo");
    *(void **)&watch.seen_info = dlsym(nvml_library, "nvmlDeviceGetMemoryInfo");
    if (!start || !get || !watch.real_info || start() != NVML_SUCCESS)
        return false;
    for (; watch.count < GPUS && get(watch.count, &watch.gpus[watch.count].device) == NVML_SUCCESS;
         watch.count++) {
        if (watch.real_info(watch.gpus[watch.count].device, &memory) != NVML_SUCCESS)
            return false;
        watch.gpus[watch.count].empty_bytes = memory.used;
    }
    return watch.count && (!quota_bytes || (void *)watch.real_info != (void *)watch.seen_info);
}

static uint64_t held_bytes(unsigned gpu)
{
    nvmlMemory_t memory = {0};
    watch.real_info(watch.gpus[gpu].device, &memory);
    return memory.used - watch.gpus[gpu].empty_bytes;
}

static uint64_t charged_bytes(unsigned gpu)
{
    nvmlMemory_t memory = {0};
    watch.seen_info(watch.gpus[gpu].device, &memory);
    return memory.used;
}

static void fault(const struct actor *actor, unsigned gpu, const char *what, uint64_t held, uint64_t charged)
{
    fprintf(stderr,
            "%s on GPU %u: %s: the driver holds %" PRIu64 " bytes, charged are %" PRIu64 " of %" PRIu64
            ", asked %" PRIu64 "\n",
            what, gpu, actor->line, held, charged, quota_bytes, actor->ask);
    if (++faults == 10)
        exit(1);
}

/* What arrays take beyond their elements is the driver's own affair, and not charged by the interceptor
 * alone: it is noted as an array is made, in the array's `bytes`. */
static bool is_array(const struct thing *thing)
{
    return thing->alive && (thing->kind == ARRAY || thing->kind == MIPMAP);
}

static uint64_t slack_bytes(unsigned gpu)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < thing_count; i++)
        if (is_array(&things[i]) && things[i].gpu == gpu)
            bytes += things[i].bytes;
    return bytes;
}

static void settle_array(const struct actor *actor, unsigned gpu, uint64_t held, uint64_t charged)
{
    struct thing *last = thing_count ? &things[thing_count - 1] : NULL;
    uint64_t before = slack_bytes(gpu);
    if (!more_allowed && last && is_array(last) && last->gpu == gpu && !last->bytes &&
        held > charged + before && held - charged - before <= 4 * actor->ask + (1 << 20))
        last->bytes = held - charged - before;
}

static bool is_opened(unsigned piece)
{
    for (unsigned i = 0; i < thing_count; i++)
        if (things[i].alive && things[i].kind == OPENED && things[i].piece == piece)
            return true;
    return false;
}

/* Linear memory is charged in whole units, and the simulated driver takes it to the byte. */
static uint64_t rounding_bytes(unsigned gpu)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < thing_count; i++)
        if (things[i].alive && things[i].gpu == gpu)
            bytes += things[i].rounding_bytes;
    return bytes;
}

static void check_gpu(const struct actor *actor, unsigned gpu)
{
    uint64_t held = held_bytes(gpu), charged = charged_bytes(gpu);
    if (!more_allowed) /* the peer is a process on its own; what it made is charged to who imports it */
        held -= peer_bytes(gpu, is_opened);
    held += rounding_bytes(gpu);
    settle_array(actor, gpu, held, charged);
    held -= slack_bytes(gpu);
    if (more_allowed && held > charged)
        held = charged; /* or the daemon has added the slack by itself */
    if (held > quota_bytes)
        fault(actor, gpu, "granted more than the quota", held, charged);
    if (more_allowed ? charged < held : charged != held)
        fault(actor, gpu, "charged is not what is held", held, charged);
    uint64_t most = more_allowed ? charged : held;
    if (last_result == CUDA_ERROR_OUT_OF_MEMORY && !actor->own_limit && actor->gpu == gpu &&
        actor->ask <= quota_bytes && actor->ask <= quota_bytes - most)
        fault(actor, gpu, "refused what fits", held, charged);
}

static void check(const struct actor *actor)
{
    for (unsigned gpu = 0; gpu < watch.count; gpu++)
        check_gpu(actor, gpu);
}

/* --- Calls ----------------------------------------------------------------------------------------- */

static void add_rows(const struct row *table)
{
    for (; table->symbol; table++) {
        if (row_count == ROWS)
            abort();
        rows[row_count++] = *table;
        total_weight += table->weight;
    }
}

static const struct row *some_row(struct actor *actor)
{
    uint64_t at = chance(actor, total_weight);
    const struct row *row = rows;
    while (at >= row->weight)
        at -= row++->weight;
    return row;
}

static const struct row *row_of(const char *symbol)
{
    for (unsigned i = 0; i < row_count; i++)
        if (strcmp(rows[i].symbol, symbol) == 0)
            return &rows[i];
    abort();
}

/* Look the row's entry point up as programs do. */
static void find_way(struct actor *actor)
{
    const struct row *row = actor->row;
    if (!row->linked) {
        actor->function = dlsym(nvml_library, row->symbol);
        return;
    }
    int id = cuda_entry_find(row->symbol);
    CUdriverProcAddressQueryResult status;
    cuuint64_t flags = cuda_entries[id].stream == CUDA_STREAM_PER_THREAD ? 2 : one_in(actor, 2);
    switch (chance(actor, 4)) {
    case 0:
        put(actor, "linked ");
        actor->function = row->linked;
        return;
    case 1:
        put(actor, "dlsym ");
        actor->function = dlsym(cuda_library, row->symbol);
        return;
    case 2:
        put(actor, "default ");
        actor->function = dlsym(RTLD_DEFAULT, row->symbol);
        return;
    default:
        put(actor, "resolver ");
        if (cuGetProcAddress_v2(cuda_entries[id].name, &actor->function, cuda_entries[id].since, flags,
                                &status) != CUDA_SUCCESS ||
            !actor->function) {
            put(actor, "(has none) ");
            actor->function = row->linked;
        }
    }
}

static void begin_line(struct actor *actor, const char *symbol)
{
    actor->length = 0;
    actor->ask = 0;
    actor->gpu = current_gpu();
    actor->own_limit = false;
    put(actor, "%u.%u %s ", actor->number, actor->calls++, symbol);
}

/* Memory of a node goes with the capture that it is in, or its graph; that of graphs, and what was imported into a pool, with its
 * GPU's last context, whatever context it was made in. Before a call that may make something where it was. */
static void drop_unknown(void)
{
    for (unsigned i = 0; i < thing_count; i++)
        if (is_gone(&things[i]))
            things[i].alive = false;
}

static void make_call(struct actor *actor, const struct row *row)
{
    if (memory_moves && actor->number != CHILD) /* to which nothing is known */
        drop_unknown();
    actor->row = row;
    begin_line(actor, row->symbol);
    find_way(actor);
    called[row - rows]++;
    last_result = CUDA_SUCCESS;
    row->call(actor);
    put_capture(actor);
    if (actor->ask > NO_QUOTA_BYTES)
        put(actor, " (more than any quota)");
    if (quota_bytes)
        check(actor);
    puts(actor->line);
}

/* Most calls need a context. */
static bool is_lost(void)
{
    CUdevice device;
    return cuCtxGetDevice(&device) != CUDA_SUCCESS;
}

static void act(struct actor *actor, bool helped)
{
    if (helped && is_lost() && !one_in(actor, 3))
        make_call(actor,
                  row_of(count_living(CONTEXT) && !one_in(actor, 4) ? "cuCtxSetCurrent" : "cuCtxCreate_v2"));
    else
        make_call(actor, some_row(actor));
}

static bool has_row(const char *symbol)
{
    for (unsigned i = 0; i < row_count; i++)
        if (strcmp(rows[i].symbol, symbol) == 0)
            return true;
    return false;
}

/* Entry points without a row of their own: nothing but zeros, which each answers or refuses by itself. */
static void call_with_nothing(struct actor *actor, int id)
{
    if (id == CUDA_ID_cuInit || has_row(cuda_entries[id].symbol))
        return;
    /* As many as the largest structure by value needs, which is a CUeglFrame behind a pointer. */
    CUresult (*function)(long, long, long, long, long, long, long, long, long, long, long, long, long, long,
                         long, long) = NULL;
    *(void **)&function = dlsym(cuda_library, cuda_entries[id].symbol);
    begin_line(actor, cuda_entries[id].symbol);
    entry_tried[id] = true;
    put(actor, "zeros");
    CUresult result = function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    put(actor, " = %d", result);
    puts(actor->line);
}

/* --- Turns ----------------------------------------------------------------------------------------- */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int whose = -1; /* ACTORS: all end */

static void wait_while(bool (*is_so)(int), int number)
{
    while (is_so(number))
        pthread_cond_wait(&turned, &turn);
}

static bool is_not_mine(int number)
{
    return whose != number && whose != ACTORS;
}

static bool is_taken(int number)
{
    return whose != number;
}

static void *play(void *argument)
{
    struct actor *actor = argument;
    pthread_mutex_lock(&turn);
    for (;;) {
        wait_while(is_not_mine, (int)actor->number);
        if (whose == ACTORS)
            break;
        act(actor, true);
        whose = -1;
        pthread_cond_broadcast(&turned);
    }
    pthread_mutex_unlock(&turn);
    return NULL;
}

static void take_turns(unsigned calls)
{
    pthread_t threads[ACTORS];
    struct actor *chooser = &actors[0];
    for (unsigned i = 1; i < ACTORS; i++)
        pthread_create(&threads[i], NULL, play, &actors[i]);
    while (calls-- > 0) {
        unsigned who = one_in(chooser, 2) ? 0 : (unsigned)chance(chooser, ACTORS);
        if (who == 0) {
            act(chooser, true);
            continue;
        }
        pthread_mutex_lock(&turn);
        whose = (int)who;
        pthread_cond_broadcast(&turned);
        wait_while(is_taken, -1);
        pthread_mutex_unlock(&turn);
    }
    pthread_mutex_lock(&turn);
    whose = ACTORS;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&turn);
    for (unsigned i = 1; i < ACTORS; i++)
        pthread_join(threads[i], NULL);
    whose = -1;
}

/* A child plays for a while, alone. */
static void play_in_child(unsigned number, unsigned calls, bool starts)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct actor actor = {.number = number, .random = actors[0].random + number};
        uint64_t quota = quota_bytes;
        if (!starts)
            quota_bytes = 0; /* it holds nothing, and looks at its parent's things */
        if (starts)
            printf("%u cuInit = %d\n", number, cuInit(0));
        while (calls-- > 0)
            act(&actor, starts);
        quota_bytes = quota;
        fflush(stdout);
        _exit(faults != 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("%u ended with %d\n", number, status);
    if (status)
        faults++;
}

/* --- The whole ------------------------------------------------------------------------------------- */

/* And what goes with the last one. */
static void end_primary(CUdevice device)
{
    CUcontext context;
    cuDevicePrimaryCtxRetain(&context, device);
    while (cuDevicePrimaryCtxRelease_v2(device) == CUDA_SUCCESS)
        continue;
    cuDevicePrimaryCtxReset_v2(device);
}

/* No context takes it along; but without one, nobody frees it. What has ended is tried too: the program may have lost sight of
 * it. */
static void give_back_pools(void)
{
    CUmemoryPool pool;
    CUcontext context;
    if (cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
        return;
    for (unsigned i = 0; i < thing_count; i++)
        if (things[i].kind == MEMORY)
            cuMemFree_v2(things[i].value);
    for (unsigned i = 0; i < thing_count; i++)
        if (things[i].alive && things[i].kind == POOL)
            cuMemPoolTrimTo((CUmemoryPool)(uintptr_t)things[i].value, 0);
    for (CUdevice device = 0; cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS; device++)
        cuMemPoolTrimTo(pool, 0);
    cuCtxDestroy_v2(context);
}

static void see_what_is_left(unsigned gpu)
{
    uint64_t held = held_bytes(gpu), charged = charged_bytes(gpu);
    printf("left %" PRIu64 "\n", held);
    for (unsigned tries = 0; quota_bytes && more_allowed && charged && tries < 1000; tries++) {
        usleep(10000); /* until the daemon has looked at the driver again */
        charged = charged_bytes(gpu);
    }
    if (quota_bytes && (held || charged)) {
        snprintf(actors[0].line, sizeof(actors[0].line), "the end");
        actors[0].ask = 0;
        fault(&actors[0], gpu, "something is left", held, charged);
    }
}

/* Give everything back that nothing else takes along, and see that nothing stays charged. */
static void leave(void)
{
    CUcontext context;
    while (cuCtxPopCurrent_v2(&context) == CUDA_SUCCESS)
        continue;
    for (unsigned i = 0; i < thing_count; i++) {
        struct thing *thing = &things[i];
        if (!thing->alive)
            continue;
        if (thing->kind == MAPPING)
            cuMemUnmap(thing->value, thing->bytes);
        else if (thing->kind == HANDLE)
            cuMemRelease(thing->value);
        else if (thing->kind == GREEN)
            cuGreenCtxDestroy((CUgreenCtx)(uintptr_t)thing->value);
        else if (thing->kind == CONTEXT)
            cuCtxDestroy_v2((CUcontext)(uintptr_t)thing->value);
    }
    end_peer(); /* if there is one */
    for (unsigned gpu = 0; gpu < watch.count; gpu++)
        end_primary((CUdevice)gpu);
    give_back_pools();
    for (unsigned gpu = 0; gpu < watch.count; gpu++)
        see_what_is_left(gpu);
}

static void tell_coverage(void)
{
    for (unsigned i = 0; i < row_count; i++)
        printf("covered %s %u %u\n", rows[i].symbol, called[i], succeeded[i]);
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        if (entry_tried[id])
            printf("tried %s\n", cuda_entries[id].symbol);
}

/* Run by hand or by meson, it has a simulated GPU of its own. */
static char own_card[64];

static void remove_card(void)
{
    char shares[80];
    snprintf(shares, sizeof(shares), "%s.shares", own_card);
    unlink(shares);
    unlink(own_card);
}

static void choose_card(void)
{
    char name[32];
    if (getenv("FAKECUDA_NAME"))
        return;
    snprintf(name, sizeof(name), "differ-%d", (int)getpid());
    setenv("FAKECUDA_NAME", name, 1);
    snprintf(own_card, sizeof(own_card), "/dev/shm/fakecuda-%u-%s", (unsigned)geteuid(), name);
    atexit(remove_card);
}

int main(int argc, char *argv[])
{
    choose_card();
    if (argc < 3) {
        fprintf(stderr, "%s: SEED CALLS [QUOTA] expected\n", argv[0]);
        return 2;
    }
    uint64_t seed = strtoull(argv[1], NULL, 0);
    unsigned calls = (unsigned)strtoul(argv[2], NULL, 0);
    quota_bytes = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
    const char *moves = getenv("DIFFER_MOVES");
    memory_moves = moves != NULL;
    loses_sight = !moves || strcmp(moves, "managed") == 0;
    more_allowed = getenv("DIFFER_ALLOWED") != NULL;
    setvbuf(stdout, NULL, _IOLBF,
            BUFSIZ); /* what was called is told even if the next call ends the program */
    kernels_text = (char *)(uintptr_t)kernels_ptx;
    for (unsigned i = 0; i < ACTORS; i++)
        actors[i] = (struct actor){.number = i, .random = seed * 1000 + i};
    bool has_peer = getenv("DIFFER_PEER");
    if (has_peer && !start_peer())
        return 2;
    cuda_library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda_library || !watch_open()) {
        fprintf(stderr, "%s: libcuda.so.1 or libnvidia-ml.so.1 is not the one expected here: %s\n", argv[0],
                dlerror());
        return 2;
    }
    add_rows(memory_rows);
    add_rows(context_rows);
    add_rows(other_rows);
    add_rows(share_rows);
    add_rows(capture_rows);
    add_rows(peer_rows);
    add_rows(has_peer ? import_rows : nvml_rows);

    for (unsigned i = 0; i < calls / 20; i++)
        act(&actors[0], false);
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        call_with_nothing(&actors[0], id);
    play_in_child(10, calls / 20, true);
    printf("0 cuInit = %d\n", cuInit(0));
    take_turns(calls / 2);
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        call_with_nothing(&actors[0], id);
    play_in_child(CHILD, calls / 40, false);
    take_turns(calls / 2);
    leave();
    tell_coverage();
    return faults != 0;
}
