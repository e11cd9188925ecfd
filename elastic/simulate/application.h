// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "elastic/policy/goodput.h"
#include "elastic/simulate/step_table.h"

namespace bellows {

/// What a contract says of the jobs of an application, where that is less than was measured.
struct ApplicationTerms {
  std::uint32_t largest_gpus = UINT32_MAX;
  std::uint32_t smallest_batch = 0;          ///< in a step; 0: the smallest that was measured
  std::uint32_t largest_local = UINT32_MAX;  ///< samples that fit into the memory of a GPU
};

/// A training program as it was measured: how long its steps last and what they are worth. Progress
/// is counted in steps of the submitted batch. A value type.
class Application {
 public:
  /// Of a folder with placements.csv, scalability.csv and validation-BATCH.csv files. Errors name
  /// file and line.
  static Result<Application> read(const std::filesystem::path& folder,
                                  const ApplicationTerms& terms);

  const std::string& name() const { return name_; }
  const BatchLimits& limits() const { return limits_; }
  std::uint32_t largest_gpus() const { return largest_gpus_; }
  const StepTable& steps() const { return steps_; }
  /// How long a step of this batch takes there.
  double step_s(const Placement& placement, const Batch& batch) const;
  /// Passes of the program over its samples until it is done.
  std::uint32_t epochs() const { return static_cast<std::uint32_t>(progress_.size()) - 1; }
  /// Progress when so many epochs are done, up to all of them.
  double progress(std::uint32_t epochs_done) const { return progress_[epochs_done]; }
  /// In an epoch, counted from 0, with a batch between the smallest and the largest that was
  /// measured.
  GradientNoise noise(std::uint64_t batch, std::uint32_t epoch) const;
  /// Steps that so many epochs take with a batch.
  double steps_until(std::uint64_t batch, std::uint32_t epochs_done) const;

 private:
  struct Epoch {
    double progress;
    double steps;
    GradientNoise noise;
  };
  using Validation = std::map<std::uint32_t, std::vector<Epoch>>;  ///< by batch

  static Result<std::vector<Epoch>> read_validation(const std::filesystem::path& path);
  Status read_validations(const std::filesystem::path& folder);
  template <typename Read>
  double between(std::uint64_t batch, Read read) const;

  std::string name_;
  BatchLimits limits_;
  std::uint32_t largest_gpus_ = 0;
  StepTable steps_;
  Validation validation_;
  std::vector<double> progress_;
};

}  // namespace bellows
