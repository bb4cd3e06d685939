/* share.c - memory that several processes hold, in the account (device.h). */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "simgpu/device/shared.h"

static pthread_mutex_t shares_lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_share *shares;

/* --- Locks, in a file of their own: closing a descriptor of the slots' file would let our slot go -- */

static int shares_open(int flags)
{
    char path[SHARED_PATH_BYTES];
    return shared_open(shared_path(".shares", path), flags & O_CREAT);
}

void shares_make_file(void)
{
    int fd = shares_open(O_CREAT);
    if (fd >= 0)
        close(fd);
}

static bool bytes_are_held(off_t start, off_t length)
{
    /* A descriptor that has no locks, so that those of this process count too. */
    int fd = shares_open(0); /* -1: nobody made the file, so nothing is held */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    bool held = fd >= 0 && (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK);
    if (fd >= 0)
        close(fd);
    return held;
}

static off_t share_byte(unsigned gpu, uint32_t index)
{
    return (off_t)gpu * DEVICE_SHARES + index;
}

static bool share_is_held(unsigned gpu, uint32_t index)
{
    return bytes_are_held(share_byte(gpu, index), 1);
}

bool shares_are_held(void)
{
    return bytes_are_held(0, (off_t)DEVICE_GPUS * DEVICE_SHARES);
}

/* --- Rows of the account --------------------------------------------------------------------------- */

static bool same_share(const struct account_share *one, const struct account_share *other)
{
    return one->index == other->index && one->generation == other->generation;
}

static void row_remove(struct account *account, uint32_t row)
{
    account->share_count--;
    for (; row < account->share_count; row++) /* the order says which process held it longest */
        account->shares[row] = account->shares[row + 1];
}

bool share_row_drop(struct account *account, unsigned gpu, uint32_t row, uint64_t *freed)
{
    struct account_share *share = &account->shares[row];
    bool is_last = true;
    for (uint32_t other = 0; other < account->share_count; other++)
        if (other != row && same_share(&account->shares[other], share))
            is_last = false;
    if (is_last && share_is_held(gpu, share->index)) {
        share->slot = SHARE_NOBODY;
        return false;
    }
    if (is_last)
        *freed += share->bytes;
    row_remove(account, row);
    return is_last;
}

bool shares_tidy(struct account *account, unsigned gpu)
{
    bool found = false;
    for (uint32_t row = account->share_count; row-- > 0;) {
        if (account->shares[row].slot != SHARE_NOBODY || share_is_held(gpu, account->shares[row].index))
            continue;
        account->used_bytes -= account->shares[row].bytes;
        row_remove(account, row);
        found = true;
    }
    return found;
}

/* --- This process's shares ------------------------------------------------------------------------- */

static bool token_lock(int token, unsigned gpu, uint32_t index, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = share_byte(gpu, index), .l_len = 1};
    return fcntl(token, F_OFD_SETLK, &lock) == 0;
}

static struct device_share *share_keep(const struct device_share *like)
{
    struct device_share *share = malloc(sizeof(*share));
    if (!share) {
        close(like->token);
        return NULL;
    }
    *share = *like;
    pthread_mutex_lock(&shares_lock);
    share->next = shares;
    share->link = &shares;
    if (shares)
        shares->link = &share->next;
    shares = share;
    pthread_mutex_unlock(&shares_lock);
    return share;
}

static void share_forget(struct device_share *share)
{
    pthread_mutex_lock(&shares_lock);
    *share->link = share->next;
    if (share->next)
        share->next->link = share->link;
    pthread_mutex_unlock(&shares_lock);
    free(share);
}

/* A parent's memory is not its child's: only descriptors that the program itself was given go on. */
void shares_forget_in_child(void)
{
    pthread_mutex_init(&shares_lock, NULL);
    for (struct device_share *share = shares; share; share = share->next)
        close(share->token);
    shares = NULL;
}

/* Move our own bytes to a new share. Rows that have its index are of shares long gone: the byte was free. */
static bool share_enter(unsigned gpu, const struct device_share *share)
{
    const struct shared_view *view = shared_view();
    for (;;) {
        uint64_t seen;
        struct account *own = account_begin(&view->gpus[gpu], view->slot, &seen);
        for (uint32_t row = own->share_count; row-- > 0;) {
            if (own->shares[row].index != share->index)
                continue;
            bool is_last = true;
            for (uint32_t other = 0; other < row; other++)
                if (same_share(&own->shares[other], &own->shares[row]))
                    is_last = false;
            if (is_last)
                own->used_bytes -= own->shares[row].bytes;
            row_remove(own, row);
        }
        if (own->share_count == SHARE_ROWS || own->bytes[view->slot] < share->bytes)
            return false;
        own->bytes[view->slot] -= share->bytes;
        own->shares[own->share_count++] = (struct account_share){.bytes = share->bytes,
                                                                 .generation = share->generation,
                                                                 .index = share->index,
                                                                 .slot = view->slot};
        if (account_end(&view->gpus[gpu], seen))
            return true;
    }
}

struct device_share *device_share_begin(unsigned gpu, uint64_t bytes)
{
    int token = shares_open(O_CREAT);
    if (token < 0)
        return NULL;
    struct device_share share = {.gpu = gpu, .bytes = bytes, .generation = monotonic_ns(), .token = token};
    uint32_t first = shared_view()->slot * 7 % DEVICE_SHARES;
    for (uint32_t i = 0; i < DEVICE_SHARES; i++) {
        share.index = (first + i) % DEVICE_SHARES;
        if (!token_lock(token, gpu, share.index, F_WRLCK))
            continue;
        device_account_lock(gpu);
        bool entered = share_enter(gpu, &share);
        device_account_unlock(gpu);
        if (!entered)
            break;
        token_lock(token, gpu, share.index, F_RDLCK); /* so that others can hold it too */
        return share_keep(&share);
    }
    close(token);
    return NULL;
}

struct device_share *device_share_join(unsigned gpu, uint32_t index, uint64_t generation)
{
    const struct shared_view *view = shared_view();
    if (gpu >= view->header->parameters.gpu_count || index >= DEVICE_SHARES)
        return NULL;
    struct device_share share = {.gpu = gpu, .index = index, .generation = generation};
    share.token = shares_open(O_CREAT);
    if (share.token < 0)
        return NULL;
    bool joined = false, there = token_lock(share.token, gpu, index, F_RDLCK);
    device_account_lock(gpu);
    while (there && !joined) {
        uint64_t seen;
        struct account *own = account_begin(&view->gpus[gpu], view->slot, &seen);
        struct account_share row = {.index = index, .generation = generation};
        uint32_t found = 0;
        while (found < own->share_count && !same_share(&own->shares[found], &row))
            found++;
        there = found < own->share_count;
        if (!there)
            break;
        share.bytes = own->shares[found].bytes;
        if (own->shares[found].slot == SHARE_NOBODY) {
            own->shares[found].slot = view->slot;
        } else if (own->share_count == SHARE_ROWS) {
            break;
        } else {
            row.bytes = share.bytes;
            row.slot = view->slot;
            own->shares[own->share_count++] = row;
        }
        joined = account_end(&view->gpus[gpu], seen);
    }
    device_account_unlock(gpu);
    if (joined)
        return share_keep(&share);
    close(share.token);
    return NULL;
}

bool device_share_leave(struct device_share *share, bool take_back)
{
    const struct shared_view *view = shared_view();
    unsigned gpu = share->gpu;
    struct account_share same = {.index = share->index, .generation = share->generation};
    bool freed_all = false;
    close(share->token); /* before we look whether somebody holds it */
    device_account_lock(gpu);
    for (;;) {
        uint64_t seen, freed = 0;
        struct account *own = account_begin(&view->gpus[gpu], view->slot, &seen);
        uint32_t row = 0;
        while (row < own->share_count &&
               !(same_share(&own->shares[row], &same) && own->shares[row].slot == view->slot))
            row++;
        if (row == own->share_count)
            break;
        freed_all = share_row_drop(own, gpu, row, &freed);
        if (take_back)
            own->bytes[view->slot] += freed;
        else
            own->used_bytes -= freed;
        if (account_end(&view->gpus[gpu], seen))
            break;
    }
    device_account_unlock(gpu);
    share_forget(share);
    return freed_all;
}
