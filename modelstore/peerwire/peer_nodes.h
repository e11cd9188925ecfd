// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "modelstore/digest/model_digest.h"

namespace bellows {

/// A node whose bellows-modeld can be asked.
struct PeerNode {
  std::string name;
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const PeerNode&) const = default;
};

inline constexpr std::size_t kMostPeers = 16384;
inline constexpr std::size_t kMostPeerName = 63;

/// Letters, digits, '-', '_' and '.', no more than kMostPeerName of them.
bool is_peer_name(std::string_view name);

/// As Slurm writes nodes, "n[1-3,07],login", each of which may have an address of its own:
/// "n4=10.0.0.4" or "n5=10.0.0.5:7000". invalid: says why.
Result<std::vector<PeerNode>> parse_peer_nodes(std::string_view list, std::uint16_t port);

/// How good a home this node is for what comes from this source: the node with the most is it. The
/// same on all nodes, whatever else their lists have. Two nodes have the same once in 2^64 times,
/// and then the names decide.
Result<std::uint64_t> peer_weight(const ModelDigest& source, std::string_view name);

/// The `most` best homes for a source, the best first.
Result<std::vector<PeerNode>> best_homes(const std::vector<PeerNode>& nodes,
                                         const ModelDigest& source, std::size_t most);

/// Whether `one` is a better home than `other`.
Result<bool> is_better_home(const ModelDigest& source, std::string_view one,
                            std::string_view other);

}  // namespace bellows
