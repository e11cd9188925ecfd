// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "checkpoint/agent/rank_link.h"
#include "common/fd.h"

namespace bellows {

/// The ranks that are connected to an agent, and the socket where they come. Main thread only.
class RankLinks {
 public:
  explicit RankLinks(Fd listener) : listener_(std::move(listener)) {}

  /// Adds what poll must wait for.
  void add_descriptors(std::vector<int>* out) const;
  /// Lets in the rank that waits at the listener, if one does and it is this user's.
  void accept_from(const std::set<int>& readable);

  bool empty() const { return links_.empty(); }
  RankLink* find(std::uint64_t id) const;
  RankLink* at(int fd) const;
  /// Whether a rank of this number has joined and is not gone.
  bool has(std::int64_t rank) const;
  /// Adds one as if it had come to the listener.
  RankLink& add(Fd socket);
  /// Forgets them; their sockets are closed.
  void clear() { links_.clear(); }
  void drop_gone();
  /// Those that are gone and have nothing left to be written.
  std::vector<int> dead() const;
  std::unique_ptr<RankLink> remove(int fd);

  template <class Do>
  void each(Do act) const {
    for (const auto& [fd, link] : links_) act(*link);
  }
  template <class Do>
  void each_joined(Do act) const {
    for (const auto& [fd, link] : links_) {
      if (link->page) act(*link);
    }
  }

  /// The newest step that a rank has published.
  std::optional<std::uint64_t> newest_step() const;

 private:
  void accept();

  Fd listener_;
  std::map<int, std::unique_ptr<RankLink>> links_;
  std::uint64_t next_ = 1;
  bool no_descriptors_ = false;  ///< for one more rank: not before the next look at the others
};

}  // namespace bellows
