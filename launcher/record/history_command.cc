// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/time_text.h"
#include "launcher/cli/commands.h"
#include "launcher/record/history.h"
#include "launcher/record/job_place.h"
#include "launcher/record/job_view.h"
#include "slurm/client.h"

namespace bellows {
namespace {

using nlohmann::ordered_json;

struct HistoryOptions {
  std::string job;
  std::string checkpoint_dir;
  bool json = false;
};

struct Told {
  JobPlace place;
  History history;
  std::string state;
  std::size_t damaged = 0;
};

int fail(const Error& error) {
  fmt::print(stderr, "bellows history: {}\n", error.text);
  return exit_status_of(error);
}

std::string state_of(const JobPlace& place, const EventLines& lines, const History& history) {
  if (!place.job) return history.entries.empty() ? "" : history.entries.back().event.event;
  JobView view;
  view.job = *place.job;
  if (auto contract = contract_of(*place.job); contract.ok()) view.contract = *contract;
  view.events = lines.events;
  return view.state();
}

Told tell(JobPlace place) {
  EventLines lines;
  auto read = read_history(place.checkpoint_dir, place.id);
  if (read.ok())
    lines = std::move(*read);
  else
    place.missing.push_back("what the launchers wrote: " + read.error().text);
  Told told;
  told.damaged = lines.damaged;
  told.history = make_history(lines.events, place.runs, place.job, wall_clock());
  told.state = state_of(place, lines, told.history);
  auto& missing = told.history.missing;
  missing.insert(missing.begin(), place.missing.begin(), place.missing.end());
  if (lines.cut)
    missing.push_back(
        fmt::format("what the event file has before its last {} MiB", kLongestHistory >> 20));
  if (lines.damaged > 0)
    missing.push_back(fmt::format("{} damaged lines of the event file", lines.damaged));
  told.place = std::move(place);
  return told;
}

template <typename T>
ordered_json json_or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json json_of(const HistoryEntry& entry) {
  const JobEvent& event = entry.event;
  return {{"time", event.time},
          {"restart", event.restart},
          {"attempt", event.attempt},
          {"state", event.event},
          {"cause", event.cause},
          {"gpus", event.gpus},
          {"nodes", event.nodes},
          {"step", json_or_null(event.step)},
          {"source", entry.of_slurm ? "slurm" : "launcher"}};
}

ordered_json json_of(const HistoryAttempt& attempt) {
  return {{"restart", attempt.restart},
          {"attempt", attempt.attempt},
          {"begin", attempt.begin},
          {"end", attempt.over ? ordered_json(attempt.end) : ordered_json(nullptr)},
          {"gpus", attempt.gpus},
          {"nodes", attempt.nodes},
          {"seconds", attempt.phases},
          {"from_step", json_or_null(attempt.from)},
          {"to_step", json_or_null(attempt.to)},
          {"lost_s", json_or_null(attempt.lost_s)},
          {"lost_steps", json_or_null(attempt.lost_steps)},
          {"ended", attempt.over ? ordered_json(attempt.ended) : ordered_json(nullptr)},
          {"cause", attempt.cause}};
}

void print_json(const Told& told) {
  ordered_json out = {{"job", told.place.id},
                      {"state", told.state},
                      {"checkpoint_dir", told.place.checkpoint_dir},
                      {"missing", told.history.missing},
                      {"damaged_lines", told.damaged},
                      {"timeline", ordered_json::array()},
                      {"attempts", ordered_json::array()}};
  for (const HistoryEntry& entry : told.history.entries) out["timeline"].push_back(json_of(entry));
  for (const HistoryAttempt& attempt : told.history.attempts)
    out["attempts"].push_back(json_of(attempt));
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_timeline(const History& history) {
  for (const HistoryEntry& entry : history.entries) {
    const JobEvent& event = entry.event;
    fmt::print(
        "{:%F %T} {:<13} {:<7}  {}{}{}{}\n", fmt::localtime(static_cast<std::time_t>(event.time)),
        one_line(event.event), counted(event.gpus, "GPU"),
        event.nodes.empty() ? "" : one_line(fmt::format("{}  ", fmt::join(event.nodes, ","))),
        event.step ? fmt::format("step {}  ", *event.step) : "", one_line(event.cause),
        entry.of_slurm ? "  (Slurm)" : "");
  }
}

std::string phase(const HistoryAttempt& attempt, std::initializer_list<const char*> states) {
  double sum = 0;
  for (const char* state : states)
    if (auto found = attempt.phases.find(state); found != attempt.phases.end())
      sum += found->second;
  return duration_text(sum);
}

std::string lost(const HistoryAttempt& attempt) {
  if (!attempt.lost_s) return "unknown";
  if (*attempt.lost_s == 0) return "-";
  if (!attempt.lost_steps) return duration_text(*attempt.lost_s);
  return fmt::format("{} ({})", duration_text(*attempt.lost_s), *attempt.lost_steps);
}

void print_attempts(const History& history) {
  if (history.attempts.empty()) return;
  fmt::print("\n{:>7} {:>4} {:>10} {:>10} {:>10} {:>10} {:>15} {:>14}  {}\n", "ATTEMPT", "GPUS",
             "QUEUED", "DEPLOYING", "PROCESSING", "STORING", "STEPS", "LOST", "END");
  for (const HistoryAttempt& attempt : history.attempts) {
    const std::string steps =
        attempt.from || attempt.to
            ? fmt::format("{}-{}", attempt.from.value_or(0), attempt.to.value_or(0))
            : "-";
    fmt::print("{:>7} {:>4} {:>10} {:>10} {:>10} {:>10} {:>15} {:>14}  {}\n",
               fmt::format("{}.{}", attempt.restart, attempt.attempt), attempt.gpus,
               phase(attempt, {"QUEUED"}), phase(attempt, {"DEPLOYING"}),
               phase(attempt, {"PROCESSING", "CHECKPOINTING"}), phase(attempt, {"STORING"}), steps,
               lost(attempt),
               attempt.over ? one_line(attempt.ended + ": " + attempt.cause) : "running");
  }
}

int history(const HistoryOptions& options) {
  std::unique_ptr<SlurmClient> slurm;
  if (SlurmClient::usable().ok()) slurm = std::make_unique<SlurmClient>();
  auto place =
      find_job(slurm.get(), *parse_job_name(options.job), options.checkpoint_dir, Ask::always);
  if (!place) return fail(place.error());
  const Told told = tell(std::move(*place));
  if (told.history.entries.empty())
    return fail({told.place.unreachable ? ErrorKind::unavailable : ErrorKind::not_found,
                 fmt::format("nothing is known about job {}: {}", options.job,
                             fmt::join(told.history.missing, "; "))});
  if (options.json) {
    print_json(told);
    return kOk;
  }
  fmt::print("job {} {}, checkpoints in {}\n", told.place.id, one_line(told.state),
             one_line(told.place.checkpoint_dir));
  print_timeline(told.history);
  print_attempts(told.history);
  for (const std::string& text : told.history.missing)
    fmt::print(stderr, "bellows history: missing: {}\n", one_line(text));
  return kOk;
}

}  // namespace

void add_history_command(CommandLine& program) {
  auto options = std::make_shared<HistoryOptions>();
  CommandLine command =
      program.add_command("history", "Show what happened to a job, from its launchers and Slurm");
  command.add_option("JOB", options->job, "Job id, or ARRAY_TASK")
      .required()
      .check(job_name_complaint);
  command.add_option("--checkpoint-dir", options->checkpoint_dir,
                     "Where the job keeps its checkpoints, if it cannot be found");
  command.add_flag("--json", options->json, "Print JSON instead of a timeline and a table");
  command.run([options] { return history(*options); });
}

}  // namespace bellows
