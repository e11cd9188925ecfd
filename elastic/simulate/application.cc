// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/application.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "common/text.h"
#include "elastic/simulate/csv.h"

namespace bellows {
namespace {

// "validation-128.csv" is of the batch 128.
std::optional<std::uint32_t> batch_of(const std::string& name) {
  constexpr std::string_view kBefore = "validation-";
  constexpr std::string_view kAfter = ".csv";
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter)) return std::nullopt;
  const auto number = parse_uint(
      std::string_view(name).substr(kBefore.size(), name.size() - kBefore.size() - kAfter.size()));
  if (!number || *number == 0 || *number > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

}  // namespace

Result<std::vector<Application::Epoch>> Application::read_validation(
    const std::filesystem::path& path) {
  const auto csv = Csv::read(path);
  if (!csv) return csv.error();
  const auto columns = csv->columns<4>({"progress", "iteration", "grad_sqr", "grad_var"});
  if (!columns) return columns.error();
  std::vector<Epoch> epochs;
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    std::array<double, 4> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = csv->number(row, (*columns)[i], 0);
      if (!value) return value.error();
      values[i] = *value;
    }
    if (values[0] <= (epochs.empty() ? 0 : epochs.back().progress))
      return csv->error_at(row, "progress must grow from line to line");
    epochs.push_back({values[0], values[1], {values[2], values[3]}});
  }
  if (epochs.empty()) return Error{ErrorKind::invalid, path.string() + " has no epoch"};
  return epochs;
}

Status Application::read_validations(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto batch = batch_of(entry.path().filename().string());
    if (!batch) continue;
    auto epochs = read_validation(entry.path());
    if (!epochs) return epochs.error();
    validation_.emplace(*batch, *std::move(epochs));
  }
  if (validation_.empty())
    return Error{ErrorKind::not_found,
                 fmt::format("{} has no file validation-BATCH.csv", folder.string())};
  std::size_t epochs = SIZE_MAX;
  for (const auto& [batch, measured] : validation_) epochs = std::min(epochs, measured.size());
  progress_.assign(1, 0.0);
  for (std::size_t e = 0; e < epochs; ++e) {
    double least = validation_.begin()->second[e].progress;
    for (const auto& [batch, measured] : validation_) least = std::min(least, measured[e].progress);
    progress_.push_back(least);
  }
  return {};
}

Result<Application> Application::read(const std::filesystem::path& folder,
                                      const ApplicationTerms& terms) {
  Application application;
  application.name_ = folder.filename().string();
  auto steps = StepTable::read(folder);
  if (!steps) return steps.error();
  application.steps_ = *std::move(steps);
  if (auto status = application.read_validations(folder); !status) return status.error();
  BatchLimits& limits = application.limits_;
  limits.submitted = application.validation_.begin()->first;
  limits.largest = application.validation_.rbegin()->first;
  limits.smallest = std::max(limits.submitted, terms.smallest_batch);
  limits.smallest_local = application.steps_.smallest_local();
  limits.largest_local = std::min(application.steps_.largest_local(), terms.largest_local);
  application.largest_gpus_ =
      std::min(terms.largest_gpus, std::max(1U, limits.largest / limits.smallest_local));
  if (limits.smallest > limits.largest || limits.smallest_local > limits.largest_local)
    return Error{ErrorKind::invalid,
                 fmt::format("the terms of {} leave no batch between {} and {} samples",
                             application.name_, limits.submitted, limits.largest)};
  return application;
}

double Application::step_s(const Placement& placement, const Batch& batch) const {
  const MeasuredStep step = steps_.at(placement, batch.local);
  return step.step_s + (step.step_s - step.exchange_s) * (batch.passes - 1);
}

template <typename Read>
double Application::between(std::uint64_t batch, Read read) const {
  auto high = validation_.lower_bound(
      static_cast<std::uint32_t>(std::min<std::uint64_t>(batch, validation_.rbegin()->first)));
  if (high->first == batch || high == validation_.begin()) return read(high->second);
  const auto low = std::prev(high);
  const double part = static_cast<double>(batch - low->first) / (high->first - low->first);
  return read(low->second) + (read(high->second) - read(low->second)) * std::min(part, 1.0);
}

GradientNoise Application::noise(std::uint64_t batch, std::uint32_t epoch) const {
  return {between(batch, [&](const auto& epochs) { return epochs[epoch].noise.squared_norm; }),
          between(batch, [&](const auto& epochs) { return epochs[epoch].noise.variance; })};
}

double Application::steps_until(std::uint64_t batch, std::uint32_t epochs_done) const {
  if (epochs_done == 0) return 0;
  return between(batch, [&](const auto& epochs) { return epochs[epochs_done - 1].steps; });
}

}  // namespace bellows
