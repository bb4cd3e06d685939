/* swap_pool_share.h - pointers into pools that go to other processes (cuMemPoolExportPointer), where the memory is ours: it
 * was allocated before its pool was exported.
 *
 * What the program passes on says where another process, with this engine, fetches a description. That says which
 * extents the allocation lies in, and the other process fetches and maps these. */
#pragma once

#include "intercept/memory/engine/engine.h"

/* cuMemPoolExportPointer. Memory of ours stays on the card from now on. May wait at the gate. */
CUresult swap_pool_export_pointer(CUmemPoolPtrExportData *data, CUdeviceptr address);

/* cuMemPoolImportPointer. */
CUresult swap_pool_import_pointer(const struct allocation *wanted);

/* Whether a pointer that was imported so is this one; and free it. */
bool swap_pool_is_imported(CUdeviceptr address);
CUresult swap_pool_free_imported(enum release_way way, CUdeviceptr address, CUstream stream);
