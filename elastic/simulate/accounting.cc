// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/accounting.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "common/fd.h"
#include "common/text.h"
#include "elastic/simulate/sizes.h"

namespace bellows {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 28;

/// Two or four digits.
std::optional<int> digits(std::string_view text) {
  const auto number = parse_uint(text);
  if (!number || *number > 9999) return std::nullopt;
  return static_cast<int>(*number);
}

/// Of "2026-11-26T23:29:00".
std::optional<std::int64_t> seconds_since_1970(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (text.size() != kForm.size()) return std::nullopt;
  for (std::size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] != 'd' && text[i] != kForm[i]) return std::nullopt;
  const auto year = digits(text.substr(0, 4)), month = digits(text.substr(5, 2)),
             day = digits(text.substr(8, 2)), hour = digits(text.substr(11, 2)),
             minute = digits(text.substr(14, 2)), second = digits(text.substr(17, 2));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  if (*hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return ((days * 24 + *hour) * 60 + *minute) * 60 + *second;
}

/// Of "billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,node=1": all GPUs, or the sum over the types
/// where Slurm accounts for these only. Nothing: what follows a GPU is no number.
std::optional<std::uint32_t> gpus_of(std::string_view tres) {
  std::optional<std::uint64_t> all;
  std::uint64_t of_types = 0;
  for (const std::string_view part : split(tres, ',')) {
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    if (name != "gres/gpu" && !name.starts_with("gres/gpu:")) continue;
    const auto number =
        equals == std::string_view::npos ? std::nullopt : parse_uint(part.substr(equals + 1));
    if (!number || *number > UINT32_MAX) return std::nullopt;
    if (name == "gres/gpu")
      all = *number;
    else
      of_types += *number;
  }
  const std::uint64_t gpus = all.value_or(of_types);
  if (gpus > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(gpus);
}

struct Program {
  std::string pattern;
  const Application* application = nullptr;  ///< nothing: its jobs are left out
  std::uint32_t batch = 0;
};

Result<std::vector<Program>> read_programs(const std::filesystem::path& path,
                                           const Applications& applications) {
  const auto csv = Csv::read(path);
  if (!csv) return csv.error();
  const auto columns = csv->columns<3>({"job_name", "application", "batch_size"});
  if (!columns) return columns.error();
  std::vector<Program> programs;
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    Program program{csv->text(row, (*columns)[0]), nullptr, 0};
    if (csv->text(row, (*columns)[1]) != "-") {
      const auto application = application_at(*csv, row, (*columns)[1], applications);
      if (!application) return application.error();
      const auto batch = batch_at(*csv, row, (*columns)[2], **application);
      if (!batch) return batch.error();
      program.application = *application;
      program.batch = *batch;
    }
    programs.push_back(std::move(program));
  }
  return programs;
}

/// Seconds that all epochs take with these GPUs and this batch.
double computing_s(const Application& application, const Placement& placement,
                   std::uint32_t submitted) {
  const Batch batch = lay_out(application.limits(), layout_of(placement), submitted);
  double all_s = 0;
  for (std::uint32_t e = 0; e < application.epochs(); ++e)
    all_s += (application.progress(e + 1) - application.progress(e)) /
             measured_rate(application, placement, batch, e);
  return all_s;
}

Result<Submission> submission_of(const AccountedJob& job, const Program& program,
                                 const ClusterShape& shape) {
  const std::string who = fmt::format("job {} ({})", one_line(job.id, 40), one_line(job.name, 40));
  if (job.gpus > shape.gpus())
    return Error{ErrorKind::invalid,
                 fmt::format("{} held {}, and the cluster has {}; give it more --nodes", who,
                             counted(job.gpus, "GPU"), shape.gpus())};
  if (job.gpus > program.batch)
    return Error{
        ErrorKind::invalid,
        fmt::format("{} held {}, which can't share a batch of {}; give \"{}\" a larger one", who,
                    counted(job.gpus, "GPU"), program.batch, one_line(program.pattern, 40))};
  const double all_s = computing_s(*program.application, packed(job.gpus, shape), program.batch);
  return Submission{who,
                    static_cast<double>(job.submitted_s),
                    program.application,
                    job.gpus,
                    program.batch,
                    job.elapsed_s / all_s};
}

}  // namespace

Result<Csv> parse_accounting(std::string_view text, std::string name) {
  return Csv::parse(text, std::move(name), {.separator = '|', .last_is_rest = true});
}

Result<std::vector<AccountedJob>> accounted_jobs(const Csv& table) {
  const auto columns = table.columns<5>({"JobID", "Submit", "ElapsedRaw", "AllocTRES", "JobName"});
  if (!columns) return columns.error();
  const auto [id, submit, elapsed, tres, name] = *columns;
  std::vector<AccountedJob> jobs;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    AccountedJob job{.id = table.text(row, id), .name = table.text(row, name), .row = row};
    if (job.id.find('.') != std::string::npos) continue;
    const auto submitted_s = seconds_since_1970(table.text(row, submit));
    if (!submitted_s)
      return table.error_at(row, fmt::format("\"{}\" of Submit must be a time like "
                                             "2026-11-26T23:29:00; unset SLURM_TIME_FORMAT",
                                             one_line(table.text(row, submit), 40)));
    const auto elapsed_s = table.whole(row, elapsed, 0);
    if (!elapsed_s) return elapsed_s.error();
    const auto gpus = gpus_of(table.text(row, tres));
    if (!gpus)
      return table.error_at(row, fmt::format("\"{}\" of AllocTRES has no number of GPUs",
                                             one_line(table.text(row, tres), 80)));
    job.submitted_s = *submitted_s;
    job.elapsed_s = *elapsed_s;
    job.gpus = *gpus;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

Result<AccountedWorkload> read_accounting(const std::filesystem::path& path,
                                          const std::filesystem::path& programs_path,
                                          const Applications& applications,
                                          const ClusterShape& shape) {
  const auto programs = read_programs(programs_path, applications);
  if (!programs) return programs.error();
  const auto text = read_file(path.string(), kMostBytes);
  if (!text) return text.error();
  const auto table = parse_accounting(*text, path.string());
  if (!table) return table.error();
  const auto jobs = accounted_jobs(*table);
  if (!jobs) return jobs.error();
  AccountedWorkload workload;
  for (const AccountedJob& job : *jobs) {
    const auto program =
        std::find_if(programs->begin(), programs->end(), [&job](const Program& candidate) {
          return fnmatch(candidate.pattern.c_str(), job.name.c_str(), 0) == 0;
        });
    if (job.gpus > 0 && job.elapsed_s > 0 && program == programs->end())
      return table->error_at(job.row,
                             fmt::format("no job_name of {} matches \"{}\"; add a row for it, with "
                                         "the application - to leave it out",
                                         programs_path.string(), one_line(job.name, 40)));
    if (job.gpus == 0 || job.elapsed_s == 0 || program->application == nullptr) {
      ++workload.left_out;
      continue;
    }
    auto submission = submission_of(job, *program, shape);
    if (!submission) return table->error_at(job.row, submission.error().text);
    workload.submissions.push_back(*std::move(submission));
  }
  if (workload.submissions.empty())
    return Error{ErrorKind::invalid,
                 fmt::format("{} has no job that ran on a GPU and counts", path.string())};
  std::stable_sort(workload.submissions.begin(), workload.submissions.end(),
                   [](const auto& a, const auto& b) { return a.submit_s < b.submit_s; });
  const double first_s = workload.submissions.front().submit_s;
  for (Submission& submission : workload.submissions) submission.submit_s -= first_s;
  return workload;
}

}  // namespace bellows
