// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/workload.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/text.h"

namespace bellows {
namespace {

Result<std::map<std::string, ApplicationTerms>> read_terms(const std::filesystem::path& path) {
  std::map<std::string, ApplicationTerms> all;
  if (path.empty()) return all;
  const auto csv = Csv::read(path);
  if (!csv) return csv.error();
  const auto columns =
      csv->columns<4>({"application", "largest_gpus", "smallest_batch", "largest_local_batch"});
  if (!columns) return columns.error();
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    std::array<std::uint32_t, 4> numbers{};
    for (std::size_t i = 1; i < numbers.size(); ++i) {
      const auto number = csv->whole(row, (*columns)[i], 0);
      if (!number) return number.error();
      numbers[i] = *number;
    }
    ApplicationTerms terms;
    if (numbers[1] > 0) terms.largest_gpus = numbers[1];
    terms.smallest_batch = numbers[2];
    if (numbers[3] > 0) terms.largest_local = numbers[3];
    all[csv->text(row, (*columns)[0])] = terms;
  }
  return all;
}

Result<Submission> submission_at(const Csv& csv, std::size_t row,
                                 const std::array<std::size_t, 5>& columns,
                                 const Applications& applications) {
  const auto time = csv.number(row, columns[1], 0);
  if (!time) return time.error();
  const auto gpus = csv.whole(row, columns[3], 1);
  if (!gpus) return gpus.error();
  const auto application = application_at(csv, row, columns[2], applications);
  if (!application) return application.error();
  const auto batch = batch_at(csv, row, columns[4], **application);
  if (!batch) return batch.error();
  if (*gpus > *batch)
    return csv.error_at(row, fmt::format("{} GPUs can't share a batch of {}", *gpus, *batch));
  Submission submission{csv.text(row, columns[0]), *time, *application, *gpus, *batch};
  if (const auto tenant = csv.column("tenant")) submission.tenant = csv.text(row, *tenant);
  return submission;
}

}  // namespace

Result<Applications> read_applications(const std::filesystem::path& folder,
                                       const std::filesystem::path& terms_path) {
  auto terms = read_terms(terms_path);
  if (!terms) return terms.error();
  Applications applications;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!entry.is_directory(error)) continue;
    const std::string name = entry.path().filename().string();
    auto application = Application::read(entry.path(), (*terms)[name]);
    if (!application) return application.error();
    applications.emplace(name, *std::move(application));
  }
  if (error)
    return Error{ErrorKind::not_found,
                 fmt::format("can't read the folder {}: {}", folder.string(), error.message())};
  if (applications.empty())
    return Error{ErrorKind::not_found,
                 fmt::format("{} has no folder of an application", folder.string())};
  return applications;
}

Result<const Application*> application_at(const Csv& csv, std::size_t row, std::size_t column,
                                          const Applications& applications) {
  const std::string& name = csv.text(row, column);
  const auto application = applications.find(name);
  if (application == applications.end())
    return csv.error_at(
        row, fmt::format("nothing was measured of the application \"{}\"", one_line(name, 40)));
  return &application->second;
}

Result<std::uint32_t> batch_at(const Csv& csv, std::size_t row, std::size_t column,
                               const Application& application) {
  const auto batch = csv.whole(row, column, 1);
  if (!batch) return batch.error();
  const BatchLimits& limits = application.limits();
  if (*batch < limits.submitted || *batch > limits.largest)
    return csv.error_at(row, fmt::format("{} was measured with batches from {} to {}, not with {}",
                                         one_line(application.name(), 40), limits.submitted,
                                         limits.largest, *batch));
  return *batch;
}

Result<std::vector<Submission>> read_workload(const std::filesystem::path& path,
                                              const Applications& applications) {
  const auto csv = Csv::read(path);
  if (!csv) return csv.error();
  const auto columns =
      csv->columns<5>({"name", "time", "application", "num_replicas", "batch_size"});
  if (!columns) return columns.error();
  std::vector<Submission> submissions;
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    auto submission = submission_at(*csv, row, *columns, applications);
    if (!submission) return submission.error();
    submissions.push_back(*std::move(submission));
  }
  if (submissions.empty())
    return Error{ErrorKind::invalid, fmt::format("{} has no job", path.string())};
  std::stable_sort(submissions.begin(), submissions.end(),
                   [](const auto& a, const auto& b) { return a.submit_s < b.submit_s; });
  return submissions;
}

}  // namespace bellows
