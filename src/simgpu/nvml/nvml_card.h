/* nvml_card.h - numbers of a card that several files tell. */
#pragma once

#define NVML_TEMPERATURE_CELSIUS 40u
#define NVML_POWER_MILLIWATTS 70000u

enum nvml_fact {
#define NVML_FACT(name, standard, h100, t4, a10, l4, b200, rtx5090) NVML_FACT_##name,
#include "simgpu/nvml/nvml_facts.def"
#undef NVML_FACT
};

/* Of the simulated card; valid after nvmlInit. */
unsigned nvml_fact(enum nvml_fact fact);
