// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/bound.h"

#include <algorithm>
#include <set>

namespace bellows {
namespace {

constexpr double kNever = SimulatedJob::kNever;

/// When jobs are done on one machine of this speed, least work left first; in ascending order.
std::vector<double> on_one_machine(const std::vector<Submission>& submissions,
                                   const std::vector<double>& work, double speed) {
  std::multiset<double> left;
  std::vector<double> done_s;
  double now = 0;
  for (std::size_t next = 0; next < submissions.size() || !left.empty();) {
    const double arrival = next < submissions.size() ? submissions[next].submit_s : kNever;
    const double end = left.empty() ? kNever : now + *left.begin() / speed;
    if (end <= arrival) {
      left.erase(left.begin());
      done_s.push_back(now = end);
      continue;
    }
    if (!left.empty()) {
      const double rest = *left.begin() - (arrival - now) * speed;
      left.erase(left.begin());
      left.insert(rest);
    }
    left.insert(work[next++]);
    now = arrival;
  }
  return done_s;
}

}  // namespace

void LeastCompletion::add(const Application& application, const Placement& placement,
                          const Batch& batch, BySamples& costs) {
  if (batch.local == 0) return;
  const GpuLayout layout = layout_of(placement);
  const double step_s = application.step_s(placement, batch);
  const Costs cost{step_s, step_s * layout.gpus};
  Costs& least = costs.try_emplace(batch.in_all(layout), cost).first->second;
  least = {std::min(least.s, cost.s), std::min(least.gpu_s, cost.gpu_s)};
}

LeastCompletion::ByEpoch LeastCompletion::by_epoch(const Application& application,
                                                   const BySamples& costs) {
  ByEpoch least(application.epochs(), {kNever, kNever});
  for (std::uint32_t e = 0; e < application.epochs(); ++e)
    for (const auto& [samples, cost] : costs) {
      const double scale = static_cast<double>(samples) / application.limits().submitted;
      const double gain = step_gain(application.noise(samples, e), scale);
      least[e] = {std::min(least[e].s, cost.s / gain), std::min(least[e].gpu_s, cost.gpu_s / gain)};
    }
  return least;
}

// With any batch that a job may choose itself. Which these are does not depend on a model's times.
const LeastCompletion::ByEpoch& LeastCompletion::adapted(const Application& application) {
  const auto [entry, is_new] = adapted_.try_emplace(&application);
  if (!is_new) return entry->second;
  BySamples costs;
  for (const Placement& placement :
       application.steps().placements(shape_.nodes, shape_.gpus_per_node))
    for (const TimedBatch& timed :
         possible_batches(StepTime{}, application.limits(), layout_of(placement)))
      add(application, placement, timed.batch, costs);
  return entry->second = by_epoch(application, costs);
}

LeastCompletion::ByEpoch LeastCompletion::fixed(const Application& application,
                                                std::uint32_t batch) const {
  BySamples costs;
  for (const Placement& placement :
       application.steps().placements(shape_.nodes, shape_.gpus_per_node))
    add(application, placement, lay_out(application.limits(), layout_of(placement), batch), costs);
  return by_epoch(application, costs);
}

const LeastCompletion::Least& LeastCompletion::of(const Submission& submission) {
  const Application& application = *submission.application;
  const auto [entry, is_new] = known_.try_emplace({&application, submission.batch});
  if (!is_new) return entry->second;
  const ByEpoch& by_itself = adapted(application);
  const ByEpoch as_submitted = fixed(application, submission.batch);
  for (std::uint32_t e = 0; e < application.epochs(); ++e) {
    const double progress = application.progress(e + 1) - application.progress(e);
    entry->second.alone_s += progress * std::min(by_itself[e].s, as_submitted[e].s);
    entry->second.gpu_s += progress * std::min(by_itself[e].gpu_s, as_submitted[e].gpu_s);
  }
  return entry->second;
}

double LeastCompletion::mean_s(const std::vector<Submission>& submissions, double restart_s) {
  std::vector<double> work, alone_s;
  double sum = 0;
  for (const Submission& submission : submissions) {
    const Least& least = of(submission);
    // A restart holds one GPU at least.
    work.push_back(submission.work * least.gpu_s + restart_s);
    alone_s.push_back(submission.submit_s + submission.work * least.alone_s + restart_s);
    sum -= submission.submit_s;
  }
  std::sort(alone_s.begin(), alone_s.end());
  const auto together_s = on_one_machine(submissions, work, shape_.gpus());
  for (std::size_t k = 0; k < alone_s.size(); ++k) sum += std::max(alone_s[k], together_s[k]);
  return sum / static_cast<double>(submissions.size());
}

}  // namespace bellows
