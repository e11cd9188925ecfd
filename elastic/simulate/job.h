// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "elastic/policy/job_class.h"
#include "elastic/policy/speed_record.h"
#include "elastic/simulate/application.h"

namespace bellows {

/// GPUs of a job on each node of the cluster.
using NodeGpus = std::vector<std::uint8_t>;

/// The nodes that a job has GPUs on.
Placement placement_of(const NodeGpus& gpus);

/// What was measured: progress in a second, with this batch in this epoch.
double measured_rate(const Application& application, const Placement& placement, const Batch& batch,
                     std::uint32_t epoch);

/// What a user submits. Times in seconds.
struct Submission {
  std::string name;
  double submit_s = 0;
  const Application* application = nullptr;
  std::uint32_t gpus = 0;   ///< asked for: what a scheduler without elasticity gives it
  std::uint32_t batch = 0;  ///< samples in a step, likewise
  double work = 1;          ///< times what was measured of the application until it was done
  std::string tenant = {};  ///< whose it is
};

/// Who chooses the batch of a job.
enum class BatchRule {
  fixed,   ///< the user, once
  adapted  ///< the job, whenever an epoch or a run of it begins: what makes most progress
};

/// A training job in simulated time: it waits, restarts, computes epoch after epoch, and ends.
class SimulatedJob {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  SimulatedJob(const Submission& submission, BatchRule rule)
      : submission_(submission), rule_(rule) {}

  const Submission& submission() const { return submission_; }
  const Application& application() const { return *submission_.application; }
  const NodeGpus& held() const { return held_; }
  std::uint32_t gpus() const { return layout_.gpus; }
  std::uint32_t epoch() const { return epoch_; }
  std::uint32_t restarts() const { return restarts_; }
  double finish_s() const { return *finish_s_; }
  bool is_done() const { return finish_s_.has_value(); }
  double age_s(double now) const { return now - submission_.submit_s; }
  /// Since it last held GPUs, or since its submission; 0: it holds some.
  double waited_s(double now) const;
  /// GPU-seconds that it has held.
  double service(double now) const { return service_ + layout_.gpus * (now - held_since_s_); }
  double progress(double now) const;
  /// Progress in a second; 0 while it restarts or waits.
  double rate() const { return rate_; }
  bool has_run() const { return has_run_; }
  /// When so many epochs are done.
  double progress_after(std::uint32_t epochs) const {
    return submission_.work * application().progress(epochs);
  }

  /// What can be known of it from outside: its steps so far and the noise of its last gradients.
  const SpeedRecord& speed() const { return speed_; }
  const std::optional<GradientNoise>& noise() const { return noise_; }

  /// Where it has seen nothing itself, it knows what its class has; null: it is alone.
  void join(const JobClass* job_class) { class_ = job_class; }
  /// How long its steps take by what it and its class have seen.
  Foresight foresight() const;
  /// Of its last gradients, or else of the first ones of its class.
  std::optional<GradientNoise> foreseen_noise() const;

  /// When it does something of itself next; infinite while it holds nothing.
  double next_s() const { return next_s_; }
  /// At next_s(): its restart or an epoch is done, and perhaps the job.
  void pass();
  /// At `now` it gets other GPUs, or none; after `restart_s` seconds it computes on.
  void place(double now, const NodeGpus& gpus, double restart_s);

 private:
  void begin_epoch(double now);
  Batch choose_batch() const;

  Submission submission_;
  BatchRule rule_;
  NodeGpus held_;
  GpuLayout layout_;
  Placement placement_;
  std::uint32_t epoch_ = 0;  ///< that it is in, from 0
  std::uint32_t restarts_ = 0;
  bool has_run_ = false;
  double service_ = 0;  ///< until held_since_s_
  double held_since_s_ = 0;
  double progress_ = 0;  ///< at computing_since_s_
  double computing_since_s_ = 0;
  double rate_ = 0;  ///< progress in a second; 0 while it restarts
  double next_s_ = kNever;
  std::optional<double> finish_s_;
  const JobClass* class_ = nullptr;
  SpeedRecord speed_;
  std::optional<GradientNoise> noise_;
};

}  // namespace bellows
