/* mig.h - cards in MIG mode (FAKECUDA_MIG): which GPU instances each is partitioned into.
 *
 * FAKECUDA_MIG   the names of the instances of each GPU with commas between, GPUs with semicolons:
 *                "1g.10gb,2g.20gb;;3g.40gb" partitions GPUs 0 and 2 and leaves GPU 1 whole
 *
 * An instance is a GPU of its own (device.h), with memory and a timeline that no other touches. It has one
 * compute instance, all of it. Instances that need more slices than the card has are refused; where on the
 * card an instance lies is not simulated. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define MIG_INSTANCES 7u /* most of a card */

struct mig_profile {
    const char *card; /* FAKECUDA_DEVICE */
    const char *name;
    unsigned most, slices, memory_slices;
    uint64_t bytes; /* 0: as many eighths of the card's as memory slices */
    unsigned multiprocessors, copy_engines, decoders, jpeg_engines, flow_engines;
};

const struct mig_profile *mig_profile_at(unsigned number);

/* Whether cards of that key have MIG mode at all. */
bool mig_is_known(const char *card);

/* What FAKECUDA_MIG (`text`) makes of card number `index` of its kind: numbers of profiles, at most
 * MIG_INSTANCES. 0 instances: MIG mode is off. -EINVAL for what the card cannot be partitioned into. */
int mig_read(const char *text, unsigned index, const char *card, unsigned profiles[static MIG_INSTANCES],
             unsigned *count, struct error *error);

/* How many cards `text` describes. */
unsigned mig_card_count(const char *text);

/* An instance's memory. `card_bytes`: of its card, where FAKECUDA_TOTAL_MEM says it; else 0. */
uint64_t mig_bytes(const struct mig_profile *profile, uint64_t card_bytes, uint64_t usual_card_bytes);
