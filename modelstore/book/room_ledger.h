// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

namespace bellows {

using TenantId = std::uint32_t;
using EvictionId = std::uint64_t;

/// How much there is for models, in bytes.
struct BookRoom {
  std::uint64_t budget = 0;
  std::uint64_t used = 0;
  std::uint64_t evicting = 0;  ///< of used

  bool fits(std::uint64_t bytes) const { return used <= budget && bytes <= budget - used; }
  /// What will be missing for so many when all is freed that is being evicted; negative: is left.
  std::int64_t missing(std::uint64_t bytes) const {
    return static_cast<std::int64_t>(used + bytes) - static_cast<std::int64_t>(evicting + budget);
  }
};

/// Who takes how much of a tier. What is evicted is taken until it is freed, since somebody may
/// have it mapped still, and is no model's.
class RoomLedger {
 public:
  explicit RoomLedger(std::uint64_t bytes);

  void set_budget(TenantId tenant, std::uint64_t budget);
  /// A tenant without a budget of its own may take all.
  void add_tenant(TenantId tenant);

  BookRoom room() const { return all_; }
  BookRoom room_of(TenantId tenant) const;
  bool fits(TenantId tenant, std::uint64_t bytes) const;
  /// Whether so many would if there were nothing else.
  bool could_fit(TenantId tenant, std::uint64_t bytes) const;

  void reserve(TenantId tenant, std::uint64_t bytes);
  void release(TenantId tenant, std::uint64_t bytes);
  EvictionId evict(TenantId tenant, std::uint64_t bytes);
  /// False: there is no such eviction.
  bool free(EvictionId eviction);

 private:
  struct Evicted {
    TenantId tenant = 0;
    std::uint64_t bytes = 0;
  };

  BookRoom all_;
  std::map<TenantId, BookRoom> of_;
  std::map<EvictionId, Evicted> evicted_;
  EvictionId next_eviction_ = 1;
};

}  // namespace bellows
