// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace bellows::pool {

/// How busy the GPUs of a job are on this node, by NVIDIA's management library where there is one.
/// It is asked each second by a thread that nobody waits for, but for a moment at the end: a driver
/// that is stuck does not answer, and what was found last only grows old.
class GpuMeter {
 public:
  using Clock = std::chrono::steady_clock;

  struct Reading {
    double busy = 0;  ///< a mean over the GPUs; 1: a kernel was running all the time
    Clock::time_point at;
  };

  /// `devices`: as CUDA_VISIBLE_DEVICES has them; empty: the job has none. `library`: a file.
  GpuMeter(const std::string& devices, const std::string& library);
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;
  ~GpuMeter();
  /// By this process's environment.
  static std::unique_ptr<GpuMeter> of_job();

  /// Nothing: it is not known. Each reading is given once.
  std::optional<Reading> take();

 private:
  struct Shared;

  const std::shared_ptr<Shared> shared_;
};

}  // namespace bellows::pool
