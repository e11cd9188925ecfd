// SPDX-License-Identifier: Apache-2.0
#include "paramserver/client/cuda_driver.h"

#include <string.h>

#include "common/plain/symbols.h"

namespace bellows::ps {
namespace {

// In the order of CudaDriver. CUDA has had them since 9.2.
constexpr const char* kNames[] = {
    "cuStreamGetCtx",      "cuCtxPushCurrent_v2",  "cuCtxPopCurrent_v2",   "cuMemHostRegister_v2",
    "cuMemHostUnregister", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuEventCreate",
    "cuEventDestroy_v2",   "cuEventRecord",        "cuEventSynchronize",   "cuStreamWaitEvent",
    "cuStreamSynchronize", "cuGetErrorName"};
constexpr std::size_t kCount = sizeof kNames / sizeof *kNames;
static_assert(sizeof(CudaDriver) == kCount * sizeof(void*));

}  // namespace

bool CudaDriver::find() {
  void* found[kCount] = {};
  if (!plain::find_loaded("libcuda.so", kNames, kCount, found)) return false;
  // POSIX has it that a pointer to an object holds one to a function.
  memcpy(static_cast<void*>(this), found, sizeof found);
  return true;
}

const char* CudaDriver::error_name(int error) const {
  const char* name = nullptr;
  return get_error_name(error, &name) == 0 && name ? name : "an unknown error";
}

}  // namespace bellows::ps
