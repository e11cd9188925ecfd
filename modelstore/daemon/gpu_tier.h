// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "modelstore/book/model_book.h"
#include "modelstore/daemon/gpu_closes.h"
#include "modelstore/daemon/gpu_copies.h"
#include "modelstore/daemon/memory_tier.h"

namespace bellows {

/// Who asked for models on GPUs, as TicketHost.
class GpuTicketHost {
 public:
  virtual ~GpuTicketHost() = default;
  virtual void granted(TicketId ticket, const GpuCopy& copy) = 0;
  virtual void refused(TicketId ticket, const Error& error) = 0;
  /// Whose the job is. Nothing: it has ended.
  virtual std::optional<TenantId> tenant_of(const std::string& job) const = 0;
};

/// A model that is on a GPU, on its way there, or failed to get there.
struct GpuModel {
  ModelId model = 0;
  ModelBook::State state = ModelBook::State::absent;
  BookEntry entry;
  std::uint64_t copied = 0;  ///< bytes, while it is loaded
  std::uint64_t references = 0;
};

/// Since the daemon began.
struct GpuCounts {
  std::uint64_t loads = 0;
  std::uint64_t failed = 0;  ///< except for lack of room
  std::uint64_t no_room = 0;
};

/// Is told of every change that a restarted daemon has to know.
class GpuWatcher {
 public:
  virtual ~GpuWatcher() = default;
  /// Null: it is there no more.
  virtual void copy_changed(const GpuPlace& place, ModelId model, const GpuCopy* copy) = 0;
  /// Calls `done` once nobody else has what is there no more.
  virtual void when_dropped(std::function<void()> done) = 0;
};

/// The memory of GPUs as a tier. Each GPU of each job has a book of its own, from the job's begin
/// to its end: who has a copy can write to it, so it never becomes another's.
class GpuTier final : private TicketHost, private GpuCopyHost {
 public:
  using Time = EventLoop::Clock::time_point;
  using Say = std::function<void(const std::string&)>;
  using Ended = std::function<void(const Status&)>;

  /// `limits`: of one job on one GPU.
  static Result<std::unique_ptr<GpuTier>> make(EventLoop& loop, const TierLimits& limits,
                                               const GpuCopyOptions& options,
                                               std::chrono::milliseconds room, MemoryTier& memory,
                                               const ModelRegistry& registry, Say say);

  void set_host(GpuTicketHost* host) { host_ = host; }
  void set_watcher(GpuWatcher* watcher) { watcher_ = watcher; }

  void open(TicketId ticket, const GpuPlace& place, ModelId model);
  void prefetch(const GpuPlace& place, ModelId model);
  void close(TicketId ticket);
  /// Of a ticket that waits. Nothing: it does not.
  std::optional<LoadProgress> progress(TicketId ticket) const;
  /// What was there before a restart.
  void adopt(const GpuPlace& place, ModelId model, GpuCopy copy);
  /// Gives back memory that the watcher has been told to drop. `eviction` 0: no book waits for it.
  void discard(const GpuPlace& place, Fd memory, std::uint64_t bytes, EvictionId eviction = 0);
  /// Gives back all that the job has, and calls `done` once: when it is free, or with unavailable
  /// when that takes too long.
  void end(const std::string& job, Ended done);
  /// Tells the watcher of all that is there.
  void tell_of_copies();

  /// Of the models of a job that is served.
  BookRoom room(const GpuPlace& place) const;
  std::vector<GpuModel> models_on(const GpuPlace& place) const;
  /// Bytes that jobs had which have ended, and that are not free yet.
  std::map<GpuPlace, std::uint64_t> left_behind() const;
  /// By the tenants of jobs.
  const std::map<TenantId, GpuCounts>& counts() const { return counts_; }

  /// Gives the time when to look again.
  Time tick(Time now);

 private:
  struct Shelf {
    explicit Shelf(const TierLimits& limits) : book(limits) {}
    ModelBook book;
    std::map<ModelId, GpuCopy> copies;
  };
  /// A copy that is being made.
  struct Making {
    GpuPlace place;
    ModelId model = 0;
    Time began{};
    Time deadline = Time::max();  ///< of its wait for room
    std::uint64_t after = 0;      ///< it is copied again when this has been closed; 0: it isn't
  };
  /// Memory that is given back. It is open here for as long as anybody else has it whom this daemon
  /// may have to wait for: who closes it last may hang in the driver.
  struct Closing {
    GpuPlace place;
    EvictionId eviction = 0;  ///< 0: of a job that has ended
    Fd memory;
    std::uint64_t bytes = 0;
  };
  struct Ending {
    std::string job;
    Ended done;
    Time deadline;
  };

  GpuTier(EventLoop& loop, const TierLimits& limits, const GpuCopyOptions& options,
          std::chrono::milliseconds room, MemoryTier& memory, const ModelRegistry& registry,
          Say say);

  void granted(TicketId source, const ModelMemory& memory) override;
  void refused(TicketId source, const Error& error) override;
  void copy_done(std::uint64_t source, GpuCopy copy) override;
  void copy_failed(std::uint64_t source, const Error& error) override;

  Shelf& shelf(const GpuPlace& place, ModelId model);
  void perform(const GpuPlace& place, BookDecisions decisions);
  void perform_one(const GpuPlace& place, const BookDecision& decision);
  void begin(const GpuPlace& place, ModelId model);
  void copy(const GpuPlace& place, ModelId model);
  void grant(const GpuPlace& place, TicketId ticket);
  /// Its ticket in memory, or 0.
  TicketId source_of(const GpuPlace& place, ModelId model) const;
  void forget(TicketId source);
  void fail(TicketId source, const Error& error);
  /// The driver has less than the budget: evicts the copy that was used longest ago, for another
  /// try. False: all are lent.
  bool make_way(TicketId source);
  void copy_again(std::uint64_t closed);
  void give_up(const GpuPlace& place, ModelId model, GpuCopy copy, EvictionId eviction);
  /// Closes it elsewhere than in the daemon's thread.
  void close_memory(std::uint64_t number);
  void closed(std::uint64_t number);
  bool is_free(const std::string& job) const;
  void count(const GpuPlace& place, std::uint64_t GpuCounts::*what);
  void finish_endings(Time now);
  static Time now() { return EventLoop::Clock::now(); }

  const TierLimits limits_;
  const std::chrono::milliseconds room_;
  MemoryTier& memory_;
  const ModelRegistry& registry_;
  Say say_;
  GpuTicketHost* host_ = nullptr;
  GpuWatcher* watcher_ = nullptr;
  GpuCopies copies_;
  std::unique_ptr<GpuCloses> closes_;
  std::map<GpuPlace, Shelf> shelves_;
  std::map<TicketId, std::pair<GpuPlace, ModelId>> wanted_;
  std::map<TicketId, Making> making_;  ///< by the ticket that it has in memory meanwhile
  std::map<std::uint64_t, Closing> closing_;
  std::list<Ending> endings_;
  std::map<TenantId, GpuCounts> counts_;
  std::deque<std::pair<GpuPlace, BookDecision>> to_do_;
  bool performing_ = false;
  TicketId next_source_ = std::uint64_t{1} << 63;  ///< no program's
  std::uint64_t next_close_ = 1;
};

}  // namespace bellows
