// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "slurm/gres.h"
#include "slurm/interface.h"

namespace bellows {

/// A slurmctld with one job and a clock that a test moves. It has the hazards of a requeue that
/// slurm/requeue.h names: a start time that has passed when the last node is done becomes one after
/// the life of a credential, and a start in the second in which the credential ended loses the job.
class FakeSlurm final : public Slurm {
 public:
  static constexpr double kCredentialLife = 121;

  explicit FakeSlurm(std::uint32_t gpus = 4) {
    record.id = 7;
    record.state = SlurmState::running;
    record.priority = 100;
    record.kind.batch = record.kind.may_requeue = true;
    record.partition = "main";
    record.times.start = 900;
    record.asked.tres_per_job = BELLOWS_GRES "gpu:" + std::to_string(gpus);
    record.nodes = {{"n1", gpus, gpus}};
    record.batch_host = "n1";
  }

  SlurmJob record;
  double clock = 1000;           ///< seconds
  double batch_ends_after = 1;   ///< seconds from a requeue until the last node is done
  int silent_calls = 0;          ///< so many calls get no answer
  bool silent_but_done = false;  ///< and are carried out all the same
  std::set<std::uint32_t> refused_sizes;
  bool takes_what_it_refuses =
      false;  ///< fields of a refused change that came first remain changed
  bool requeue_refused = false;
  bool full = false;  ///< no job can start
  bool lost = false;  ///< the job was started with a credential that had ended
  int starts = 0;
  std::vector<std::string> calls;
  std::vector<SlurmJobChange> changes;  ///< those that were asked for, whatever came of them
  std::vector<SlurmJob> others;
  std::optional<Error> no_job;  ///< what a question about the job gets instead
  std::map<std::string, std::vector<SlurmStep>> steps_of;
  std::function<void()> before_look;  ///< what happens in the world meanwhile
  std::function<void(const std::string& call)> before_call;

  void advance(double seconds) {
    for (const double end = clock + seconds; clock < end - 1e-9;) {
      clock = std::min(end, clock + 0.05);
      look();
    }
  }
  void wait_until_done(double when) { done_at_ = when; }

  Result<SlurmJob> job(std::uint32_t) override {
    if (before_look) before_look();
    if (!answers("job")) return no_answer();
    if (no_job) return *no_job;
    SlurmJob now = record;
    now.times.now = second(clock);
    if (now.state == SlurmState::pending) {
      now.nodes.clear();
      // Slurm clears the start of the last run only when its last node is done.
      now.times.start = now.completing ? std::max(now.times.start, now.times.now) : now.times.begin;
    }
    return now;
  }
  Result<SlurmJob> job(const JobName&) override { return job(record.id); }
  Result<std::vector<SlurmJob>> jobs() override {
    std::vector<SlurmJob> all = others;
    all.push_back(record);
    return all;
  }
  Result<std::vector<SlurmStep>> steps(std::uint32_t) override { return steps_of["all"]; }
  Result<SlurmGrace> grace_of(const SlurmJob&) override { return SlurmGrace(); }

  Status requeue_running(std::uint32_t) override { return requeue_if("requeue", false, false); }
  Status requeue_held(std::uint32_t) override { return requeue_if("requeue_held", true, false); }
  Status requeue(std::uint32_t) override { return requeue_if("requeue_any", false, true); }
  Status may_change_size(const SlurmJob&, std::uint32_t gpus) override {
    if (!answers("may_change_size")) return no_answer();
    return refused_sizes.contains(gpus) ? Status(refusal()) : Status();
  }
  Status change(const SlurmJob&, const SlurmJobChange& change) override {
    changes.push_back(change);
    const bool heard = answers("change");
    if (!heard && !silent_but_done) return no_answer();
    if (record.state != SlurmState::pending) return refusal();
    if (change.held) record.priority = *change.held ? 0 : 100;
    if (change.begin_time) record.times.begin = *change.begin_time;
    const bool refused = change.gpus && refused_sizes.contains(*change.gpus);
    if (refused && !takes_what_it_refuses) return refusal();
    if (change.gpus) record.asked.tres_per_job = BELLOWS_GRES "gpu:" + std::to_string(*change.gpus);
    if (refused) return refusal();
    return heard ? Status() : Status(no_answer());
  }
  bool requeues_the_finished() const override { return false; }
  Status signal_step(std::uint32_t, std::uint32_t, int) override { return {}; }

 private:
  static std::time_t second(double clock) { return static_cast<std::time_t>(std::floor(clock)); }
  static Error no_answer() { return {ErrorKind::unavailable, "Connection refused"}; }
  static Error refusal() { return {ErrorKind::invalid, "Requested node configuration"}; }

  bool answers(const std::string& call) {
    calls.push_back(call);
    if (before_call) before_call(call);
    if (silent_calls == 0) return true;
    --silent_calls;
    return false;
  }

  Status requeue_if(const std::string& call, bool held, bool any) {
    const bool heard = answers(call);
    if (!heard && !silent_but_done) return no_answer();
    if (requeue_refused) return refusal();
    const bool runs = record.state == SlurmState::running || record.state == SlurmState::suspended;
    if (runs || (any && record.state != SlurmState::pending)) {
      record.state = SlurmState::pending;
      record.completing = true;
      record.times.begin = 0;
      ++record.restarts;
      done_at_ = clock + batch_ends_after;
      if (held) record.priority = 0;
    }
    return heard ? Status() : Status(no_answer());
  }

  void look() {
    if (record.completing && clock >= done_at_) {
      record.completing = false;
      ended_ = second(clock);
      if (static_cast<double>(record.times.begin) <= clock)
        record.times.begin = second(clock + kCredentialLife);
    }
    const bool may_start = !full && record.state == SlurmState::pending && !record.completing &&
                           record.priority != 0 && clock >= static_cast<double>(record.times.begin);
    if (!may_start) return;
    lost |= second(clock) == ended_;
    record.state = SlurmState::running;
    record.times.start = second(clock);
    record.nodes = {{"n1", record.requested_gpus(), record.requested_gpus()}};
    ++starts;
  }

  double done_at_ = 0;
  std::time_t ended_ = 0;  ///< the second in which the last credential was revoked
};

}  // namespace bellows
