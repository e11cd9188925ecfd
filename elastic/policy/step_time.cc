// SPDX-License-Identifier: Apache-2.0
#include "elastic/policy/step_time.h"

#include <fmt/core.h>
#include <nlopt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>

namespace bellows {
namespace {

constexpr double kNothing = 1e-8;  // seconds
constexpr double kLongest = 1e9;   // seconds; beyond it powers of them would leave a double's range
constexpr std::size_t kParameters = 7;

// The logarithms of the six times, then gamma: all of them are of one magnitude then.
using Point = std::array<double, kParameters>;

StepTime model_at(const double* x) {
  return {.compute_constant = std::exp(x[0]),
          .compute_per_sample = std::exp(x[1]),
          .between_nodes = std::exp(x[2]),
          .between_nodes_per_rank = std::exp(x[3]),
          .inside_node = std::exp(x[4]),
          .inside_node_per_rank = std::exp(x[5]),
          .gamma = x[6]};
}

double ranks_after_second(const GpuLayout& layout) {
  return layout.gpus > 2 ? layout.gpus - 2.0 : 0.0;
}

// Which of the point's coordinates are the constant of the exchange; the next is its part per rank.
std::size_t exchange_at(const GpuLayout& layout) { return layout.nodes > 1 ? 2 : 4; }

// Adds the squared errors of a sample, and their derivatives.
double add_errors(const StepSample& sample, const StepTime& model, const double* x, double weight,
                  double* gradient) {
  const double compute = model.compute_s(sample.local_batch);
  const double exchange = model.exchange_s(sample.layout);
  const double of_compute = sample.compute_s > 0 ? std::log(compute / sample.compute_s) : 0;
  const double a = std::pow(compute, model.gamma);
  const double b = std::pow(exchange, model.gamma);
  const double log_step = std::log(a + b) / model.gamma;
  const double of_step = log_step - std::log(sample.step_s);
  if (gradient) {
    const double by_compute = 2 * weight * (of_compute + of_step * a / (a + b));
    gradient[0] += by_compute * model.compute_constant / compute;
    gradient[1] += by_compute * model.compute_per_sample * sample.local_batch / compute;
    if (sample.layout.gpus > 1) {
      const std::size_t at = exchange_at(sample.layout);
      const double by_exchange = 2 * weight * of_step * b / (a + b) / exchange;
      gradient[at] += by_exchange * std::exp(x[at]);
      gradient[at + 1] += by_exchange * std::exp(x[at + 1]) * ranks_after_second(sample.layout);
    }
    const double by_gamma = (a * std::log(compute) + b * std::log(exchange)) / (a + b);
    gradient[6] += 2 * weight * of_step * (by_gamma - log_step) / model.gamma;
  }
  return weight * (of_compute * of_compute + of_step * of_step);
}

// As Pollux has it: towards little overlap and towards parts per rank that are small.
double add_preferences(const double* x, double* gradient) {
  double sum = 1e-3 * (x[6] - 1) * (x[6] - 1);
  if (gradient) gradient[6] += 2e-3 * (x[6] - 1);
  for (const std::size_t at : {std::size_t{2}, std::size_t{4}}) {
    const double squared = 1e-2 * std::exp(2 * (x[at + 1] - x[at]));
    sum += squared;
    if (!gradient) continue;
    gradient[at + 1] += 2 * squared;
    gradient[at] -= 2 * squared;
  }
  return sum;
}

double distance(unsigned n, const double* x, double* gradient, void* data) {
  const auto& samples = *static_cast<const std::vector<StepSample>*>(data);
  if (gradient) std::fill(gradient, gradient + n, 0.0);
  double sum = add_preferences(x, gradient);
  const StepTime model = model_at(x);
  for (const StepSample& sample : samples)
    sum += add_errors(sample, model, x, 1.0 / static_cast<double>(samples.size()), gradient);
  return sum;
}

Point usual_start() {
  const double constant = std::log(0.1);
  const double part = std::log(0.01);
  return {constant, part, constant, part, constant, part, 1.001};
}

struct Bounds {
  Point lower;
  Point upper;
  Point start;

  void start_at(const StepTime& model) {
    start = {std::log(model.compute_constant),
             std::log(model.compute_per_sample),
             std::log(model.between_nodes),
             std::log(model.between_nodes_per_rank),
             std::log(model.inside_node),
             std::log(model.inside_node_per_rank),
             model.gamma};
    // From next to nothing no logarithm finds its way up again.
    const Point usual = usual_start();
    for (std::size_t i = 0; i < kParameters - 1; ++i)
      if (start[i] < std::log(100 * kNothing)) start[i] = usual[i];
    for (std::size_t i = 0; i < kParameters; ++i)
      start[i] = std::clamp(start[i], lower[i], upper[i]);
  }
  void fix(std::size_t at, double value) { lower[at] = upper[at] = start[at] = value; }
};

// What no sample says anything about is fixed.
Bounds bounds_for(const std::vector<StepSample>& samples) {
  const double nothing = std::log(kNothing);
  const double high = std::log(1e4);
  Bounds bounds{{nothing, nothing, nothing, nothing, nothing, nothing, 1},
                {high, high, high, high, high, high, 10},
                usual_start()};
  const auto any = [&samples](auto&& test) {
    return std::any_of(samples.begin(), samples.end(), test);
  };
  if (!any([&](const StepSample& s) { return s.local_batch != samples[0].local_batch; })) {
    double sum = 0;
    for (const StepSample& sample : samples)
      sum += sample.compute_s > 0 ? sample.compute_s : sample.step_s;
    bounds.fix(0, std::log(sum / static_cast<double>(samples.size()) / 2));
  }
  const bool between = any([](const StepSample& s) { return s.layout.nodes > 1; });
  const bool inside =
      any([](const StepSample& s) { return s.layout.nodes == 1 && s.layout.gpus > 1; });
  const bool many = any([](const StepSample& s) { return s.layout.gpus > 2; });
  if (!between) bounds.fix(2, nothing);
  if (!between || !many) bounds.fix(3, nothing);
  if (!inside) bounds.fix(4, nothing);
  if (!inside || !many) bounds.fix(5, nothing);
  return bounds;
}

struct DestroyOptimizer {
  void operator()(nlopt_opt_s* optimizer) const { nlopt_destroy(optimizer); }
};

}  // namespace

GpuLayout packed_layout(std::uint32_t gpus, std::uint32_t gpus_per_node) {
  return {(gpus + gpus_per_node - 1) / gpus_per_node, gpus};
}

Status check_sample(const StepSample& s) {
  if (s.layout.nodes > 0 && s.layout.gpus >= s.layout.nodes && s.local_batch > 0 &&
      (s.compute_s == 0 || s.compute_s >= kNothing) &&
      s.step_s >= std::max(s.compute_s, kNothing) && s.step_s <= kLongest)
    return {};
  return Error{ErrorKind::invalid,
               fmt::format("a step of {} s, {} s of them computing, with {} samples on each of {} "
                           "GPUs of {} nodes can't be",
                           s.step_s, s.compute_s, s.local_batch, s.layout.gpus, s.layout.nodes)};
}

bool StepTime::knows(const GpuLayout& layout) const {
  return layout.gpus <= 1 || (layout.nodes > 1 ? saw_between_nodes : saw_inside_node);
}

double StepTime::compute_s(std::uint32_t local_batch) const {
  return compute_constant + compute_per_sample * local_batch;
}

double StepTime::exchange_s(const GpuLayout& layout) const {
  if (layout.gpus <= 1) return kNothing;
  return layout.nodes > 1 ? between_nodes + between_nodes_per_rank * ranks_after_second(layout)
                          : inside_node + inside_node_per_rank * ranks_after_second(layout);
}

double StepTime::step_s(const GpuLayout& layout, std::uint32_t local_batch,
                        std::uint32_t passes) const {
  const double compute = compute_s(local_batch);
  const double exchange = exchange_s(layout);
  const double longer = std::max(compute, exchange);
  const double shorter = std::min(compute, exchange);
  // The longer one is taken out, so that no power leaves the range of a double.
  return compute * (passes - 1) +
         longer * std::pow(1 + std::pow(shorter / longer, gamma), 1 / gamma);
}

Result<StepTime> fit_step_time(const std::vector<StepSample>& samples,
                               const std::optional<StepTime>& start) {
  if (samples.empty()) return Error{ErrorKind::invalid, "no steps were measured"};
  for (const StepSample& sample : samples)
    if (auto status = check_sample(sample); !status) return status.error();
  Bounds bounds = bounds_for(samples);
  if (start) bounds.start_at(*start);
  const std::unique_ptr<nlopt_opt_s, DestroyOptimizer> optimizer(
      nlopt_create(NLOPT_LD_SLSQP, kParameters));
  if (!optimizer) return Error{ErrorKind::internal, "there is no memory to fit the time of a step"};
  nlopt_set_lower_bounds(optimizer.get(), bounds.lower.data());
  nlopt_set_upper_bounds(optimizer.get(), bounds.upper.data());
  nlopt_set_min_objective(optimizer.get(), distance,
                          const_cast<std::vector<StepSample>*>(&samples));
  nlopt_set_ftol_abs(optimizer.get(), 1e-9);
  nlopt_set_maxeval(optimizer.get(), 200);
  double least = 0;
  // Whatever it ends with, the point is the best that it has seen.
  nlopt_optimize(optimizer.get(), bounds.start.data(), &least);
  StepTime model = model_at(bounds.start.data());
  model.saw_between_nodes = bounds.lower[2] < bounds.upper[2];
  model.saw_inside_node = bounds.lower[4] < bounds.upper[4];
  if (!model.saw_between_nodes) {
    // Between nodes it can't be faster than inside one.
    model.between_nodes = std::max(model.between_nodes, model.inside_node * 1.1);
    model.between_nodes_per_rank =
        std::max(model.between_nodes_per_rank, model.inside_node_per_rank * 1.1);
  }
  return model;
}

}  // namespace bellows
