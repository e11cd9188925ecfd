// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/time_text.h"
#include "launcher/cli/commands.h"
#include "launcher/logs/log_reader.h"
#include "launcher/record/event_log.h"
#include "launcher/record/job_place.h"
#include "slurm/client.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Other machines' changes to a shared file system raise no inotify event here.
constexpr auto kLook = 200ms;
constexpr auto kAskSlurm = 5s;

struct LogsOptions {
  std::string job;
  std::string checkpoint_dir;
  std::string ranks;
  std::string attempt;
  std::string since;
  bool follow = false;
  bool json = false;
};

/// Prints lines, and a heading where another attempt begins.
class Printer {
 public:
  Printer(bool json, bool raw) : json_(json), raw_(raw) {}

  void print(const LogFile& file, const LogLine& line) {
    if (json_) return print_json(file, line);
    if (!shown_ || shown_->restart != file.restart || shown_->attempt != file.attempt)
      fmt::print("==> {} <==\n", file.attempt == 0
                                     ? fmt::format("restart {}", file.restart)
                                     : fmt::format("attempt {}.{}", file.restart, file.attempt));
    shown_ = file;
    const auto when = fmt::localtime(static_cast<std::time_t>(line.time));
    const auto ms = static_cast<int>(
        (line.time - static_cast<double>(static_cast<std::time_t>(line.time))) * 1000);
    fmt::print("{:%H:%M:%S}.{:03} {:>3}{} {}{}\n", when, ms,
               line.rank ? std::to_string(*line.rank) : "-",
               line.stream == LogLine::Stream::err ? '!' : '|',
               raw_ ? line.text : one_line(line.text), line.whole ? "" : "\\");
  }

 private:
  void print_json(const LogFile& file, const LogLine& line) {
    nlohmann::ordered_json out = {{"time", line.time},
                                  {"restart", file.restart},
                                  {"attempt", file.attempt},
                                  {"rank", nullptr},
                                  {"stream", stream_name(line.stream)},
                                  {"whole", line.whole},
                                  {"text", line.text}};
    if (line.rank) out["rank"] = *line.rank;
    fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  bool json_;
  bool raw_;
  std::optional<LogFile> shown_;
};

/// Whether the job is over for good. Slurm is asked only while nothing else happens.
class JobWatch {
 public:
  JobWatch(Slurm* slurm, std::uint32_t job) : slurm_(slurm), job_(job) {}
  bool over() {
    if (!slurm_) return false;
    auto job = slurm_->job(job_);
    if (!job) return job.error().kind == ErrorKind::not_found;
    return job->finished() && !job->completing;
  }

 private:
  Slurm* slurm_;
  std::uint32_t job_;
};

int follow(LogReader& reader, Printer& printer, JobWatch watch) {
  auto quiet_since = Clock::now();
  auto asked = Clock::now() - kAskSlurm;
  while (true) {
    bool news = false;
    auto take = [&](const LogFile& file, const LogLine& line) {
      printer.print(file, line);
      news = true;
    };
    Status status = reader.read(take);
    if (!status && status.error().kind != ErrorKind::not_found) {
      fmt::print(stderr, "bellows logs: {}\n", status.error().text);
      return kFailed;
    }
    if (news && (std::fflush(stdout) != 0 || std::ferror(stdout))) return kFailed;
    if (news) quiet_since = Clock::now();
    const bool quiet = Clock::now() - quiet_since >= 1s;
    if (quiet && Clock::now() - asked >= kAskSlurm) {
      asked = Clock::now();
      if (watch.over()) {
        (void)reader.read(take).ok();
        return kOk;
      }
    }
    std::this_thread::sleep_for(kLook);
  }
}

int fail(const Error& error) {
  fmt::print(stderr, "bellows logs: {}\n", error.text);
  return exit_status_of(error);
}

bool is_own(const std::string& dir) {
  struct stat info;
  return stat(dir.c_str(), &info) == 0 && info.st_uid == getuid();
}

int logs(const LogsOptions& options) {
  LogFilter filter;
  if (!options.ranks.empty()) (void)parse_ranks(options.ranks, filter);
  if (!options.attempt.empty()) (void)parse_attempt(options.attempt, filter);
  if (!options.since.empty()) filter.since = *parse_since(options.since, wall_clock());
  std::unique_ptr<SlurmClient> slurm;
  if (SlurmClient::usable().ok()) slurm = std::make_unique<SlurmClient>();
  auto place =
      find_job(slurm.get(), *parse_job_name(options.job), options.checkpoint_dir, Ask::if_needed);
  if (!place) return fail(place.error());
  const std::string dir = log_dir_of(place->checkpoint_dir);
  LogReader reader(dir, place->id, filter);
  Printer printer(options.json, is_own(dir));
  if (options.follow) return follow(reader, printer, JobWatch(slurm.get(), place->id));
  Status status = reader.read(
      [&printer](const LogFile& file, const LogLine& line) { printer.print(file, line); });
  if (reader.damaged() > 0)
    fmt::print(stderr, "bellows logs: {} damaged lines were left out\n", reader.damaged());
  return status.ok() ? kOk : fail(status.error());
}

std::string complaint_unless(bool good, const std::string& text) { return good ? "" : text; }

}  // namespace

void add_logs_command(CommandLine& program) {
  auto options = std::make_shared<LogsOptions>();
  CommandLine command = program.add_command("logs", "Show what a job's ranks wrote, and when");
  command.add_option("JOB", options->job, "Job id, or ARRAY_TASK")
      .required()
      .check(job_name_complaint);
  command.add_flag("-f,--follow", options->follow, "Wait for more until the job is over");
  command.add_option("--rank", options->ranks, "Only these ranks, such as 0,4-7")
      .check([](const std::string& text) {
        LogFilter unused;
        return complaint_unless(parse_ranks(text, unused),
                                "'" + text + "' is not a list of ranks, such as 0,4-7");
      });
  command.add_option("--attempt", options->attempt, "Only RESTART.ATTEMPT, or a whole RESTART")
      .check([](const std::string& text) {
        LogFilter unused;
        return complaint_unless(parse_attempt(text, unused),
                                "'" + text + "' is neither an attempt, such as 0.1, nor a restart");
      });
  command
      .add_option("--since", options->since,
                  "Only from this time on: 10m, 14:05, 2026-11-22T14:05 (Z for UTC)")
      .check([](const std::string& text) {
        return complaint_unless(parse_since(text, wall_clock()).has_value(),
                                "'" + text + "' is not a time, such as 10m or 14:05");
      });
  command.add_option("--checkpoint-dir", options->checkpoint_dir,
                     "Where the job keeps its checkpoints, if it cannot be found");
  command.add_flag("--json", options->json, "Print a JSON object for each line");
  command.run([options] { return logs(*options); });
}

}  // namespace bellows
