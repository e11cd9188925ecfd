// SPDX-License-Identifier: Apache-2.0
// What each attempt of a job did, from its timeline.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "launcher/record/history.h"

namespace bellows {
namespace {

class Attempts {
 public:
  void take(const JobEvent& event, double seconds) {
    if (at_ && ends(event)) end(event);
    if (closes_run(event) || is_submission(event)) {
      if (event.event == "QUEUED" || event.event == "RESIZING") queued_ += seconds;
      return;
    }
    if (!at_) begin(event);
    at_->phases[event.event] += seconds;
    note_steps(event);
    stored_ = stored_ || event.event == "STORING";
  }

  /// The last one still runs, or its end is unknown.
  std::vector<HistoryAttempt> finish(double now) {
    if (at_) {
      at_->end = now;
      attempts_.push_back(std::move(*at_));
    }
    return std::move(attempts_);
  }

 private:
  bool ends(const JobEvent& event) const {
    return closes_run(event) || event.restart != at_->restart || event.attempt > at_->attempt;
  }

  void begin(const JobEvent& event) {
    at_.emplace();
    at_->restart = event.restart;
    at_->attempt = event.attempt;
    at_->begin = event.time;
    at_->gpus = event.gpus;
    at_->nodes = event.nodes;
    at_->phases["QUEUED"] = std::exchange(queued_, 0);
    at_->to = event.step;
    trains_ = stored_ = false;
    reached_.reset();
  }

  void note_steps(const JobEvent& event) {
    const bool training = event.event == "PROCESSING" || event.event == "CHECKPOINTING";
    if (training && !trains_) at_->from = event.step;
    if ((training && !trains_) || event.step != at_->to) saved_ = event.time;
    trains_ = trains_ || training;
    at_->to = event.step;
    if (event.reached) reached_ = event.reached;
  }

  void end(const JobEvent& event) {
    at_->over = true;
    at_->end = event.time;
    at_->ended = event.event;
    at_->cause = event.cause;
    if (event.reached) reached_ = event.reached;
    // Slurm does not know the step; a launcher may have heard of a last one.
    if (event.step > at_->to) at_->to = event.step;
    if (event.event != "COMPLETED" && !stored_ && trains_) {
      at_->lost_s.reset();
      if (at_->to || reached_) at_->lost_s = std::max(0.0, event.time - saved_);
      const std::uint64_t kept = at_->to.value_or(0);
      if (reached_ && *reached_ >= kept) at_->lost_steps = *reached_ - kept;
    }
    attempts_.push_back(std::move(*at_));
    at_.reset();
  }

  std::optional<HistoryAttempt> at_;
  std::vector<HistoryAttempt> attempts_;
  double queued_ = 0;
  double saved_ = 0;  ///< when the newest step was committed, or training began
  bool trains_ = false;
  bool stored_ = false;
  std::optional<std::uint64_t> reached_;
};

}  // namespace

namespace {

bool is_commit(const JobEvent& event) {
  return event.event == "PROCESSING" && event.step && event.note == EventNote::committed;
}

bool is_save(const JobEvent& event) { return event.note == EventNote::saving; }

bool same_attempt(const JobEvent& a, const JobEvent& b) {
  return a.restart == b.restart && a.attempt == b.attempt;
}

}  // namespace

std::vector<JobEvent> collapse_saves(const std::vector<JobEvent>& events) {
  std::vector<JobEvent> out;
  std::uint64_t first = 0;  // of the commits that the last of `out` stands for
  for (const JobEvent& event : events) {
    const bool commit = is_commit(event);
    // The begin of a save that is committed tells nothing more.
    while (commit && !out.empty() && is_save(out.back()) && same_attempt(out.back(), event))
      out.pop_back();
    const bool more =
        commit && !out.empty() && is_commit(out.back()) && same_attempt(out.back(), event);
    if (!more) {
      if (commit) first = *event.step;
      out.push_back(event);
      continue;
    }
    out.back() = event;
    out.back().cause = fmt::format("committed steps {} to {}", first, *event.step);
  }
  return out;
}

std::vector<HistoryAttempt> sum_up(const std::vector<HistoryEntry>& entries, double now) {
  Attempts attempts;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const JobEvent& event = entries[i].event;
    double until = is_final(event.event) ? event.time : now;
    if (i + 1 < entries.size()) until = entries[i + 1].event.time;
    attempts.take(event, std::max(0.0, until - event.time));
  }
  return attempts.finish(now);
}

}  // namespace bellows
