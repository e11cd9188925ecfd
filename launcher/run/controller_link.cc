// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/controller_link.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "common/text.h"
#include "elastic/wire/client.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kAnswersWithin = 3s;
constexpr auto kMostPatience = 30s;
/// Agents say every second how far their ranks are.
constexpr auto kShortestMean = 5s;
/// How an answer of the other process begins that is bellowsd's; the number of its address follows.
constexpr std::string_view kWell = "well ";

}  // namespace

void StepClock::note(std::uint64_t step, Clock::time_point now) {
  const Seen seen{step, now};
  if (first_ && step > last_.step) {
    last_ = seen;
  } else if (!first_ || step < last_.step) {
    first_ = last_ = seen;
  }
}

double StepClock::take() {
  if (!first_ || last_.at - first_->at < kShortestMean || last_.step <= first_->step) return 0;
  const double seconds = std::chrono::duration<double>(last_.at - first_->at).count();
  const double steps = static_cast<double>(last_.step - first_->step);
  first_ = last_;
  return seconds / steps;
}

ControllerLink::ControllerLink(ControllerAddress address, uid_t slurm_user, Munge munge)
    : address_(std::move(address)), slurm_user_(slurm_user), munge_(std::move(munge)) {}

void ControllerLink::add_poll(std::vector<pollfd>& fds) const {
  if (question_.asking()) fds.push_back({question_.fd(), POLLIN, 0});
}

std::optional<std::string> ControllerLink::news() { return std::exchange(news_, std::nullopt); }

void ControllerLink::note_steps(const RunMachine& machine, Clock::time_point now) {
  const Run& run = machine.run();
  if (std::holds_alternative<state::Running>(machine.state()) && run.all_joined() && !run.stop)
    steps_.note(run.progress.newest_step, now);
  else
    steps_.stop();
}

RunReport ControllerLink::report_of(const RunMachine& machine) {
  const Run& run = machine.run();
  RunReport report;
  report.job = run.job.id;
  report.restarts = run.job.restarts;
  report.gpus = run.layout.gpus();
  report.nodes = static_cast<std::uint32_t>(run.layout.nodes().size());
  report.step = run.progress.newest_step;
  report.step_s = steps_.take();
  report.batch = run.progress.batch;
  report.noise_scale = run.progress.noise_scale;
  report.saving = run.saves.any();
  const bool running = std::holds_alternative<state::Running>(machine.state());
  if (run.stop)
    report.state = RunReport::State::stopping;
  else if (running && (run.all_joined() || run.saves_by_itself()))
    report.state = RunReport::State::running;
  report.answer = answer_;
  return report;
}

void ControllerLink::ask(const RunReport& report) {
  question_.ask([&]() -> std::string {
    auto answer = ask_controller(address_, slurm_user_, munge_, Call::report, to_json(report),
                                 kAnswersWithin);
    if (!answer) return answer.error().text;
    return fmt::format("{}{} {}", kWell, answer->host, answer->body);
  });
}

std::optional<input::StopRequest> ControllerLink::look(const RunMachine& machine,
                                                       Clock::time_point now) {
  note_steps(machine, now);
  if (question_.asking()) {
    const auto answer = question_.take();
    return answer ? read(*answer, now) : std::nullopt;
  }
  if (now >= next_) ask(report_of(machine));
  return std::nullopt;
}

void ControllerLink::fail(const std::string& why, Clock::time_point now) {
  if (trouble_.empty()) news_ = why + "; the job goes on without it";
  trouble_ = why;
  next_ = now + patience_;
  patience_ = std::min<std::chrono::seconds>(2 * patience_, kMostPatience);
}

std::optional<input::StopRequest> ControllerLink::read(const std::string& answer,
                                                       Clock::time_point now) {
  if (!answer.starts_with(kWell)) {
    fail(answer.empty() ? "bellowsd cannot be asked" : answer, now);
    return std::nullopt;
  }
  const std::string_view told = std::string_view(answer).substr(kWell.size());
  const std::size_t space = std::min(told.find(' '), told.size());
  // One of a pair that is down must not cost its timeout each time.
  if (const auto host = parse_uint(told.substr(0, space)); host && *host < address_.hosts.size())
    std::rotate(address_.hosts.begin(), address_.hosts.begin() + static_cast<std::ptrdiff_t>(*host),
                address_.hosts.end());
  const auto reply = parse_reply(told.substr(std::min(space + 1, told.size())));
  if (!reply) {
    fail(reply.error().text, now);
    return std::nullopt;
  }
  if (!std::exchange(trouble_, "").empty()) news_ = "bellowsd answers again";
  patience_ = 2s;
  const auto pause = std::chrono::duration<double>(reply->again_s);
  next_ = now + std::chrono::duration_cast<Clock::duration>(pause);
  // An answer to an earlier order may have been on its way.
  if (!reply->order || reply->order->id == order_) return std::nullopt;
  order_ = reply->order->id;
  answer_.reset();
  input::StopRequest stop{.client = kClient, .planned = true, .gpus = reply->order->gpus};
  if (reply->order->batch > 0) stop.batch = reply->order->batch;
  return stop;
}

void ControllerLink::take_reply(const std::string& text) {
  const auto reply = nlohmann::json::parse(text, nullptr, false);
  if (!reply.is_object()) return;
  const std::string event = reply.value("event", "");
  if (event == "committed") {
    answer_ = OrderAnswer{order_, true, std::nullopt, ""};
    if (const auto step = reply.find("step"); step != reply.end() && step->is_number_unsigned())
      answer_->step = step->get<std::uint64_t>();
  } else if (event == "error") {
    answer_ = OrderAnswer{order_, false, std::nullopt, reply.value("error", "")};
  } else {
    return;
  }
  next_ = {};
}

}  // namespace bellows
