// SPDX-License-Identifier: Apache-2.0
#include "elastic/policy/job_speed.h"

#include <algorithm>
#include <cmath>

#include "elastic/policy/goodput.h"
#include "elastic/policy/smoothing.h"

namespace bellows {
namespace {

/// Of the time of steps over their mean, while it was measured once.
constexpr double kFirstSpread = 0.03;
constexpr double kMostSpread = 10;
/// Of a noise scale, in samples: more than any batch, and within a whole number.
constexpr double kMostNoise = 1e15;

bool is_sensible(const SizeSpeed& speed) {
  return std::isfinite(speed.samples_per_s) && std::isfinite(speed.progress_per_s) &&
         speed.samples_per_s > 0 && speed.progress_per_s > 0;
}

}  // namespace

void JobSpeed::add(const GpuLayout& layout, std::uint64_t batch, double step_s) {
  if (layout.gpus == 0 || batch > BatchRange::kMost) return;
  const std::uint32_t local = of_rank(batch, layout.gpus);
  // Without a batch there is no model that could depend on the nodes.
  const GpuLayout matters = batch > 0 ? layout : GpuLayout{1, layout.gpus};
  if (!check_sample({matters, local, 0, step_s})) return;
  batch_ = batch;
  most_gpus_ = std::max(most_gpus_, layout.gpus);
  if (batch == 0) {
    note_spread(layout.gpus, 1 / plain_.at(layout.gpus), step_s);
    return plain_.add(layout.gpus, 1 / step_s);
  }
  const auto before = seen_.add({layout, local, 0, step_s});
  note_spread(layout.gpus, before.value_or(step_s), step_s);
}

void JobSpeed::note_spread(std::uint32_t gpus, double foreseen_s, double step_s) {
  const auto [spread, fresh] = spread_.emplace(gpus, kFirstSpread);
  const double off = std::min(std::abs(step_s / foreseen_s - 1), kMostSpread);
  if (!fresh) spread->second = smoothed(spread->second, off);
}

double JobSpeed::doubt(std::uint32_t gpus, std::uint32_t now) const {
  const auto there = spread_.find(gpus);
  const auto here = spread_.find(now);
  const bool both = gpus != now && there != spread_.end() && here != spread_.end();
  return both ? 1 + std::max(there->second, here->second) : 1;
}

void JobSpeed::note_noise_scale(std::uint64_t samples) {
  if (samples > 0) noise_scale_ = samples;
}

/// What is known of a job and its class together.
struct JobSpeed::Known {
  Foresight steps;
  std::uint64_t batch;        ///< 0: not known
  std::uint64_t noise_scale;  ///< likewise
  std::uint32_t most_local;
};

JobSpeed::Known JobSpeed::known(const JobClass* of_class) const {
  Known known{{seen_.record(), of_class ? &of_class->steps.record() : nullptr},
              batch_,
              noise_scale_,
              std::max(1U, seen_.most_local())};
  if (!of_class) return known;
  // Jobs of one name may be of different programs: of one that has been heard, only what it said
  // itself decides which batches its memory holds, and whether it is to change its batch.
  if (seen()) return known;
  known.batch = of_class->batch();
  if (const auto& noise = of_class->first_noise())
    known.noise_scale = static_cast<std::uint64_t>(std::min(noise->variance, kMostNoise));
  known.most_local = std::max(known.most_local, of_class->steps.most_local());
  return known;
}

bool JobSpeed::is_by_class_at(const GpuLayout& layout, const JobClass& of_class) const {
  const Known all = known(&of_class);
  const auto& samples = of_class.steps.record().samples();
  return !seen_at(layout.gpus) && all.batch > 0 && all.steps.by_class() &&
         std::any_of(samples.begin(), samples.end(),
                     [&](const StepSample& sample) { return sample.layout == layout; });
}

std::uint32_t JobSpeed::most_to_try(std::uint32_t now, const JobClass* of_class) const {
  std::uint32_t largest = std::max(now, most_gpus_);
  const Known all = known(of_class);
  if (all.batch > 0) largest = std::max(largest, all.steps.most_gpus());
  return largest > UINT32_MAX / 2 ? UINT32_MAX : 2 * largest;
}

std::optional<SizeSpeed> JobSpeed::with_batch(const Known& known, const GpuLayout& layout,
                                              const std::optional<BatchRange>& range, bool is_now) {
  const StepTime& model = known.steps.model();
  const double excess = known.steps.excess(layout);
  const std::uint64_t reference = range ? range->max : known.batch;
  const auto in_reference = static_cast<double>(reference);
  const GradientNoise noise{1, static_cast<double>(known.noise_scale) / in_reference};
  const auto speed = [&](std::uint64_t batch) {
    const double step_s = excess * model.step_s(layout, of_rank(batch, layout.gpus), 1);
    const auto samples = static_cast<double>(batch);
    const double gain = known.noise_scale > 0 ? step_gain(noise, samples / in_reference) : samples;
    return SizeSpeed{layout.gpus, static_cast<std::uint32_t>(batch), samples / step_s,
                     gain / step_s};
  };
  if (!range || known.noise_scale == 0 || is_now) return speed(known.batch);
  if (layout.gpus > range->max) return std::nullopt;
  const std::uint64_t most =
      std::clamp(std::uint64_t{known.most_local} * layout.gpus, range->min, range->max);
  const BatchLimits limits{.submitted = static_cast<std::uint32_t>(reference),
                           .smallest = static_cast<std::uint32_t>(range->min),
                           .largest = static_cast<std::uint32_t>(most),
                           .largest_local = UINT32_MAX};
  const Batch best = best_goodput(possible_batches(model, limits, layout), noise).batch;
  // The range may have none of which all ranks get equally many samples.
  return speed(best.local > 0 ? best.in_all(layout) : most);
}

std::vector<SizeSpeed> JobSpeed::at(const std::vector<std::uint32_t>& sizes,
                                    std::uint32_t gpus_per_node,
                                    const std::optional<BatchRange>& range, std::uint32_t now,
                                    const JobClass* of_class) const {
  const Known all = known(of_class);
  std::vector<SizeSpeed> speeds;
  for (const std::uint32_t gpus : sizes) {
    if (all.batch == 0) {
      const double per_s = plain_.at(gpus);
      speeds.push_back({gpus, 0, per_s, per_s});
    } else if (auto speed =
                   with_batch(all, packed_layout(gpus, gpus_per_node), range, gpus == now)) {
      speeds.push_back(*speed);
    }
  }
  // Of reports that lead to no numbers, nothing is believed.
  const bool sensible = std::all_of(speeds.begin(), speeds.end(), is_sensible);
  for (SizeSpeed& speed : speeds) {
    if (!sensible) speed.samples_per_s = speed.progress_per_s = speed.gpus;
    const double slower = doubt(speed.gpus, now);
    speed.samples_per_s /= slower;
    speed.progress_per_s /= slower;
  }
  return speeds;
}

}  // namespace bellows
