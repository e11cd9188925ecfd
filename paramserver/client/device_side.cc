// SPDX-License-Identifier: Apache-2.0
#include "paramserver/client/device_side.h"

#include <stdio.h>

namespace bellows::ps {

DeviceError DeviceSide::find_cuda(const Learner& learner) {
  if (found_) return {};
  if (!cuda_.find()) return {kNotLoaded, nullptr};
  const Geometry& geometry = learner.geometry();
  if (!locked_.make(cuda_, 1 + std::size_t{geometry.shards} * geometry.buffers()) ||
      !gradients_.make(cuda_, tensors_) || !weights_.make(cuda_, tensors_))
    return {kNoMemory, nullptr};
  found_ = true;
  return {};
}

void DeviceSide::lock(std::size_t piece, void* context, void* memory, std::size_t bytes,
                      unsigned flags) {
  const int code = locked_.lock(piece, context, memory, bytes, flags);
  // Copies of memory that is not locked are right all the same.
  if (code != 0)
    snprintf(unpinned_, sizeof unpinned_,
             "copies of %s are slower: CUDA cannot page-lock their memory: %s",
             piece == 0 ? "gradients" : "weights", cuda_.error_name(code));
}

DeviceError DeviceSide::copy_gradient(const Learner& learner, std::size_t tensor, void* to,
                                      const void* from, std::size_t bytes, void* stream) {
  if (const DeviceError error = find_cuda(learner)) return error;
  return gradients_.begin(tensor, stream, [&](void* context) {
    lock(0, context, learner.slot().data(), learner.slot().size(), 0);
    return cuda_.copy_to_host(to, reinterpret_cast<std::uintptr_t>(from), bytes, stream);
  });
}

DeviceError DeviceSide::copy_weights(const Learner& learner, std::size_t tensor,
                                     std::uint32_t shard, const float* all, const float* from,
                                     void* to, std::size_t bytes, void* stream) {
  if (const DeviceError error = find_cuda(learner)) return error;
  return weights_.begin(tensor, stream, [&](void* context) {
    // Only buffers that the server has filled: locking the others would give them pages.
    const std::size_t piece =
        1 + std::size_t{shard} * learner.geometry().buffers() + learner.pulled(shard).buffer;
    // The driver takes no memory of const, and does not write to this.
    lock(piece, context, const_cast<float*>(all), learner.shard(shard).count * sizeof(float),
         CudaDriver::kLockReadOnly);
    return cuda_.copy_to_device(reinterpret_cast<std::uintptr_t>(to), from, bytes, stream);
  });
}

}  // namespace bellows::ps
