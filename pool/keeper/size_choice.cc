// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/size_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/fd.h"
#include "pool/wire/pool_place.h"

namespace bellows::pool {
namespace {

constexpr std::chrono::seconds kVoteLasts{3};

std::string name_of(std::uint32_t job) { return std::to_string(job); }

/// The youngest has the least that would be lost with it.
std::vector<std::uint32_t> youngest_first(const MemberBook& book) {
  std::vector<const MemberEntry*> ready;
  for (const auto& [job, member] : book.members())
    if (member.phase == Phase::ready) ready.push_back(&member);
  std::sort(ready.begin(), ready.end(), [](const auto* a, const auto* b) {
    return std::pair(a->submitted, a->job) > std::pair(b->submitted, b->job);
  });
  std::vector<std::uint32_t> jobs;
  for (const MemberEntry* member : ready) jobs.push_back(member->job);
  return jobs;
}

std::vector<PoolMember> members_of(const MemberBook& book) {
  std::vector<PoolMember> members;
  for (const auto& [job, entry] : book.members()) {
    if (entry.phase == Phase::ended) continue;
    PoolMember member{.id = name_of(job), .since = entry.submitted};
    if (entry.phase == Phase::ready) member.state = PoolMember::State::ready;
    if (entry.phase == Phase::draining) member.state = PoolMember::State::draining;
    members.push_back(std::move(member));
  }
  return members;
}

}  // namespace

Result<PoolPolicy> read_policy(const std::string& dir, const PoolSettings& settings) {
  const std::string path = policy_file(dir);
  PoolPolicy policy;
  const auto text = read_file(path, kMostPolicyBytes);
  if (!text && text.error().kind != ErrorKind::not_found) return text.error();
  if (text) {
    auto read = read_pool_policy(*text, path);
    if (!read) return read.error();
    policy = std::move(*read);
  }
  policy.name = settings.name;
  policy.min = settings.min;
  policy.max = settings.max;
  policy.burst_interval = settings.burst_interval;
  return policy;
}

void SizeChoice::take(const MemberReport& report, Clock::time_point now) {
  const std::string member = name_of(report.job);
  for (const auto& [name, metric] : report.metrics)
    (void)signals_.put(member, name, metric.value, now - metric.age);
  // Members say it again and again. What is older may have been counted by a keeper before this
  // one.
  const auto heard = now - began_.value_or(now);
  if (report.vote_sequence != 0 && report.vote_age <= std::min<Clock::duration>(kVoteLasts, heard))
    (void)signals_.vote(member, report.vote, report.vote_sequence, now, policy_.burst_interval);
}

void SizeChoice::forget_the_ended(const MemberBook& book) {
  std::vector<std::string> known;
  for (const auto& [job, member] : book.members())
    if (member.phase != Phase::ended) known.push_back(name_of(job));
  for (const std::string& member : known_)
    if (std::find(known.begin(), known.end(), member) == known.end()) signals_.forget(member);
  known_ = std::move(known);
}

Wish SizeChoice::wish(MemberBook& book, const PoolOrders& orders, Clock::time_point now) {
  if (!began_) began_ = now;
  for (const double seconds : book.take_start_times()) starts_.add(MemberStarts::Seconds(seconds));
  forget_the_ended(book);
  // Also while a person holds the size, so that the policy knows the load when it decides again.
  const SizeDecision decision = decider_.decide(now, signals_, starts_, members_of(book));
  Wish wish{
      .wanted = decision.wanted, .why = explain(decision), .drain_first = youngest_first(book)};
  if (orders.size > 0) {
    wish.wanted = std::clamp(orders.size, policy_.min, policy_.max);
    wish.why = fmt::format("`bellows pool scale` has set {}", orders.size);
  }
  if (orders.ends) {
    wish.wanted = 0;
    wish.why = "the pool is being deleted";
  }
  return wish;
}

}  // namespace bellows::pool
