#include "simgpu/device/faults.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

/* NVIDIA's "Xid Errors": a graphics engine exception, a GPU memory page fault, and "GPU has fallen off the bus". */
enum { XID_LAUNCH_FAILED = 13, XID_PAGE_FAULT = 31, XID_LOST = 79 };

/* Numbers from which on, and up to which, something fails; 0: never. Written before any thread reads them. */
static uint64_t oom_first, oom_last, record_first, record_last, xid_at, lost_at, hang_at, wrong_at;
static struct checkpoint_faults checkpoint;
static atomic_ullong memory_count, record_count, work_count, sum_count;

static bool fault_read(const char *item, size_t length)
{
    char text[32];
    if (length >= sizeof(text))
        return false;
    memcpy(text, item, length);
    text[length] = '\0';
    char *at = strchr(text, '@');
    if (!at)
        return false;
    *at++ = '\0';
    size_t digits = strlen(at);
    bool and_all_later = digits > 0 && at[digits - 1] == '+';
    if (and_all_later)
        at[digits - 1] = '\0';
    uint64_t number;
    if (units_parse_number(at, UINT64_MAX, &number, NULL) != 0 || number == 0)
        return false;
    if (strcmp(text, "oom") == 0) {
        oom_first = number;
        oom_last = and_all_later ? UINT64_MAX : number;
    } else if (strcmp(text, "checkpoint-kills") == 0 && !and_all_later) {
        checkpoint.kills_at = (uint32_t)number;
    } else if (strcmp(text, "restore-fails") == 0 && !and_all_later) {
        checkpoint.restore_fails_at = (uint32_t)number;
    } else if (strcmp(text, "peers") == 0 && !and_all_later) {
        checkpoint.peers = (uint32_t)number;
    } else if (strcmp(text, "record") == 0) {
        record_first = number;
        record_last = and_all_later ? UINT64_MAX : number;
    } else if (strcmp(text, "xid") == 0 && !and_all_later) {
        xid_at = number;
    } else if (strcmp(text, "lost") == 0 && !and_all_later) {
        lost_at = number;
    } else if (strcmp(text, "hang") == 0 && !and_all_later) {
        hang_at = number;
    } else if (strcmp(text, "wrong") == 0 && !and_all_later) {
        wrong_at = number;
    } else {
        return false;
    }
    return true;
}

int faults_init(struct error *error)
{
    const char *list = secure_getenv("FAKECUDA_FAULT");
    while (list && *list) {
        size_t length = strcspn(list, ",");
        if (!fault_read(list, length))
            return error_set(error, EINVAL, NULL,
                             "FAKECUDA_FAULT has '%.*s'; set oom@N, oom@N+, record@N, record@N+, xid@N, "
                             "lost@N, hang@N, wrong@N, checkpoint-kills@N, restore-fails@N or peers@N, with "
                             "commas between",
                             (int)length, list);
        list += length;
        list += *list == ',';
    }
    return 0;
}

bool fault_of_memory(void)
{
    if (oom_first == 0)
        return false;
    uint64_t number = atomic_fetch_add(&memory_count, 1) + 1;
    return number >= oom_first && number <= oom_last;
}

struct checkpoint_faults faults_of_checkpoint(void)
{
    return checkpoint;
}

bool fault_of_record(void)
{
    if (record_first == 0)
        return false;
    uint64_t number = atomic_fetch_add(&record_count, 1) + 1;
    return number >= record_first && number <= record_last;
}

CUresult fault_of_work(unsigned gpu)
{
    if (xid_at == 0 && lost_at == 0 && hang_at == 0)
        return CUDA_SUCCESS;
    uint64_t number = atomic_fetch_add(&work_count, 1) + 1;
    if (number == lost_at) {
        device_note_xid(gpu, XID_LOST);
        device_lose(gpu);
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    if (number == hang_at)
        device_hang();
    if (number != xid_at)
        return CUDA_SUCCESS;
    device_note_xid(gpu, XID_LAUNCH_FAILED);
    return CUDA_ERROR_LAUNCH_FAILED;
}

void fault_page(CUcontext context)
{
    atomic_store(&context->sticky, CUDA_ERROR_ILLEGAL_ADDRESS);
    device_note_xid(context->gpu, XID_PAGE_FAULT);
}

unsigned fault_of_sum(void)
{
    return wrong_at != 0 && atomic_fetch_add(&sum_count, 1) + 1 == wrong_at;
}
