// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/child.h"
#include "common/event_loop.h"
#include "modelstore/daemon/memory_tier.h"
#include "modelstore/daemon/model_registry.h"
#include "modelstore/peerwire/peer_letter.h"
#include "modelstore/peerwire/peer_wire.h"

namespace bellows {

/// The daemon's line to bellows-model-peer, which lends other nodes what they ask for: models that
/// were configured and come from afar, by their names. Never waits; a process that ends or hangs is
/// replaced, and what it had borrowed is given back.
class PeerLink final : private TicketHost {
 public:
  using Say = std::function<void(const std::string&)>;
  using Time = EventLoop::Clock::time_point;

  /// `command`: how to start the process, which gets the socket that listens on `port`.
  PeerLink(EventLoop& loop, MemoryTier& tier, const ModelRegistry& registry,
           std::vector<std::string> command, std::uint16_t port, Say say)
      : loop_(loop),
        tier_(tier),
        registry_(registry),
        command_(std::move(command)),
        port_(port),
        say_(std::move(say)) {}
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  /// Starts the process where there is none: a second after it ended, and later each time that it
  /// does not stay.
  void tick(Time now);
  /// When to look again.
  Time next(Time now) const;

 private:
  struct Asked {
    std::uint64_t number = 0;  ///< of the process's question
    ModelId model = 0;
    PeerQuestion question;
    bool granted = false;
    std::uint64_t read = 0;   ///< bytes of it, when it was last asked
    std::uint64_t signs = 0;  ///< that its load gets on
  };

  void granted(TicketId ticket, const ModelMemory& memory) override;
  void refused(TicketId ticket, const Error& error) override;

  Status start_process();
  void on_message();
  void take(const PeerMessage& message);
  void ask(const PeerMessage& message);
  void done(std::uint64_t number);
  void tell_progress(std::uint64_t number);
  void refuse(std::uint64_t number, const std::string& why);
  /// Whether the model is what the question is for, now that it is known.
  bool is_asked_for(const PeerQuestion& question, ModelId model, const ModelDigest& digest) const;
  std::map<TicketId, Asked>::iterator find(std::uint64_t number);
  void send(const PeerMessage& message, int passed = -1);
  void start_later(Time now);
  /// Has another take its place.
  void let_go(const std::string& why);
  void complain(const std::string& text);

  EventLoop& loop_;
  MemoryTier& tier_;
  const ModelRegistry& registry_;
  std::vector<std::string> command_;
  std::uint16_t port_;
  /// Nothing is taken from it here. While there is no process, who connects waits, and no program
  /// of a job gets the port.
  Fd listener_;
  Say say_;
  Fd socket_;
  EventLoop::Watch watch_;
  std::optional<Child> child_;
  std::list<Child> dying_;
  Time start_at_{}, started_{};
  std::chrono::seconds pause_{1};  ///< before the next start
  std::string complaint_;          ///< the last: it is not said again and again
  std::map<TicketId, Asked> asked_;
  TicketId next_ticket_ = TicketId{1} << 62;  ///< no program's, and no copy's on a GPU
  bool broken_ = false;
};

}  // namespace bellows
