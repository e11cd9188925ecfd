// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

namespace bellows {

/// GPU-seconds that a job has held, so far as bellowsd has looked. A value.
class HeldService {
 public:
  /// A job that is seen for the first time has held so many GPUs since then. `whole`: and none
  /// before.
  void begin(std::uint32_t gpus, std::time_t since, bool whole) {
    gpus_ = gpus;
    known_until_ = since;
    whole_ = whole;
  }
  /// It holds so many from now on.
  void note(std::uint32_t gpus, std::time_t now) {
    gpu_seconds_ += static_cast<double>(gpus_) *
                    static_cast<double>(std::max<std::time_t>(now - known_until_, 0));
    begin(gpus, now, whole_);
  }
  double gpu_seconds() const { return gpu_seconds_; }
  bool is_whole() const { return whole_; }

 private:
  std::uint32_t gpus_ = 0;
  std::time_t known_until_ = 0;
  double gpu_seconds_ = 0;
  bool whole_ = false;
};

}  // namespace bellows
