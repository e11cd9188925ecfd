// SPDX-License-Identifier: Apache-2.0
#include "launcher/slurm/records.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "common/text.h"
#include "launcher/base/program_output.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

constexpr std::size_t kMostShown = 400;
// In no name: Slurm has them without control characters.
constexpr char kBetween = '\x1f';
constexpr std::size_t kFields = 12;
constexpr auto kAnswersWithin = std::chrono::seconds(15);
constexpr std::size_t kMostBytes = 16 << 20;

/// 0 for "Unknown" and "None".
double time_of(std::string_view text) { return static_cast<double>(parse_uint(text).value_or(0)); }

bool parse_record(std::string_view line, SlurmRun& run) {
  const std::vector<std::string_view> fields = split(line, kBetween);
  if (fields.size() != kFields) return false;
  const auto id = parse_uint(fields[0]);
  if (!id || *id > UINT32_MAX) return false;
  run.job = static_cast<std::uint32_t>(*id);
  const auto state = split(fields[1], ' ');
  run.state = state[0];
  if (state.size() == 3 && state[1] == "by") run.by = state[2];
  run.submit = time_of(fields[2]);
  run.start = time_of(fields[3]);
  run.end = time_of(fields[4]);
  run.gpus = gpus_in_gres(std::string(fields[5]));
  if (fields[6] != "None assigned") run.nodes = fields[6];
  run.user = fields[7];
  run.account = fields[8];
  run.admin_comment = fields[9];
  run.work_dir = fields[10];
  run.array_task = fields[11].find('_') != std::string_view::npos ? fields[11] : "";
  return !run.state.empty();
}

}  // namespace

std::vector<std::string> ask_records(const JobName& job) {
  return {"env",
          "SLURM_TIME_FORMAT=%s",
          "sacct",
          "--duplicates",
          "--allocations",
          "--noheader",
          "--parsable2",
          fmt::format("--delimiter={}", kBetween),
          "--jobs=" + job.to_string(),
          "--format=JobIDRaw,State,Submit,Start,End,AllocTRES,NodeList,User,Account,AdminComment,"
          "WorkDir,JobID"};
}

Result<std::vector<SlurmRun>> parse_records(std::string_view text) {
  std::vector<SlurmRun> runs;
  for (std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    SlurmRun run;
    if (!parse_record(line, run))
      return Error{ErrorKind::invalid, fmt::format("sacct gave a line that is not a job: \"{}\"",
                                                   one_line(line, kMostShown))};
    runs.push_back(std::move(run));
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const SlurmRun& a, const SlurmRun& b) { return a.submit < b.submit; });
  return runs;
}

Result<std::vector<SlurmRun>> load_records(const JobName& job) {
  auto answer = output_of(ask_records(job), kAnswersWithin, kMostBytes);
  if (!answer)
    return Error{ErrorKind::unavailable, "cannot ask Slurm's accounting: " + answer.error().text};
  if (answer->exit.ok()) return parse_records(answer->out);
  const std::string said = one_line(trim(answer->err), kMostShown);
  return Error{ErrorKind::unavailable,
               fmt::format("Slurm's accounting gives no answer: {}",
                           said.empty() ? "sacct " + answer->exit.to_string() : said)};
}

}  // namespace bellows
