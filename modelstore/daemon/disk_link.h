// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/child.h"
#include "common/event_loop.h"
#include "modelstore/daemon/model_memory.h"
#include "modelstore/disktier/disk_wire.h"

namespace bellows {

class DiskLink;

/// What the disk holds.
struct DiskHeld {
  std::uint64_t budget = 0;  ///< in bytes
  std::uint64_t used = 0;    ///< of it, by images and one that is being stored
  std::uint64_t images = 0;
  bool answers = false;  ///< else these are of when it last did
};

/// An image that is being read: while this lives, it is not evicted.
class DiskLease {
 public:
  DiskLease() = default;
  DiskLease(DiskLink* link, std::uint64_t number) : link_(link), number_(number) {}
  DiskLease(DiskLease&& other) noexcept { *this = std::move(other); }
  DiskLease& operator=(DiskLease&& other) noexcept;
  ~DiskLease() { end(); }
  void end();

 private:
  DiskLink* link_ = nullptr;
  std::uint64_t number_ = 0;
};

struct FoundImage {
  Fd file;
  ModelDigest digest;
  DiskLease lease;
};

/// A model that is to be stored, and of where it came from.
struct ToStore {
  const ModelMemory* memory = nullptr;
  std::string tenant;
  std::optional<ModelDigest> source;
  std::chrono::milliseconds load_time{0};
};

/// The daemon's line to bellows-model-disk, which waits for the disk. Never waits itself: what is
/// not answered in time is not there. A process that ends or hangs is replaced, and no load or
/// program notices.
class DiskLink {
 public:
  using Say = std::function<void(const std::string&)>;
  using Time = EventLoop::Clock::time_point;
  using Answer = std::function<void(std::optional<FoundImage>)>;

  /// `command`: how to start the process, which has `budget` bytes. `stall`: for how long a store
  /// may make no progress.
  DiskLink(EventLoop& loop, std::vector<std::string> command, std::uint64_t budget,
           std::chrono::milliseconds stall, Say say)
      : loop_(loop), command_(std::move(command)), stall_(stall), say_(std::move(say)) {
    held_.budget = budget;
  }
  DiskLink(const DiskLink&) = delete;
  DiskLink& operator=(const DiskLink&) = delete;

  /// An image that this tenant has stored, by a model's digest, or by that of its source. False:
  /// nobody can say now; else `answer` is called once, and later.
  bool find(const ModelDigest& digest, bool of_source, const std::string& tenant, Answer answer);
  /// Its bytes are not those of its digest.
  void damaged(const ModelDigest& digest);
  bool may_store() const { return socket_ && !storing_; }
  void store(const ToStore& what);

  DiskHeld held() const {
    DiskHeld held = held_;
    held.answers = socket_ && counted_ && !broken_ && !silent_;
    return held;
  }

  /// Starts the process where there is none, once a second at most; ends what is overdue.
  void tick(Time now);
  /// When to look again.
  Time next(Time now) const;

 private:
  friend class DiskLease;
  struct Question {
    Answer answer;
    Time deadline;
  };

  Status start_process();
  void on_message();
  void take(const DiskMessage& message, plain::Handle& passed);
  void take_found(const DiskMessage& message, plain::Handle& passed);
  void release(std::uint64_t number);
  bool send(const DiskMessage& message, int passed = -1);
  /// Has another take its place.
  void let_go(const std::string& why);
  void complain(const std::string& text);

  EventLoop& loop_;
  std::vector<std::string> command_;
  std::chrono::milliseconds stall_;
  Say say_;
  Fd socket_;
  EventLoop::Watch watch_;
  std::optional<Child> child_;
  std::list<Child> dying_;
  Time start_at_{};
  std::string complaint_;  ///< the last: it is not said again and again
  std::map<std::uint64_t, Question> questions_;
  std::uint64_t next_number_ = 1;
  DiskHeld held_;
  bool counted_ = false;  ///< by the process that there is now
  std::optional<std::uint64_t> storing_;
  Time store_deadline_{};
  bool broken_ = false;
  bool silent_ = false;  ///< it let a question's time run out: until it speaks, nobody waits for it
};

}  // namespace bellows
