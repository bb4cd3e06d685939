/* account_shared.c - how the accounts in the shared file are read and changed by many processes at once. */
#include <pthread.h>
#include <string.h>

#include "simgpu/device/shared.h"

static pthread_mutex_t account_lock[DEVICE_GPUS] = {[0 ... DEVICE_GPUS - 1] = PTHREAD_MUTEX_INITIALIZER};

void account_forget_in_child(void)
{
    for (unsigned gpu = 0; gpu < DEVICE_GPUS; gpu++)
        pthread_mutex_init(&account_lock[gpu], NULL);
}

void device_account_lock(unsigned gpu)
{
    pthread_mutex_lock(&account_lock[gpu]);
}

void device_account_unlock(unsigned gpu)
{
    pthread_mutex_unlock(&account_lock[gpu]);
}

static uint32_t account_slot_count(const struct account *account)
{
    /* The count may be torn while it is copied; the copy is then thrown away. */
    return account->slot_count < DEVICE_SLOTS ? account->slot_count : DEVICE_SLOTS;
}

static uint32_t account_share_count(const struct account *account)
{
    return account->share_count < SHARE_ROWS ? account->share_count : SHARE_ROWS;
}

uint64_t account_read(struct shared_gpu *gpu, struct account *copy)
{
    for (;;) {
        uint64_t seen = published_load(&gpu->account_current);
        const struct account *account = &gpu->accounts[published_buffer(seen)];
        copy->used_bytes = account->used_bytes;
        copy->slot_count = account_slot_count(account);
        copy->share_count = account_share_count(account);
        memcpy(copy->bytes, account->bytes, copy->slot_count * sizeof(copy->bytes[0]));
        memcpy(copy->shares, account->shares, copy->share_count * sizeof(copy->shares[0]));
        if (published_is_still(&gpu->account_current, seen))
            return seen;
    }
}

struct account *account_begin(struct shared_gpu *gpu, uint32_t slot, uint64_t *seen)
{
    for (;;) {
        *seen = published_load(&gpu->account_current);
        struct account *own = &gpu->accounts[published_own_buffer(*seen, shared_view()->slot)];
        const struct account *account = &gpu->accounts[published_buffer(*seen)];
        own->used_bytes = account->used_bytes;
        own->slot_count = account_slot_count(account);
        own->share_count = account_share_count(account);
        memcpy(own->bytes, account->bytes, own->slot_count * sizeof(own->bytes[0]));
        memcpy(own->shares, account->shares, own->share_count * sizeof(own->shares[0]));
        if (!published_is_still(&gpu->account_current, *seen))
            continue;
        while (own->slot_count <= slot)
            own->bytes[own->slot_count++] = 0;
        return own;
    }
}

bool account_end(struct shared_gpu *gpu, uint64_t seen)
{
    return published_replace(&gpu->account_current, seen, published_own_buffer(seen, shared_view()->slot));
}

uint64_t device_account_bytes(unsigned gpu)
{
    struct shared_gpu *shared = &shared_view()->gpus[gpu];
    for (;;) {
        uint64_t seen = published_load(&shared->account_current);
        uint64_t bytes = shared->accounts[published_buffer(seen)].used_bytes;
        if (published_is_still(&shared->account_current, seen))
            return bytes;
    }
}
