// SPDX-License-Identifier: Apache-2.0
#include "spank/rescue.h"

#include <fmt/core.h>

#include <chrono>
#include <utility>
#include <variant>

namespace bellows::spank {
namespace {

RescueReport report_of(const RequeueRoad::Done& done, bool requeued, bool changed) {
  switch (done.end) {
    case RoadEnd::moved:
      return {true, false, ""};
    case RoadEnd::kept_size:
      if (requeued) return {true, false, "; it keeps its size: " + done.text};
      return {false, false, "it was requeued, and keeps its size: " + done.text};
    case RoadEnd::found:
      return {false, false,
              changed ? "it was requeued, and got its start time here"
                      : "it is requeued, and its start time is set"};
    case RoadEnd::forgotten:
      return {false, false, "slurmctld lost this run; the job starts again"};
    case RoadEnd::newer_run:
      return {false, false, "slurmctld is at a later run"};
    case RoadEnd::ended:
      return {false, false, "Slurm has already ended or requeued it"};
    case RoadEnd::as_it_is:
    case RoadEnd::gone:
    case RoadEnd::refused:
    case RoadEnd::gave_up:
      break;
  }
  return {false, true, done.text};
}

}  // namespace

std::string reason_to_leave(const BatchEnd& end, const JobInfo& info) {
  if (!info.batch_host.empty() && info.batch_host != end.node)
    return fmt::format("its batch script runs on {} now", info.batch_host);
  if (end.rescues >= kMostRescues)
    return fmt::format("it was rescued {} times, the maximum", end.rescues);
  return "";
}

QueuedJob queued_job(const JobInfo& info) {
  QueuedJob job;
  job.state = info.requeued  ? SlurmState::pending
              : info.running ? SlurmState::running
                             : SlurmState::completed;
  job.completing = info.completing;
  job.restarts = info.restarts;
  job.begin = info.begin;
  job.now = info.clock;
  return job;
}

RescueReport rescue(const BatchEnd& end, std::optional<std::uint32_t> gpus,
                    const RescueHands& hands) {
  NextRun next{.restarts = end.restarts};
  next.gpus = gpus;
  RequeueRoad road(Party::rescue, next, hands.time.now());
  JobInfo info;
  bool requeued = false;
  bool changed = false;
  while (true) {
    const RequeueRoad::Step step = road.next();
    if (const auto* done = std::get_if<RequeueRoad::Done>(&step)) {
      hands.time.sleep(done->outlast);
      return report_of(*done, requeued, changed);
    }
    if (const auto* pause = std::get_if<RequeueRoad::Pause>(&step)) {
      hands.time.sleep(pause->time);
      road.paused();
    } else if (std::holds_alternative<RequeueRoad::Look>(step)) {
      const auto seen = hands.look();
      if (seen) info = *seen;
      road.looked(seen ? Result<QueuedJob>(queued_job(info)) : Result<QueuedJob>(seen.error()),
                  hands.time.now());
    } else if (std::holds_alternative<RequeueRoad::Requeue>(step)) {
      if (std::string why = reason_to_leave(end, info); !why.empty())
        return {false, false, std::move(why)};
      const Status answer = hands.requeue();
      requeued |= answer.ok();
      road.requeued(answer, hands.time.now());
    } else if (const auto* change = std::get_if<RequeueRoad::Change>(&step)) {
      changed = true;
      const std::int64_t start = change->change.begin_time.value_or(0);
      const Status answer = hands.set_next_run({start, change->change.gpus, info.asked});
      road.changed(answer, hands.time.now());
    }
  }
}

}  // namespace bellows::spank
