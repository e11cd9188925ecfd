// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/service_book.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/contract.h"

namespace bellows {
namespace {

/// Of a job that is a pool's; else nothing.
std::optional<PoolOption> pool_of(const SlurmJob& job) {
  const std::string_view line = Contract::line_in(job.admin_comment);
  if (line.empty()) return std::nullopt;
  const auto contract = Contract::parse(line);
  if (!contract) return std::nullopt;
  auto pool = PoolOption::parse(contract->extra_value(Contract::kPoolKey));
  if (!pool) return std::nullopt;
  return *std::move(pool);
}

}  // namespace

std::optional<std::string> pool_of_member(const SlurmJob& job) {
  auto pool = pool_of(job);
  if (!pool || pool->is_keeper()) return std::nullopt;
  return std::move(pool->name);
}

void ServiceBook::update(const std::vector<SlurmJob>& jobs) {
  std::set<std::uint32_t> seen;
  const std::lock_guard lock(mutex_);
  for (const SlurmJob& job : jobs) {
    if (job.state != SlurmState::running) continue;
    auto pool = pool_of(job);
    if (!pool || !pool->is_keeper()) continue;
    seen.insert(job.id);
    ServiceClaim& claim = notes_[job.id].claim;
    claim.keeper = job.id;
    claim.uid = job.uid;
    claim.pool = *std::move(pool);
  }
  std::erase_if(notes_, [&](const auto& entry) { return !seen.contains(entry.first); });
}

Result<ServiceReply> ServiceBook::take(const ServiceReport& report, uid_t uid,
                                       Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = notes_.find(report.job);
  if (found == notes_.end())
    return Error{
        ErrorKind::not_found,
        fmt::format("job {} is not one that bellowsd knows as a pool's keeper", report.job)};
  Notes& notes = found->second;
  if (notes.claim.uid != uid)
    return Error{ErrorKind::denied,
                 fmt::format("job {} belongs to another user than uid {}", report.job, uid)};
  notes.claim.wanted = std::clamp(report.wanted, notes.claim.pool.min, notes.claim.pool.max);
  notes.claim.leaving = {report.leaving.begin(), report.leaving.end()};
  notes.heard = now;
  return ServiceReply{.again_s = 1, .members = notes.members};
}

std::vector<ServiceClaim> ServiceBook::claims(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  std::vector<ServiceClaim> claims;
  for (const auto& [keeper, notes] : notes_)
    if (notes.heard && now - *notes.heard <= kSilent) claims.push_back(notes.claim);
  return claims;
}

void ServiceBook::allow(std::uint32_t keeper, std::uint32_t members) {
  const std::lock_guard lock(mutex_);
  if (const auto found = notes_.find(keeper); found != notes_.end())
    found->second.members = members;
}

}  // namespace bellows
