/* led_nvml.h - what the test and its NVML share. */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "cuda/nvml.h"

struct led_nvml {
    pthread_mutex_t lock; /* of all below; held by the test, it is a driver that hangs */
    nvmlReturn_t init_result, memory_result;
    unsigned card_count;
    uint64_t total_bytes, used_bytes;
    unsigned first_pid, process_count;
    uint64_t bytes_of_each;
    void (*on_processes)(void); /* called while NVML looks */
};
