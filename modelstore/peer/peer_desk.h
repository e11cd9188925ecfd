// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/fd.h"
#include "common/munge/munge.h"
#include "common/plain/handle.h"
#include "common/result.h"
#include "modelstore/peer/lent_memory.h"
#include "modelstore/peerwire/peer_frame.h"
#include "modelstore/peerwire/peer_letter.h"
#include "modelstore/peerwire/peer_wire.h"

namespace bellows {

/// Answers other nodes, with what the daemon lends. One thread; all sockets are non-blocking.
class PeerDesk {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `listener`: of TCP. `daemon`: stays the caller's. `self`: this node's name. `slow`: in
  /// which a caller takes a MiB, or is done with its check; it may be waiting for room first.
  PeerDesk(Fd listener, int daemon, std::string self, Munge munge, std::chrono::milliseconds slow)
      : listener_(std::move(listener)),
        daemon_(daemon),
        self_(std::move(self)),
        munge_(std::move(munge)),
        slow_(slow) {}

  /// Until the daemon is gone, or says nonsense.
  void run();

 private:
  enum class State { reading, waiting, sending, checking, ending };
  struct Order;
  struct Caller {
    Fd socket;
    std::string address;
    std::string challenge;
    State state = State::reading;
    std::string in;
    std::string out;
    bool told_to_wait = false;  ///< by a sealed answer
    PeerQuestion question;
    Order* order = nullptr;
    std::uint64_t sent = 0;  ///< of the model
    std::uint64_t sent_before = 0;
    Time deadline;
  };
  using Callers = std::list<Caller>;
  using Key =
      std::tuple<PeerMode, std::string, std::string, ModelDigest, std::optional<ModelDigest>>;
  /// What callers who ask the same wait for.
  struct Order {
    Key key;
    std::uint64_t number = 0;
    bool refused = false;     ///< it lasts until all have their answer: who comes now has another
    bool on_its_way = false;  ///< the daemon said so
    std::uint64_t far = 0;
    std::uint64_t sent = 0;  ///< to all callers
    std::optional<PeerAnswer> lent;
    std::optional<LentMemory> memory;
    Time asked;
  };

  static Time now() { return std::chrono::steady_clock::now(); }
  void accept_caller();
  /// Who has not said who it is, and has been there for the longest.
  void drop_oldest_stranger();
  /// False: it is to be let go.
  bool serve(Caller& caller, short events);
  bool take(Caller& caller);
  bool take_question(Caller& caller, const std::string& sealed);
  bool take_got(Caller& caller);
  bool send_more(Caller& caller);
  void let_go(Callers::iterator caller);
  /// The order is nobody's any more.
  void end_order(Order* order);
  Order* order_for(const PeerQuestion& question);
  void answer(Caller& caller, PeerWord word, const std::string& text);
  /// False: munged seals nothing now.
  bool say_sealed(Caller& caller, PeerAnswer answer);
  void tell_to_wait(Caller& caller);
  /// Has those who wait for an order get it, as many as may at once.
  void start_sending(Order* order);
  /// Names a node that has a model to a part of those who wait.
  void share(Order* order, const std::string& node);
  std::vector<Caller*> waiting_for(const Order* order);
  std::size_t getting(const Order* order) const;
  bool is_full(const std::string& tenant) const;

  bool take_from_daemon();
  void take(const PeerMessage& message, plain::Handle& passed);
  void take_lent(Order* order, const PeerMessage& message, plain::Handle& passed);
  void refuse_all(Order* order, const std::string& why);
  Order* find_order(std::uint64_t number);
  void tell(const PeerMessage& message) { to_tell_.push_back(message); }
  void tell_all();
  void complain(const std::string& text);
  /// Lets go who is late, and tells who waits how far it is.
  void tick(Time now);
  void tell_progress();
  std::vector<pollfd> descriptors() const;

  Fd listener_;
  int daemon_;
  std::string self_;
  Munge munge_;
  std::chrono::milliseconds slow_;
  Callers callers_;
  std::list<Order> orders_;
  std::uint64_t next_order_ = 1;
  std::deque<PeerMessage> to_tell_;
  Time tell_at_{};
  Time complain_at_{};
};

}  // namespace bellows
