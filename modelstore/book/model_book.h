// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/result.h"
#include "modelstore/book/room_ledger.h"

namespace bellows {

using ModelId = std::uint64_t;
using TicketId = std::uint64_t;

enum class EvictionPolicy {
  lru,      ///< that was used longest ago
  lfu,      ///< that was used least often
  largest,  ///< largest first
  cost,     ///< that took the least time to load, for the time it has not been used
};

struct TierLimits {
  std::uint64_t bytes = 0;
  EvictionPolicy policy = EvictionPolicy::lru;
  std::chrono::milliseconds time_to_live{0};  ///< of what nobody uses; 0: no limit
};

/// What the book wants done.
namespace decide {

/// Begin to load: find out its size, and say `sized` or `failed`.
struct Load {
  ModelId model;
};
/// Its bytes are reserved: go on, and say `loaded` or `failed`.
struct Fill {
  ModelId model;
};
/// There is no room for it: end the load. Nothing more is to be said of it.
struct Abandon {
  ModelId model;
};
/// Lend this memory of it to nobody any more, and say `freed` when it is free. The model may be
/// loaded anew before that.
struct Evict {
  ModelId model;
  EvictionId eviction;
};
/// The ticket has its model.
struct Grant {
  TicketId ticket;
};
/// The ticket is over.
struct Refuse {
  TicketId ticket;
  Error error;
};

}  // namespace decide

using BookDecision = std::variant<decide::Load, decide::Fill, decide::Abandon, decide::Evict,
                                  decide::Grant, decide::Refuse>;
using BookDecisions = std::vector<BookDecision>;

/// What decides whether a model goes before another.
struct ModelUse {
  std::chrono::steady_clock::time_point last_used{};
  std::uint64_t uses = 0;
  std::chrono::nanoseconds load_time{0};
};

/// What else there is to say of a model.
struct BookEntry {
  std::uint64_t bytes = 0;    ///< that it takes; 0: not known yet
  std::uint64_t waiting = 0;  ///< tickets
  bool pinned = false;
  std::optional<Error> trouble;  ///< of its last load, until the next begins
};

/// Decides what a tier does with its room. README.md has the rules. Each event returns what is to
/// be done, in this order; an event that can't be is ignored.
class ModelBook {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class State { absent, sizing, waiting, filling, resident };

  explicit ModelBook(const TierLimits& limits);

  /// A tenant that has no budget of its own may take all.
  void add_tenant(TenantId tenant, std::uint64_t budget);
  /// Its bytes count for this tenant, whoever uses it.
  void add_model(ModelId model, TenantId tenant);
  /// It is in memory already. What does not fit is evicted.
  BookDecisions adopt(ModelId model, std::uint64_t bytes, Time now);
  /// No new ticket gets it, and it goes when the last has been closed.
  BookDecisions retire(ModelId model, Time now);
  /// If nobody uses it and it is not pinned.
  BookDecisions evict(ModelId model);
  /// Whether it stays though nobody uses it.
  void pin(ModelId model, bool pinned);

  BookDecisions open(TicketId ticket, ModelId model, Time now);
  BookDecisions prefetch(ModelId model, Time now);
  /// Whether it waits or holds.
  BookDecisions close(TicketId ticket, Time now);

  BookDecisions sized(ModelId model, std::uint64_t bytes, Time now);
  BookDecisions loaded(ModelId model, Time now);
  BookDecisions failed(ModelId model, const Error& error, Time now);
  BookDecisions freed(EvictionId eviction, Time now);
  /// Evicts what has outlived its time to live.
  BookDecisions expire(Time now);

  /// All that were ever wanted, and are not forgotten.
  std::vector<ModelId> models() const;
  State state(ModelId model) const;
  /// Of a model that is there; `remember` is for one that was there before a restart, or whose load
  /// took another time than the book could see.
  ModelUse use(ModelId model) const;
  void remember(ModelId model, const ModelUse& use);
  /// Tickets that hold it.
  std::uint64_t references(ModelId model) const;
  BookRoom room() const { return ledger_.room(); }
  BookRoom room_of(TenantId tenant) const { return ledger_.room_of(tenant); }
  BookEntry entry(ModelId model) const;
  /// When `expire` has something to do at the earliest.
  std::optional<Time> next_expiry() const;

 private:
  struct BookModel {
    TenantId tenant = 0;
    State state = State::absent;
    std::uint64_t bytes = 0;  ///< from sized on
    std::set<TicketId> waiting;
    std::uint64_t holding = 0;
    bool pinned = false;
    bool retired = false;
    std::uint64_t uses = 0;
    Time began{};      ///< to load
    Time last_used{};  ///< granted or closed
    std::chrono::nanoseconds load_time{0};
    std::optional<Error> trouble;  ///< of the last load
  };
  /// What loads that wait in front of one will take.
  struct Claims {
    std::uint64_t all = 0;
    std::map<TenantId, std::uint64_t> of;
  };

  bool is_idle(const BookModel& model) const;
  /// Whether `a` is evicted before `b`.
  bool goes_first(ModelId a, ModelId b, Time now) const;
  void want(ModelId id, BookModel& model, Time now, BookDecisions& out);
  void evict(ModelId id, BookModel& model, BookDecisions& out);
  /// Its load came to nothing.
  void refuse_all(BookModel& model, const Error& error, BookDecisions& out);
  /// Goes on with every load for which there is room, makes room, or refuses.
  void settle(Time now, BookDecisions& out);
  /// The models to evict so that there will be room; nothing: these would not be enough.
  std::optional<std::vector<ModelId>> victims(const BookModel& model, const Claims& before,
                                              Time now) const;
  Error no_room(const BookModel& model) const;
  BookModel* find(ModelId model);
  /// Of a retired model nothing is known once it is gone.
  void forget_retired(ModelId id);

  TierLimits limits_;
  RoomLedger ledger_;
  std::map<ModelId, BookModel> models_;
  std::map<TicketId, ModelId> tickets_;
  std::vector<ModelId> queue_;  ///< loads that wait for room
};

}  // namespace bellows
