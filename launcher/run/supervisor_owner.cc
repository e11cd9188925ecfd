// SPDX-License-Identifier: Apache-2.0
// Supervisor and other runs: who owns the checkpoint directory, and when this run gives way.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/base/exit_status.h"
#include "launcher/ranks/rank_processes.h"
#include "launcher/run/supervisor.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kAskOwnerEvery = 1s;

}  // namespace

// Jobs that share a directory would go on from each other's checkpoints, and so would two runs of
// one job.
bool Supervisor::give_way_to_owner() {
  owner_ = owner_of(context_.checkpoint_dir);
  if (!owner_.run || *owner_.run == context_.run) return false;
  const auto job = slurm_.job(owner_.run->job);
  switch (claim_on(job, job_)) {
    case Claim::free:
      return false;
    case Claim::late:
      return runs_anew(*job);
    case Claim::unknown:
      if (!std::exchange(said_owner_unknown_, true))
        say(fmt::format("{} belongs to job {}, which may not be over: {}; asking again",
                        context_.checkpoint_dir, owner_.run->job, job.error().text));
      enter(Phase::waiting, kAskOwnerEvery);
      return true;
    case Claim::taken:
      break;
  }
  std::string cause = fmt::format(
      "the checkpoint directory {} belongs to job {}, which is not over; give each job "
      "its own with --checkpoint-dir",
      context_.checkpoint_dir, owner_.run->job);
  record("FAILED", cause);
  say(cause);
  finish(kRefused);
  return true;
}

// As on a node that was cut off, or when the answer to a requeue was lost: a later run has all that
// was committed, and is not to be touched.
bool Supervisor::runs_anew(const SlurmJob& job) {
  if (!is_later_run(job, job_)) return false;
  say(fmt::format("this is run {} of the job, and Slurm is at run {}: leaving it to that",
                  job_.restarts, job.restarts));
  finish(kOk);
  return true;
}

// A node may be cut off from slurmctld but not from the file system: nobody else would tell this
// run that there is a later one, and a program that saves by itself would write over its
// checkpoints.
void Supervisor::watch_owner() {
  if (phase_ != Phase::running && phase_ != Phase::saving) return;
  const auto look = [this] { return owner_of(context_.checkpoint_dir).attempt; };
  const auto owner = owner_watch_.owner(look, Clock::now());
  const auto run = owner ? RunName::of_attempt(*owner) : std::nullopt;
  if (!run) return;
  if (*run == context_.run)
    owned_ = true;
  else if (owned_ || *owner != owner_.attempt)
    leave_to(*owner, run->job);
}

void Supervisor::leave_to(const std::string& owner, std::uint32_t job) {
  const std::string cause = fmt::format(
      "the attempt {} owns the checkpoint directory now, this is {}: leaving it to that", owner,
      attempt_name());
  say(cause);
  if (stop_) answer(stop_->client, nlohmann::json{{"event", "error"}, {"error", cause}}.dump());
  own_stop_.reset();
  // A later run of this job has all that was committed; another job has none of this one's work.
  exit_code_ = job == job_.id ? kOk : kRefused;
  clear(Next::leave, cause);
  // srun signals them through the slurmd of each node, which may not answer on a node that is cut
  // off.
  kill_ranks_here(attempt_name());
}

}  // namespace bellows
