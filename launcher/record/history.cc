// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/history.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/child.h"
#include "launcher/record/lost_halt.h"

namespace bellows {

bool is_final(const std::string& state) {
  return state == "COMPLETED" || state == "FAILED" || state == "CANCELLED";
}

bool closes_run(const JobEvent& event) {
  if (is_final(event.event) || event.event == "HALTED" || event.event == "RESIZING") return true;
  return event.event == "QUEUED" && event.attempt > 0;
}

bool is_submission(const JobEvent& event) { return event.event == "QUEUED" && event.attempt == 0; }

Ending ending_of(const SlurmRun& run) {
  if (run.state == "COMPLETED") return {"COMPLETED", "the batch script has ended"};
  if (run.state == "CANCELLED")
    return {"CANCELLED", run.by.empty() ? "cancelled" : "cancelled by " + run.by};
  if (run.state == "TIMEOUT") return {"FAILED", "the job's time limit"};
  if (run.state == "NODE_FAIL") return {"FAILED", "a node failed"};
  if (run.state == "PREEMPTED") return {"FAILED", "preempted"};
  if (run.state == "OUT_OF_MEMORY") return {"FAILED", "out of memory"};
  if (run.state == "BOOT_FAIL") return {"FAILED", "a node did not boot"};
  if (run.state == "DEADLINE") return {"FAILED", "the job's deadline"};
  if (run.state == "REQUEUED")
    return {"QUEUED",
            "requeued; its launcher did not say why: it was killed, or somebody requeued the job"};
  if (run.exit_status)
    return {"FAILED",
            "the batch script " + ChildExit{static_cast<int>(*run.exit_status)}.to_string()};
  return {"FAILED", "the batch script failed"};
}

namespace {

// Slurm's whole seconds against the launcher's fractions.
constexpr double kSameTime = 1.5;

using Entries = std::vector<HistoryEntry>;
/// Restart -> what happened in that run.
using Runs = std::map<std::uint32_t, Entries>;

bool is_resumption(const JobEvent& event) {
  return is_submission(event) && event.note == EventNote::resumed;
}

/// A job that is halted while it waits has begun no run that could end.
bool ends_run(const JobEvent& event) {
  return closes_run(event) && event.note != EventNote::halted_in_queue;
}

/// slurmctld's record of the newest run; accounting may be off, or behind.
void add_newest(std::vector<SlurmRun>& runs, const SlurmJob& job) {
  const auto submit = static_cast<double>(job.times.submit);
  for (const SlurmRun& run : runs)
    if (std::abs(run.submit - submit) < kSameTime) return;
  SlurmRun run;
  run.job = job.id;
  run.state = slurm_state_name(job.state);
  run.submit = submit;
  const bool began = job.state != SlurmState::pending;
  if (began) run.start = static_cast<double>(job.times.start);
  if (job.finished()) run.end = static_cast<double>(job.times.end);
  if (job.state == SlurmState::failed) run.exit_status = job.exit_status;
  run.gpus = began && !job.finished() ? job.gpus() : job.requested_gpus();
  runs.push_back(std::move(run));
}

/// The restart count that the run had: accounting does not keep it.
std::uint32_t restart_of(const SlurmRun& run, const std::vector<JobEvent>& events,
                         const std::optional<SlurmJob>& job, std::uint32_t next) {
  for (const JobEvent& event : events)
    if (is_submission(event) && std::abs(event.time - run.submit) < kSameTime) return event.restart;
  if (job && std::abs(static_cast<double>(job->times.submit) - run.submit) < kSameTime)
    return job->restarts;
  return next;
}

/// Builds the timeline run by run.
class Merge {
 public:
  Merge(const std::vector<JobEvent>& events, std::vector<SlurmRun> slurm,
        const std::optional<SlurmJob>& job)
      : job_(job), accounted_(!slurm.empty()) {
    for (const JobEvent& event : events) runs_[event.restart].push_back({event, false});
    if (job) add_newest(slurm, *job);
    std::uint32_t next = 0;
    for (const SlurmRun& run : slurm) {
      const std::uint32_t restart = restart_of(run, events, job, next);
      // A run that slurmctld had forgotten counts as none: the later one is the same.
      slurm_.insert_or_assign(restart, run);
      next = restart + 1;
    }
  }

  Entries entries() {
    for (auto& [restart, entries] : runs_) put_submission_first(entries);
    for (const auto& [restart, run] : slurm_) add_begin(restart, run);
    std::set<std::uint32_t> restarts;
    for (const auto& [restart, entries] : runs_) restarts.insert(restart);
    for (std::uint32_t restart : restarts) add_end(restart);
    return in_order();
  }
  std::vector<std::string> missing() const { return missing_; }

 private:
  /// What Slurm says happened in a run, behind what is known of it.
  void add(std::uint32_t restart, double time, const Ending& what, bool begins) {
    Entries& known = runs_[restart];
    JobEvent event;
    if (!known.empty()) event = known.back().event;
    event.time = time;
    event.restart = restart;
    event.event = what.state;
    event.cause = what.cause;
    event.reached.reset();
    if (!begins) event.attempt = std::max(event.attempt, 1u);
    if (auto run = slurm_.find(restart); run != slurm_.end()) {
      event.job = run->second.job;
      if (run->second.gpus > 0) event.gpus = run->second.gpus;
      if (event.nodes.empty() && !run->second.nodes.empty()) event.nodes = {run->second.nodes};
    }
    known.push_back({std::move(event), true});
  }

  // The launcher, which reports it, starts last.
  static void put_submission_first(Entries& entries) {
    const auto begun = std::ranges::find_if(
        entries, [](const HistoryEntry& entry) { return entry.event.attempt > 0; });
    std::stable_partition(entries.begin(), begun, [](const HistoryEntry& entry) {
      return is_submission(entry.event) && !is_resumption(entry.event);
    });
  }

  void add_begin(std::uint32_t restart, const SlurmRun& run) {
    Entries& entries = runs_[restart];
    bool submitted = false;
    bool deployed = false;
    for (const HistoryEntry& entry : entries) {
      submitted |= is_submission(entry.event) && !is_resumption(entry.event);
      deployed |= entry.event.attempt > 0;
    }
    // A launcher that finds the program finished, or to be halted, starts no attempt.
    deployed |= !entries.empty() && ends_run(entries.back().event);
    if (!submitted) {
      JobEvent event;
      event.time = run.submit;
      event.job = run.job;
      event.restart = restart;
      event.event = "QUEUED";
      event.cause = restart == 0 ? "submitted" : "requeued";
      event.gpus = run.gpus;
      entries.insert(entries.begin(), {std::move(event), true});
    }
    if (run.start > 0 && !deployed)
      add(restart, run.start, {"DEPLOYING", "Slurm started the batch script"}, true);
  }

  void add_end(std::uint32_t restart) {
    const Entries& entries = runs_[restart];
    const auto run = slurm_.find(restart);
    const bool last = runs_.upper_bound(restart) == runs_.end();
    const bool closed = !entries.empty() && ends_run(entries.back().event);
    if (run != slurm_.end() && run->second.end > 0) {
      Ending ending = ending_of(run->second);
      // Slurm decides how the job ended, but does not know why it was requeued.
      const bool contradicts = last && is_final(ending.state) && closed &&
                               is_final(entries.back().event.event) &&
                               entries.back().event.event != ending.state;
      if (closed && !contradicts) return;
      if (!last) return explain_requeue(restart, ending);
      return add(restart, run->second.end, ending, false);
    }
    if (closed || last) return;
    explain_requeue(
        restart, {"QUEUED",
                  "requeued; the launcher of the previous run did not say why: it was killed, its "
                  "node failed, or somebody requeued the job"});
    if (!accounted_)
      missing_.push_back(fmt::format(
          "how run {} ended: no launcher recorded it, and Slurm's accounting does not have it",
          restart));
  }

  // The requeue is the next run's submission.
  void explain_requeue(std::uint32_t restart, const Ending& ending) {
    Entries& next = runs_.upper_bound(restart)->second;
    for (HistoryEntry& entry : next) {
      if (!is_submission(entry.event)) continue;
      entry.event.cause =
          ending.state == "QUEUED" ? ending.cause : ending.cause + "; Slurm requeued the job";
      entry.of_slurm = true;
      return;
    }
  }

  // A halted job was not queued before somebody resumed it, which is told too.
  void drop_false_queue(std::uint32_t restart, Entries& entries) const {
    double newest = 0;
    for (const HistoryEntry& entry : entries)
      if (is_submission(entry.event)) newest = std::max(newest, entry.event.time);
    const bool held = job_ && job_->restarts == restart && job_->state == SlurmState::pending &&
                      job_->priority == 0 && !closes_run(entries.back().event);
    std::erase_if(entries, [newest, held](const HistoryEntry& entry) {
      return is_submission(entry.event) && (held || entry.event.time < newest);
    });
  }

  Entries in_order() {
    Entries all;
    for (auto& [restart, entries] : runs_) {
      if (!all.empty() && all.back().event.event == "HALTED") drop_false_queue(restart, entries);
      for (HistoryEntry& entry : entries) {
        // Whole seconds of Slurm's clock may lie before what the launcher did in that second.
        if (!all.empty()) entry.event.time = std::max(entry.event.time, all.back().event.time);
        all.push_back(std::move(entry));
      }
    }
    return all;
  }

  const std::optional<SlurmJob>& job_;
  bool accounted_;
  Runs runs_;
  std::map<std::uint32_t, SlurmRun> slurm_;
  std::vector<std::string> missing_;
};

}  // namespace

History make_history(const std::vector<JobEvent>& events, std::vector<SlurmRun> runs,
                     const std::optional<SlurmJob>& job, double now) {
  Merge merge(events, std::move(runs), job);
  History history;
  history.entries = merge.entries();
  history.missing = merge.missing();
  history.attempts = sum_up(history.entries, now);
  return history;
}

}  // namespace bellows
