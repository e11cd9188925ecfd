// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace bellows {

/// Ranks as a sentence names them: "rank 3 on n1", "ranks 0-3,5 on n1 and rank 6 on n2".
class RankNames {
 public:
  void add(std::uint32_t rank, const std::string& node) { ranks_[node].insert(rank); }
  std::size_t size() const;
  bool empty() const { return ranks_.empty(); }
  /// At most four nodes are named, and the rest is counted.
  std::string to_string() const;

 private:
  std::map<std::string, std::set<std::uint32_t>> ranks_;
};

}  // namespace bellows
