// SPDX-License-Identifier: Apache-2.0
#include "modelstore/client/gpu_memory.h"

#include <string.h>
#include <unistd.h>

#include "common/plain/symbols.h"
#include "modelstore/client/model_handle.h"

namespace bellows::modelclient {

int GpuMemory::fail(bellows_model* model, const char* what, int error) const {
  const int code =
      error == cuda::kOutOfMemory ? BELLOWS_MODEL_ERR_NO_ROOM : BELLOWS_MODEL_ERR_UNAVAILABLE;
  return model->fail(code, "CUDA cannot %s: %s", what, cuda::error_name(driver_, error));
}

int GpuMemory::find(bellows_model* model, int ordinal, std::uint64_t* address) {
  void* found[cuda::kFunctionCount] = {};
  if (!plain::find_loaded("libcuda.so", cuda::kFunctions, cuda::kFunctionCount, found))
    return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE,
                       "this program has not loaded libcuda.so.1, the driver of NVIDIA's, or one "
                       "that is too old: its first call of CUDA loads it");
  driver_ = cuda::driver_of(found);
  char text[32] = "";
  int error = driver_.init(0);
  if (error == cuda::kSuccess) error = driver_.get_device(&device_, ordinal);
  if (error == cuda::kInvalidDevice || error == cuda::kNoDevice)
    return model->fail(BELLOWS_MODEL_ERR_INVALID, "this program has no GPU %d", ordinal);
  if (error == cuda::kSuccess) error = driver_.get_address(text, sizeof text, device_);
  if (error != cuda::kSuccess) return fail(model, "find the GPU", error);
  if (modelwire::read_gpu(text, strlen(text), address)) return BELLOWS_MODEL_OK;
  return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE, "CUDA says that GPU %d is at \"%s\"", ordinal,
                     text);
}

int GpuMemory::take(bellows_model* model, const modelwire::ModelReply& reply, int fd) {
  int error = driver_.retain_context(&context_, device_);
  if (error != cuda::kSuccess) {
    context_ = nullptr;
    return fail(model, "make a context", error);
  }
  process_ = getpid();
  const cuda::Current current(driver_, context_);
  if (current.error() != cuda::kSuccess) return fail(model, "use its context", current.error());
  cuda::Allocation allocation = 0;
  error = driver_.import_allocation(
      &allocation, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)), cuda::kDescriptor);
  if (error != cuda::kSuccess) return fail(model, "take the model's memory", error);
  error = mapping_.map(driver_, allocation, reply.memory_bytes, device_, cuda::kReadOnly);
  // The mapping holds it.
  (void)driver_.release(allocation);
  return error == cuda::kSuccess ? BELLOWS_MODEL_OK : fail(model, "map the model's memory", error);
}

bool GpuMemory::reset() {
  if (!context_) return true;
  if (process_ != getpid()) {
    mapping_.forget();
    context_ = nullptr;
    return true;
  }
  {
    const cuda::Current current(driver_, context_);
    // What a kernel reads that runs still must not go away. At a program's end the driver may have
    // ended before: it has given all back then.
    if (is_mapped() && current.error() == cuda::kSuccess && driver_.synchronize() != cuda::kSuccess)
      return false;
    mapping_.reset();
  }
  (void)driver_.release_context(device_);
  context_ = nullptr;
  return true;
}

}  // namespace bellows::modelclient
