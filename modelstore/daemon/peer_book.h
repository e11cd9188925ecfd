// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "modelstore/digest/model_digest.h"
#include "modelstore/peerwire/peer_letter.h"
#include "modelstore/peerwire/peer_nodes.h"

namespace bellows {

/// Where nodes ask one another, and how this one does.
struct PeerOption {
  std::string program;                    ///< "": they don't
  std::vector<PeerNode> nodes;            ///< with this one
  std::string self;                       ///< this node's name
  std::string munge_socket;               ///< "": the usual one
  std::chrono::milliseconds first{1000};  ///< for a node's first word
};

/// Which nodes to ask for what, and which of them were of no use lately.
class PeerBook {
 public:
  using Say = std::function<void(const std::string&)>;
  using Time = std::chrono::steady_clock::time_point;

  PeerBook(const PeerOption& option, Say say) : option_(option), say_(std::move(say)) {}

  const PeerOption& option() const { return option_; }
  /// The best homes for what comes from this source, without this node and those that are of no use
  /// now. Only one that is better than this node is to load it.
  std::vector<std::pair<PeerMode, PeerNode>> whom_to_ask(const ModelDigest& source, Time now);
  /// Null: it is none of the nodes.
  const PeerNode* find(const std::string& name) const;

  /// It did not answer, or what it said makes no sense: it is not asked for anything for a while.
  void lost(const std::string& name, const std::string& why, Time now);
  /// What it gave from this source was wrong, or came no further: it isn't asked for that.
  void failed(const std::string& name, const ModelDigest& source, const std::string& why, Time now);
  /// It is alive, but did not come to an end with what is from this source: it isn't asked for that
  /// for a while.
  void late(const std::string& name, const ModelDigest& source, const std::string& why, Time now);
  void worked(const std::string& name) { said_.erase(name); }

 private:
  /// Once, until it works again.
  void say(const std::string& name, const std::string& text);
  void forget_old(Time now);

  PeerOption option_;
  Say say_;
  std::map<std::string, Time> lost_;                            ///< until when
  std::map<std::pair<std::string, ModelDigest>, Time> failed_;  ///< the same
  std::map<std::string, std::string> said_;
};

}  // namespace bellows
