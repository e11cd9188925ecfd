// SPDX-License-Identifier: Apache-2.0
#include "modelstore/book/room_ledger.h"

#include <algorithm>

namespace bellows {
namespace {

/// Sums of a few sizes fit signed numbers.
constexpr std::uint64_t kMostRoom = std::uint64_t{1} << 60;

}  // namespace

RoomLedger::RoomLedger(std::uint64_t bytes) { all_.budget = std::min(bytes, kMostRoom); }

void RoomLedger::set_budget(TenantId tenant, std::uint64_t budget) {
  of_[tenant].budget = std::min(budget, kMostRoom);
}

void RoomLedger::add_tenant(TenantId tenant) {
  of_.try_emplace(tenant, BookRoom{all_.budget, 0, 0});
}

BookRoom RoomLedger::room_of(TenantId tenant) const {
  const auto found = of_.find(tenant);
  return found == of_.end() ? BookRoom{all_.budget, 0, 0} : found->second;
}

bool RoomLedger::fits(TenantId tenant, std::uint64_t bytes) const {
  return all_.fits(bytes) && room_of(tenant).fits(bytes);
}

bool RoomLedger::could_fit(TenantId tenant, std::uint64_t bytes) const {
  return bytes <= all_.budget && bytes <= room_of(tenant).budget;
}

void RoomLedger::reserve(TenantId tenant, std::uint64_t bytes) {
  all_.used += bytes;
  of_[tenant].used += bytes;
}

void RoomLedger::release(TenantId tenant, std::uint64_t bytes) {
  all_.used -= bytes;
  of_[tenant].used -= bytes;
}

EvictionId RoomLedger::evict(TenantId tenant, std::uint64_t bytes) {
  all_.evicting += bytes;
  of_[tenant].evicting += bytes;
  evicted_[next_eviction_] = {tenant, bytes};
  return next_eviction_++;
}

bool RoomLedger::free(EvictionId eviction) {
  const auto found = evicted_.find(eviction);
  if (found == evicted_.end()) return false;
  const Evicted gone = found->second;
  evicted_.erase(found);
  all_.evicting -= gone.bytes;
  of_[gone.tenant].evicting -= gone.bytes;
  release(gone.tenant, gone.bytes);
  return true;
}

}  // namespace bellows
