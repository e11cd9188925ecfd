// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "modelstore/book/model_book.h"
#include "modelstore/daemon/loads.h"
#include "modelstore/daemon/model_memory.h"
#include "modelstore/daemon/model_registry.h"

namespace bellows {

/// Who asked for models. Each ticket ends with one call of granted or refused; the first is still
/// to be closed.
class TicketHost {
 public:
  virtual ~TicketHost() = default;
  virtual void granted(TicketId ticket, const ModelMemory& memory) = 0;
  virtual void refused(TicketId ticket, const Error& error) = 0;
};

/// What happened since the daemon began.
struct TierCounts {
  std::uint64_t loads = 0;       ///< from their sources
  std::uint64_t disk_loads = 0;  ///< from images on the disk
  std::uint64_t peer_loads = 0;  ///< from other nodes
  std::uint64_t failed = 0;      ///< for other reasons than room
  std::uint64_t no_room = 0;     ///< loads that were refused
  std::uint64_t opens = 0;
  std::uint64_t hits = 0;       ///< opens of what was in memory
  std::uint64_t evictions = 0;  ///< also of what was removed
};

/// The memory of the node as a tier: carries out what its book decides.
class MemoryTier final : private LoadHost {
 public:
  using Time = EventLoop::Clock::time_point;
  using Say = std::function<void(const std::string&)>;

  /// `disk`: null where there is no disk tier; `peers`: where no nodes are asked. Both outlive this
  /// object.
  static Result<std::unique_ptr<MemoryTier>> make(EventLoop& loop, const TierLimits& limits,
                                                  const LoadOptions& options,
                                                  ModelRegistry& registry, DiskLink* disk,
                                                  PeerBook* peers, Say say);

  void set_watcher(ModelWatcher* watcher) { watcher_ = watcher; }
  void add_tenant(TenantId tenant, std::uint64_t budget) { book_.add_tenant(tenant, budget); }
  void add_model(ModelId model);
  /// What was in memory already. It can be had at once, since it is sealed, and its digest is
  /// computed again meanwhile.
  void adopt(ModelId model, ModelMemory memory);
  void retire(ModelId model);
  void pin(ModelId model, bool pinned);
  /// busy: it is in use, or on its way.
  Status evict(ModelId model);

  /// Computes the digest of its memory anew. An error: it is not in memory; else `done` is called
  /// once, and later. Its error corrupt: the digest is another now, and nobody gets this memory any
  /// more; busy: it was evicted meanwhile.
  using Verified = std::function<void(const Status&)>;
  Status verify(ModelId model, Verified done);

  /// `host` outlives the ticket.
  void open(TicketId ticket, ModelId model, TicketHost& host);
  void prefetch(ModelId model);
  void close(TicketId ticket);
  /// Of a ticket that waits. Nothing: it does not.
  std::optional<LoadProgress> progress(TicketId ticket) const;
  std::optional<LoadProgress> progress_of(ModelId model) const { return loads_.progress(model); }

  const ModelBook& book() const { return book_; }
  const TierCounts& counts() const { return counts_; }
  /// Nothing: there is no disk tier.
  std::optional<DiskHeld> disk() const {
    return disk_ ? std::optional(disk_->held()) : std::nullopt;
  }
  /// Null when it is not in memory.
  const ModelMemory* memory(ModelId model) const;
  /// Gives the time when to look again.
  Time tick(Time now);

 private:
  MemoryTier(EventLoop& loop, const TierLimits& limits, const LoadOptions& options,
             ModelRegistry& registry, DiskLink* disk, PeerBook* peers, Say say);

  void load_sized(ModelId model, std::uint64_t bytes) override;
  void load_done(ModelId model, ModelMemory memory, const LoadedFrom& from) override;
  void load_failed(ModelId model, const Error& error) override;
  void check_done(ModelId model, const Result<ModelDigest>& digest) override;
  void notice(const std::string& text) override { say_(text); }
  void discard(Fd memory) override;

  /// Carries decisions out one after another, also those that come up meanwhile.
  void perform(BookDecisions decisions);
  void perform_one(const BookDecision& decision);
  void take_memory(ModelId model, ModelMemory memory);
  void tell(ModelId model);
  void start_load(ModelId model);
  /// What was wrong with a model's bytes a moment ago: it is not read again and again. Null:
  /// nothing.
  const Error* broken(ModelId model);
  /// Has it stored when its turn comes, if the disk tier is for such models.
  void want_image(ModelId model, const LoadedFrom& from);
  /// Has the next of those stored that came from elsewhere and are in memory still.
  void store_next();
  void give_up_memory(ModelId model, EvictionId eviction);
  /// Its memory is wrong: whoever asks for it next has it loaded anew.
  void replace(ModelId model);
  void tell_verified(ModelId model, const Status& status);
  void grant(TicketId ticket);
  static Time now() { return EventLoop::Clock::now(); }

  ModelRegistry& registry_;
  DiskLink* disk_;
  const bool files_too_;
  Say say_;
  ModelWatcher* watcher_ = nullptr;
  ModelBook book_;
  TierCounts counts_;
  Loads loads_;
  std::unique_ptr<FreedMemory> freed_;
  /// One memory may be several models', when these are one tenant's and have the same bytes.
  std::map<ModelId, std::shared_ptr<ModelMemory>> memory_;
  std::map<TicketId, std::pair<ModelId, TicketHost*>> wanted_;
  std::map<ModelId, std::pair<Error, Time>> broken_;  ///< until when
  std::deque<std::pair<ModelId, LoadedFrom>> to_store_;
  std::map<ModelId, std::vector<Verified>> verifying_;
  std::deque<BookDecision> to_do_;
  bool performing_ = false;
};

}  // namespace bellows
