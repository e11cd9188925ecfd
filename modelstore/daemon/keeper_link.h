// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "common/child.h"
#include "common/event_loop.h"
#include "common/keeper/keeper_wire.h"
#include "modelstore/daemon/kept_record.h"

namespace bellows {

/// One thing that the keeper had.
struct KeptItem {
  std::uint64_t key = 0;
  KeptRecord record;
  Fd fd;  ///< none: the record alone
};

/// The daemon's line to its keeper. The keeper is this daemon's own and always takes what it is
/// told; so this is the one thing that the daemon waits for, for a second at most. One that died is
/// replaced and given all anew; one that is stuck is killed, and never waited for.
class KeeperLink {
 public:
  using Say = std::function<void(const std::string&)>;
  using Time = EventLoop::Clock::time_point;
  using Done = std::function<void()>;

  /// `command`: how to start a keeper.
  KeeperLink(EventLoop& loop, std::string socket, std::vector<std::string> command, Say say)
      : loop_(loop),
        socket_path_(std::move(socket)),
        command_(std::move(command)),
        say_(std::move(say)) {}

  /// Finds the keeper, or starts one. `put_all` is called when a new one has to learn all.
  Result<std::vector<KeptItem>> start(std::function<void()> put_all);

  /// Starts a keeper where there is none, once a second at most, and gives the time when to look
  /// again.
  Time tick(Time now);

  void put(std::uint64_t key, const KeptRecord& record, int fd);
  void drop(std::uint64_t key);
  /// Calls `done` once no keeper has what was dropped before: this one says so, and those before it
  /// have ended.
  void when_dropped(Done done);

 private:
  /// not_found: there is none.
  Status connect();
  Status start_keeper();
  Result<std::vector<KeptItem>> get_all();
  void on_answer();
  void call_answered();
  /// Has another take its place.
  void let_go();
  void kill_keeper();
  void send(const KeeperMessage& message, int fd);

  EventLoop& loop_;
  std::string socket_path_;
  std::vector<std::string> command_;
  Say say_;
  std::function<void()> put_all_;
  Fd socket_;
  EventLoop::Watch watch_;
  Time started_{};               ///< the last one, or it was tried
  Time start_at_ = Time::max();  ///< another
  /// Only when this daemon started it. It lives on when the daemon ends.
  std::optional<Child> child_;
  Fd adopted_;  ///< a pidfd of the one that was there before this daemon
  std::deque<Done> asked_;
  Time answer_by_ = Time::max();
  std::vector<Done> answered_;  ///< these wait for those that are dying
  /// Killed, but a driver in which one hangs may not let it go.
  std::list<Child> dying_;
  std::list<Fd> dying_adopted_;
};

}  // namespace bellows
