// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/prune.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "checkpoint/store/store_writer.h"
#include "checkpoint/system/retry.h"
#include "common/text.h"
#include "launcher/base/program_output.h"
#include "launcher/ckpt/verify.h"
#include "launcher/record/directory_claim.h"
#include "launcher/slurm/accounts.h"

namespace bellows {
namespace {

constexpr auto kSlurmAnswersWithin = std::chrono::seconds(60);
constexpr std::size_t kMostAnswer = 1 << 16;

Status check_unchanged(const std::string& dir, const PrunePlan& plan) {
  auto owner = read_owner(dir);
  if (!owner) return owner.error();
  if (*owner == plan.owner) return {};
  return Error{
      ErrorKind::busy,
      fmt::format(
          "a program has started to use {}, so nothing was removed: prune again when it has ended",
          dir)};
}

// Under such a name the next attempt removes what is left of an interrupted removal.
std::string gone_path(const std::string& dir, std::uint64_t step) {
  return fmt::format("{}/.tmp-gone-{}-prune.{}", dir, step, getpid());
}

/// Names may have been added since the plan was made.
Result<std::vector<std::uint64_t>> still_to_remove(const std::string& dir, const PrunePlan& plan) {
  auto named = named_steps(dir);
  if (!named) return named.error();
  std::vector<std::uint64_t> steps = plan.remove;
  std::erase_if(steps, [&](std::uint64_t step) { return named->contains(step); });
  return steps;
}

}  // namespace

Result<PrunePlan> plan_prune(const std::string& dir, const Retention& retention,
                             ProgressBar& progress) {
  PrunePlan plan;
  auto owner = read_owner(dir);
  if (!owner) return owner.error();
  plan.owner = *owner;
  auto steps = list_steps(dir);
  if (!steps) return steps.error();
  auto named = named_steps(dir);
  if (!named) return named.error();
  std::uint32_t good = 0;
  for (auto step = steps->rbegin(); step != steps->rend() && good < retention.keep; ++step) {
    auto verified = verify_shown({dir, *step}, progress);
    if (verified) {
      ++good;
    } else if (may_pass(verified.error())) {
      plan.unread[*step] = verified.error().text;
    } else {
      plan.bad.insert(*step);
    }
  }
  progress.end();
  // A step that can't be read may be whole, but nothing may go because of it.
  std::set<std::uint64_t> not_good = plan.bad;
  for (const auto& [step, why] : plan.unread) not_good.insert(step);
  plan.remove = steps_to_remove(*steps, not_good, *named, retention);
  std::set_difference(steps->begin(), steps->end(), plan.remove.begin(), plan.remove.end(),
                      std::back_inserter(plan.keep));
  return plan;
}

Status run_prune(FileOps& ops, const std::string& dir, const PrunePlan& plan,
                 const std::function<void(std::uint64_t)>& removed) {
  auto alone = hold_store(dir);
  if (!alone) return alone.error();
  {
    auto lock = lock_store(dir);
    if (!lock) return lock.error();
    if (auto status = check_unchanged(dir, plan); !status) return status;
    auto steps = still_to_remove(dir, plan);
    if (!steps) return steps.error();
    for (std::uint64_t step : *steps) {
      if (interrupted()) break;
      auto status = ops.rename(step_path(dir, step), gone_path(dir, step));
      if (!status) return status;
      removed(step);
    }
    if (auto status = ops.sync_directory(dir); !status) return status;
  }
  return remove_names(ops, dir,
                      [](const std::string& name) { return name.starts_with(".tmp-gone-"); });
}

Status check_no_job_runs(const std::string& dir) {
  const auto run = owner_of(dir).run;
  if (!run) return {};
  const auto unknown = [&](const std::string& why) {
    return Error{ErrorKind::unavailable,
                 fmt::format("cannot tell whether job {}, which owns {}, is still running ({}): "
                             "prune where squeue works, or give --job-is-over",
                             run->job, dir, one_line(trim(why)))};
  };
  auto answer =
      output_of({"squeue", "--noheader", "--jobs", std::to_string(run->job), "--format=%T"},
                kSlurmAnswersWithin, kMostAnswer);
  if (!answer) return unknown(answer.error().text);
  // Slurm forgets jobs that are over.
  const bool forgotten = answer->err.find("Invalid job id") != std::string::npos;
  if (!answer->exit.ok() && !forgotten) return unknown(answer->err);
  const std::string state(trim(answer->out));
  if (forgotten || state.empty() || state == "PENDING") return {};
  return Error{
      ErrorKind::busy,
      fmt::format(
          "job {} owns {} and is {}: it removes old steps itself, as --keep of bellows run says",
          run->job, dir, one_line(state))};
}

}  // namespace bellows
