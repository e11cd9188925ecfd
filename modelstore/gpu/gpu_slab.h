// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/digest/model_digest.h"
#include "modelstore/driver/cuda_driver.h"

namespace bellows {

/// A GPU, by way of the driver in a library. A resource.
class Gpu {
 public:
  /// `address`: of the PCI bus. unavailable: there is no driver, or it does not work; not_found:
  /// it has no such GPU; invalid: the GPU cannot export memory as a descriptor, or is divided.
  static Result<std::unique_ptr<Gpu>> open(const std::string& library, const std::string& address);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  const cuda::Driver& driver() const { return driver_; }
  cuda::Device device() const { return device_; }
  void* context() const { return context_; }
  /// "GPU 0000:3b:00.0: cannot WHAT: CUDA_ERROR_.."
  Error error(const std::string& what, int code) const;
  /// busy, with how much is free. In the GPU's context.
  Error no_room(std::uint64_t bytes) const;

 private:
  Gpu() = default;
  Status start();
  bool is_part() const;

  std::string address_;
  void* library_ = nullptr;
  cuda::Driver driver_{};
  cuda::Device device_ = 0;
  void* context_ = nullptr;
};

/// One allocation on a GPU, mapped in this process. In the GPU's context. A resource.
class GpuSlab {
 public:
  /// Is called by several threads, with bytes that are done.
  using Progress = std::function<void(std::uint64_t bytes)>;

  /// busy: the GPU has no such room.
  static Result<std::unique_ptr<GpuSlab>> make(const Gpu& gpu, std::uint64_t bytes);
  GpuSlab(const GpuSlab&) = delete;
  GpuSlab& operator=(const GpuSlab&) = delete;
  ~GpuSlab();

  /// What the allocation takes: the bytes that were asked for, rounded up.
  std::uint64_t size() const { return size_; }
  /// Copies to its begin.
  Status fill(const unsigned char* from, std::uint64_t bytes, const Progress& progress);
  /// Of its first bytes, as the GPU gives them back.
  Result<ModelDigest> digest(std::uint64_t bytes, const Progress& progress) const;
  /// By which another process maps it.
  Result<Fd> to_descriptor() const;

 private:
  explicit GpuSlab(const Gpu& gpu) : gpu_(gpu) {}

  const Gpu& gpu_;
  std::uint64_t size_ = 0;
  cuda::Allocation allocation_ = 0;
  bool made_ = false;
  cuda::Mapping mapping_;
};

}  // namespace bellows
