/* interprocess.h - events that several processes record and wait for: what events.c leaves to interprocess.c.
 */
#pragma once

#include "simgpu/driver/sim.h"

struct event_place;

/* A place for a new event of this process: it was never recorded. NULL without memory for it. */
struct event_place *interprocess_make(void);
/* The event is destroyed; a place that another process made stays. */
void interprocess_end(struct event_place *place);

/* The handle of this process's event; false if it is another's. */
bool interprocess_name(const struct event_place *place, unsigned gpu, CUipcEventHandle *handle);
/* What another process's handle leads to. INVALID_VALUE if it is not a handle, MAP_FAILED when that process is gone.
 */
CUresult interprocess_open(const CUipcEventHandle *handle, unsigned *gpu, struct event_place **place);

/* Record in a stream; let a stream wait for the last record, of any process. */
CUresult interprocess_record(struct event_place *place, CUcontext context, CUstream stream);
CUresult interprocess_wait(struct event_place *place, CUcontext context, CUstream stream);
/* Whether the last record is reached; wait for it. */
bool interprocess_query(const struct event_place *place);
void interprocess_synchronize(const struct event_place *place);
