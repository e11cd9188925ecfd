// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "paramserver/client/device_copies.h"
#include "paramserver/client/learner.h"

namespace bellows::ps {

/// A learner's copies from and to devices. To be ended before the learner's memory is unmapped.
class DeviceSide {
 public:
  // Beside CUDA's numbers.
  static constexpr int kNotLoaded = -1;
  static constexpr int kNoMemory = -2;

  /// Copies all of a tensor's gradient, which lies at `to` in the learner's memory.
  DeviceError copy_gradient(const Learner& learner, std::size_t tensor, void* to, const void* from,
                            std::size_t bytes, void* stream);
  /// Copies a tensor's weights, of those of a shard that were pulled and begin at `all`.
  DeviceError copy_weights(const Learner& learner, std::size_t tensor, std::uint32_t shard,
                           const float* all, const float* from, void* to, std::size_t bytes,
                           void* stream);
  DeviceError await_gradients() { return gradients_.wait(); }
  DeviceError await_weights() { return weights_.wait(); }

  /// Has room for the copies of so many tensors from the first one on.
  void set_tensors(std::size_t tensors) { tensors_ = tensors; }
  /// See bellows_ps_unpinned.
  const char* unpinned() const { return unpinned_; }
  const char* error_name(int code) const { return cuda_.error_name(code); }

 private:
  DeviceError find_cuda(const Learner& learner);
  void lock(std::size_t piece, void* context, void* memory, std::size_t bytes, unsigned flags);

  bool found_ = false;
  std::size_t tensors_ = 0;
  CudaDriver cuda_ = {};
  LockedMemory locked_;  ///< the slot, then the buffers of each shard
  DeviceCopies gradients_;
  DeviceCopies weights_;
  char unpinned_[200] = "";
};

}  // namespace bellows::ps
