// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/step_plan.h"

#include <algorithm>
#include <tuple>

namespace bellows::pool {
namespace {

/// What the agent needs to kill a program that does not end, and Slurm to see it.
constexpr std::chrono::seconds kAfterDrain{15};
/// scancel may not have reached slurmctld.
constexpr std::chrono::seconds kCancelAgain{10};

bool may_cancel(const MemberEntry& member, Clock::time_point now) {
  return !member.cancelled || now - *member.cancelled > kCancelAgain;
}

void drain_ready(const MemberBook& book, const std::vector<std::uint32_t>& drain_first,
                 std::uint32_t surplus, StepPlan& plan) {
  for (const std::uint32_t job : drain_first) {
    if (plan.drain.size() >= surplus) return;
    const auto place = book.members().find(job);
    if (place != book.members().end() && place->second.phase == Phase::ready)
      plan.drain.push_back(job);
  }
}

/// Down to `max` all may go, and down to `wanted` those that nobody has asked for. The last ones
/// that were submitted are the furthest from being of use.
void cancel_beginners(const MemberBook& book, std::uint32_t wanted, std::uint32_t max,
                      Clock::time_point now, StepPlan& plan) {
  std::vector<const MemberEntry*> beginners;
  for (const auto& [job, member] : book.members())
    if (member.phase == Phase::pending || member.phase == Phase::starting)
      beginners.push_back(&member);
  std::sort(beginners.begin(), beginners.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->unasked, a->submitted, a->job) >
           std::tuple(b->unasked, b->submitted, b->job);
  });
  auto staying = book.staying() - static_cast<std::uint32_t>(plan.drain.size());
  for (const MemberEntry* member : beginners) {
    if (staying <= (member->unasked ? std::min(wanted, max) : max)) return;
    --staying;
    if (may_cancel(*member, now)) plan.cancel.push_back(member->job);
  }
}

}  // namespace

StepPlan plan_steps(const MemberBook& book, std::uint32_t wanted, std::uint32_t max,
                    const std::vector<std::uint32_t>& drain_first, Clock::time_point now) {
  StepPlan plan;
  for (const auto& [job, member] : book.members())
    if (member.phase == Phase::draining && member.drain_by &&
        now > *member.drain_by + kAfterDrain && may_cancel(member, now))
      plan.cancel.push_back(job);
  const std::uint32_t staying = book.staying();
  if (staying < wanted && now >= book.may_submit_at()) plan.submit = wanted - staying;
  // One at a time shows whether the script works again.
  if (book.fruitless() >= MemberBook::kFruitless) plan.submit = std::min(plan.submit, 1U);
  // Those that begin do no work yet, so a ready one goes when enough others are ready.
  const std::uint32_t ready = book.count(Phase::ready);
  if (ready > wanted) drain_ready(book, drain_first, ready - wanted, plan);
  cancel_beginners(book, wanted, max, now, plan);
  return plan;
}

}  // namespace bellows::pool
