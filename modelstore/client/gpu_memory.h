// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "modelstore/driver/cuda_driver.h"
#include "modelstore/wire/model_wire.h"

struct bellows_model;

namespace bellows::modelclient {

/// A model in a GPU's memory, in this program's own context there. Functions give
/// BELLOWS_MODEL_OK, or the model's error says why not.
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() { (void)reset(); }

  /// `ordinal`: CUDA's number of the GPU in this program. `address`: as in gpu_address.h.
  int find(bellows_model* model, int ordinal, std::uint64_t* address);
  /// Maps what came with the answer, to be read only.
  int take(bellows_model* model, const modelwire::ModelReply& reply, int fd);
  /// Waits for the program's work on the GPU, which may still read the model. False: the driver
  /// can't wait now, as while a graph is captured, and all stays as it was.
  bool reset();
  bool is_mapped() const { return mapping_.memory() != 0; }
  cuda::DeviceMemory memory() const { return mapping_.memory(); }

 private:
  int fail(bellows_model* model, const char* what, int error) const;

  cuda::Driver driver_{};
  cuda::Device device_ = 0;
  void* context_ = nullptr;
  int process_ = 0;  ///< that has the context
  cuda::Mapping mapping_;
};

}  // namespace bellows::modelclient
