/* led_nvml.h - what the test and its NVML share. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/nvml.h"

struct led_nvml {
    pthread_mutex_t lock; /* of all below; held by the test, it is a driver that hangs */
    nvmlReturn_t init_result, memory_result;
    unsigned card_count;
    unsigned lost_cards;   /* a bit for each card that has fallen off the bus */
    unsigned busy_percent; /* of each card, and of the first process on it */
    bool is_partitioned;   /* its cards are in MIG mode */
    unsigned instances;    /* a bit for each index at which every card has a MIG instance */
    char instance_handles[7];
    uint64_t total_bytes, used_bytes;
    uint64_t kept_bytes;      /* of these, the driver's own */
    nvmlReturn_t kept_result; /* of the call that tells them */
    unsigned first_pid, process_count;
    uint64_t bytes_of_each;
    unsigned entry_bytes; /* of a process in the list; 0: as documented */
    nvmlReturn_t processes_result;
    void (*on_processes)(void); /* called while NVML looks */
};
