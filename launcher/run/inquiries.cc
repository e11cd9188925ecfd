// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/inquiries.h"

#include <utility>

#include "checkpoint/store/store.h"
#include "launcher/record/directory_claim.h"
#include "launcher/record/event_log.h"
#include "launcher/record/fruitless_runs.h"
#include "launcher/record/lost_halt.h"
#include "launcher/slurm/limit_probe.h"
#include "slurm/requeue.h"

namespace bellows {
namespace {

/// How much of the history is read; only few events follow a stop.
constexpr std::size_t kNewestEvents = 200;

}  // namespace

Inquiries::Inquiries(Slurm& slurm, const RunContext& context, const FinishedFile& finished)
    : slurm_(slurm), context_(context), finished_(finished) {}

void Inquiries::add_poll(std::vector<pollfd>& fds, const RunMachine::Wanted& wanted) const {
  if (limits_.asking()) fds.push_back({limits_.fd(), POLLIN, 0});
  if (wanted.job) reach_.add_poll(fds);
  if (wanted.owner) owner_.add_poll(fds);
}

std::vector<Input> Inquiries::answers(Clock::time_point now) {
  std::vector<Input> answers;
  if (auto reports = nodes_.poll(now)) answers.push_back(input::Nodes{std::move(*reports)});
  const auto line = limits_.take();
  if (auto limits = line ? JobLimits::from_line(*line) : std::nullopt)
    answers.push_back(input::Limits{*limits});
  return answers;
}

// libslurm waits for as long as slurmctld is away; commits and ranks do not.
std::optional<input::JobLook> Inquiries::look_at_job(Clock::time_point now) {
  const auto look = [this]() -> Status {
    auto job = slurm_.job(context_.job_id);
    return job ? Status() : Status(job.error());
  };
  if (!reach_.answers(look, now)) return std::nullopt;
  return input::JobLook{slurm_.job(context_.job_id)};
}

std::optional<input::Owner> Inquiries::look_at_owner(Clock::time_point now) {
  const auto look = [this] { return owner_of(context_.checkpoint_dir).attempt; };
  auto owner = owner_.owner(look, now);
  if (!owner) return std::nullopt;
  return input::Owner{std::move(*owner)};
}

bool Inquiries::halt_was_lost_before(const SlurmJob& job) const {
  if (job.restarts == 0) return false;
  auto events = read_events(context_.checkpoint_dir, job.id, kNewestEvents);
  return events && halt_was_lost(*events, job.restarts);
}

std::vector<Input> Inquiries::act(const action::LookAround& look, const SlurmJob& job) {
  if (look.first && job.restarts == 0) finished_.drop_older(job.times.submit);
  input::Surroundings around{.owner = owner_of(context_.checkpoint_dir)};
  const auto& run = around.owner.run;
  if (run && *run != context_.run) around.owner_job = slurm_.job(run->job);
  around.finished = finished_.found();
  if (run && !around.finished) around.finished_of_owner = finished_.found_of(*run);
  around.halt_was_lost = look.first && halt_was_lost_before(job);
  return {std::move(around)};
}

std::vector<Input> Inquiries::act(const action::LookAtSteps&, const SlurmJob& job) {
  return {input::StepsLook{slurm_.steps(job.id)}};
}

std::vector<Input> Inquiries::act(const action::SignalStep& signal, const SlurmJob& job) {
  return {input::StepSignalled{slurm_.signal_step(job.id, signal.step, signal.signal)}};
}

std::vector<Input> Inquiries::act(const action::AskLimits&, const SlurmJob& job) {
  if (!limits_.asking()) limits_.ask([this, id = job.id] { return probe_limits(slurm_, id); });
  return {};
}

std::vector<Input> Inquiries::act(const action::AskNodes& ask, const SlurmJob&) {
  if (!nodes_.asking()) nodes_.ask(ask.names, Clock::now());
  return {};
}

std::vector<Input> Inquiries::act(const action::FindStepBelow& find, const SlurmJob&) {
  input::StepOnDisk below;
  if (auto steps = list_steps(context_.checkpoint_dir))
    for (std::uint64_t step : *steps)
      if (step < find.step) below.step = step;
  return {below};
}

std::vector<Input> Inquiries::act(const action::CountFruitlessRuns&, const SlurmJob& job) {
  auto history = read_history(context_.checkpoint_dir, job.id);
  if (!history) return {input::FruitlessRuns{}};
  return {input::FruitlessRuns{fruitless_runs(history->events)}};
}

std::vector<Input> Inquiries::act(const action::WalkRoad& road, const SlurmJob& job) {
  return {
      input::RoadDone{walk(RequeueRoad(Party::launcher, road.next, Clock::now()), slurm_, job)}};
}

}  // namespace bellows
