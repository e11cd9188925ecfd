// SPDX-License-Identifier: Apache-2.0
#include "launcher/steer/job_stop.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "common/text.h"

namespace bellows {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kLauncherAnswersWithin = 30s;
constexpr auto kCanBeAskedWithin = 15s;
constexpr auto kStepEndsWithin = 2s;

/// What is known of the checkpoint of a program that committed no step.
std::string stopped_without_step(const nlohmann::json& message) {
  const auto own = message.find("own");
  if (own == message.end() || !own->is_string()) return "stopped; there is no checkpoint yet";
  if (*own == "saved") return "stopped; the program has saved its own checkpoint";
  return "stopped; whether the program had saved anything by itself is not known";
}

}  // namespace

// A step whose srun is killed lingers for seconds, and holds up the job's next start: also that of
// somebody else's stop, when this one was refused.
JobStop::~JobStop() {
  if (!line_) return;
  line_->hang_up();
  (void)exit_code();
}

// A slurmctld that was restarted starts no steps until the nodes have registered, 3 to 4 s later;
// and a job that has just started has ranks without a checkpoint to stop at.
std::optional<CommandFailure> JobStop::run() {
  const auto until = steering_.time.now() + kCanBeAskedWithin;
  while (true) {
    std::string not_yet;
    Failure failure = ask(not_yet);
    if (not_yet.empty() || steering_.time.now() >= until || steering_.interrupted() ||
        steering_.out_of_time())
      return failure;
    steering_.say(not_yet + "; trying again");
    steering_.time.sleep(1s);
  }
}

std::optional<CommandFailure> JobStop::ask(std::string& not_yet) {
  started_ = steering_.time.now();
  auto line = steering_.call_launcher(job_, demand_);
  if (!line) return CommandFailure{kUnreachable, line.error().text + "; nothing was changed"};
  line_ = std::move(*line);
  stopping_ = false;
  steering_.standing(kTimedOut, "the launcher may not have received the request");
  Failure failure = converse(not_yet);
  line_->hang_up();
  if (!not_yet.empty()) (void)exit_code();
  return failure;
}

std::optional<CommandFailure> JobStop::converse(std::string& not_yet) {
  while (true) {
    if (!stopping_ && steering_.time.now() - started_ > kLauncherAnswersWithin)
      return CommandFailure{kUnreachable,
                            "the job's launcher did not answer; the job was not requeued"};
    if (steering_.interrupted() || steering_.out_of_time())
      return steering_.stopped_waiting(
          stopping_ ? "the job stops at its next checkpoint " + then_ + " by itself"
                    : "the launcher may not have received the request");
    const LauncherLine::Heard heard = line_->listen();
    Failure outcome;
    for (const std::string& line : heard.lines)
      if (handle(line, not_yet, outcome)) return outcome;
    if (!heard.open) return went_away(not_yet);
  }
}

bool JobStop::handle(const std::string& line, std::string& not_yet, Failure& outcome) {
  const json message = json::parse(line, nullptr, false);
  if (!message.is_object() || !message.contains("event") || !message["event"].is_string())
    return false;
  const std::string event = message["event"];
  if (event == "error") {
    const auto error = message.find("error");
    const auto again = message.find("again");
    if (again != message.end() && again->is_boolean() && *again)
      not_yet = "the job's ranks are still starting";
    const bool said = error != message.end() && error->is_string();
    outcome =
        CommandFailure{kRefused, fmt::format("the launcher refuses: {}; nothing was changed",
                                             said ? error->get<std::string>() : "no reason given")};
    return true;
  }
  if (event == "finished") {
    outcome = CommandFailure{kRefused, "the job finished before it could be stopped"};
    return true;
  }
  const auto step = message.find("step");
  const bool has_step = step != message.end() && step->is_number_unsigned();
  if (event == "stopping" && has_step)
    steering_.say(fmt::format("stopping at step {}", step->get<std::uint64_t>()));
  stopping_ = true;
  steering_.standing(kTimedOut, "the job stops at its next checkpoint " + then_ + " by itself");
  if (event != "committed") return false;
  if (has_step) step_ = step->get<std::uint64_t>();
  const auto batch = message.find("batch");
  if (batch != message.end() && batch->is_number_unsigned()) batch_ = batch->get<std::uint64_t>();
  seconds_ = std::chrono::duration<double>(steering_.time.now() - started_).count();
  const auto unsaved = message.find("unsaved");
  if (unsaved != message.end() && unsaved->is_number_unsigned())
    steering_.say(fmt::format("step {} could not be saved; the job continues {}",
                              unsaved->get<std::uint64_t>(),
                              step_ ? fmt::format("from step {}", *step_) : "from scratch"));
  else
    steering_.say(step_ ? fmt::format("committed step {} after {:.1f} s", *step_, seconds_)
                        : stopped_without_step(message));
  return true;
}

int JobStop::exit_code() {
  const auto limit = steering_.time.now() + kStepEndsWithin;
  while (!line_->exit_code() && steering_.time.now() < limit) steering_.time.sleep(20ms);
  return line_->exit_code().value_or(-1);
}

std::string JobStop::complaint() {
  const auto line = line_->complaint();
  return line ? fmt::format(" ({})", one_line(*line)) : "";
}

std::optional<CommandFailure> JobStop::went_away(std::string& not_yet) {
  if (stopping_)
    return CommandFailure{
        kFailed,
        fmt::format("the job's launcher ended before it had a checkpoint; the job continues from "
                    "its newest one, perhaps at its old size: see bellows status {}",
                    job_.shown_id())};
  // A requeue by somebody else ends this step together with the launcher.
  if (auto now = steering_.slurm.job(job_.id);
      now.ok() && (now->state != SlurmState::running || now->restarts != job_.restarts))
    return CommandFailure{kRefused,
                          fmt::format("job {} was requeued or ended meanwhile; nothing was changed",
                                      job_.shown_id())};
  // srun's own exit status; the step's would be kUnreachable.
  const int status = exit_code();
  if (status == kFailed) {
    not_yet = "Slurm does not start a step in the job yet";
    return CommandFailure{kUnreachable,
                          fmt::format("Slurm did not start a step in job {}, so its launcher "
                                      "cannot be asked{}; nothing was changed",
                                      job_.shown_id(), complaint())};
  }
  return CommandFailure{kUnreachable,
                        fmt::format("job {} has no launcher that answers (is its script running "
                                    "'exec bellows run'?){}; nothing was changed",
                                    job_.shown_id(), status == kUnreachable ? "" : complaint())};
}

}  // namespace bellows
