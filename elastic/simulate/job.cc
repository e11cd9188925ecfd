// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/job.h"

#include <algorithm>

namespace bellows {

Placement placement_of(const NodeGpus& gpus) {
  Placement placement;
  std::copy_if(gpus.begin(), gpus.end(), std::back_inserter(placement),
               [](std::uint8_t on_node) { return on_node > 0; });
  return placement;
}

double measured_rate(const Application& application, const Placement& placement, const Batch& batch,
                     std::uint32_t epoch) {
  const std::uint64_t samples = batch.in_all(layout_of(placement));
  const double scale = static_cast<double>(samples) / application.limits().submitted;
  return step_gain(application.noise(samples, epoch), scale) / application.step_s(placement, batch);
}

double SimulatedJob::progress(double now) const {
  return progress_ + rate_ * std::max(0.0, now - computing_since_s_);
}

double SimulatedJob::waited_s(double now) const {
  if (layout_.gpus > 0) return 0;
  return now - (has_run_ ? held_since_s_ : submission_.submit_s);
}

Foresight SimulatedJob::foresight() const {
  return {speed_, class_ ? &class_->steps.record() : nullptr};
}

std::optional<GradientNoise> SimulatedJob::foreseen_noise() const {
  if (noise_ || !class_) return noise_;
  return class_->first_noise();
}

Batch SimulatedJob::choose_batch() const {
  const BatchLimits& limits = application().limits();
  if (rule_ == BatchRule::fixed) return lay_out(limits, layout_, submission_.batch);
  const Foresight foresight = this->foresight();
  const auto noise = foreseen_noise();
  if (foresight.any() && noise)
    return best_goodput(possible_batches(foresight.model(), limits, layout_), *noise).batch;
  return lay_out(limits, layout_, limits.smallest);
}

void SimulatedJob::begin_epoch(double now) {
  const Batch batch = choose_batch();
  const MeasuredStep step = application().steps().at(placement_, batch.local);
  noise_ = application().noise(batch.in_all(layout_), epoch_);
  if (rule_ == BatchRule::adapted)
    speed_.add({layout_, batch.local, step.step_s - step.exchange_s, step.step_s});
  rate_ = measured_rate(application(), placement_, batch, epoch_);
  computing_since_s_ = now;
  next_s_ = now + std::max(0.0, progress_after(epoch_ + 1) - progress_) / rate_;
}

void SimulatedJob::pass() {
  const double now = next_s_;
  if (rate_ == 0) {
    begin_epoch(now);
    return;
  }
  progress_ = progress_after(++epoch_);
  computing_since_s_ = now;
  if (epoch_ < application().epochs()) {
    begin_epoch(now);
    return;
  }
  finish_s_ = now;
  place(now, {}, 0);
}

void SimulatedJob::place(double now, const NodeGpus& gpus, double restart_s) {
  service_ = service(now);
  held_since_s_ = now;
  progress_ = progress(now);
  held_ = gpus;
  placement_ = placement_of(gpus);
  layout_ = layout_of(placement_);
  rate_ = 0;
  next_s_ = kNever;
  if (layout_.gpus == 0) return;
  if (has_run_) ++restarts_;
  has_run_ = true;
  next_s_ = now + restart_s;
}

}  // namespace bellows
