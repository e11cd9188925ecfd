// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/peerwire/peer_frame.h"
#include "modelstore/peerwire/peer_letter.h"
#include "modelstore/peerwire/peer_nodes.h"

namespace bellows {

/// A connection to another node's bellows-model-peer. Each call has a deadline.
class PeerConnection {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// unavailable: it does not take the connection until then.
  static Result<PeerConnection> open(const PeerNode& node, Time deadline);

  Status send(std::string_view bytes, Time deadline);
  /// unavailable: nothing whole came until then, or the other side is gone.
  Result<PeerLetter> receive(Time deadline);
  /// At least one byte, and at most so many. io: none came until then, or never will.
  Result<std::size_t> read_some(unsigned char* to, std::uint64_t most, Time deadline);

 private:
  explicit PeerConnection(Fd socket) : socket_(std::move(socket)) {}
  bool wait(short events, Time deadline) const;

  Fd socket_;
  std::string in_;  ///< what came behind a frame
};

/// How one node asks others for a model.
struct PeerCall {
  Munge munge{""};
  PeerQuestion question;                       ///< without its numbers and addressee
  std::chrono::milliseconds first{1000};       ///< for the first sealed word
  std::chrono::milliseconds patience{30000};   ///< without any progress over there
  std::chrono::milliseconds longest{1800000};  ///< for all of the wait
  std::function<void()> progress;
};

struct PeerOffer {
  PeerAnswer answer;
  PeerConnection connection;
};

/// Waits while the node has the model loaded, or gives it to others. unavailable: it does not
/// answer; busy: it did, and is late with this model; denied: what answers is no bellows-model-peer
/// of this cluster.
Result<PeerOffer> ask_peer(const PeerNode& node, PeerMode mode, const PeerCall& call);

/// A model's bytes as they come from a peer, for several threads that hash them: who wants the next
/// piece reads it, and the others wait for their turn. io: they come too slowly, or no more.
class PeerStream {
 public:
  explicit PeerStream(PeerConnection& connection) : connection_(connection) {}

  Status read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes);

 private:
  Status read_now(unsigned char* to, std::uint64_t bytes);

  PeerConnection& connection_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::uint64_t at_ = 0;
  bool failed_ = false;
  std::string why_ = "its bytes came no further";
  /// Of the present window: what came in it, and for how long it was waited for.
  std::uint64_t came_ = 0;
  std::chrono::steady_clock::duration waited_{0};
};

}  // namespace bellows
