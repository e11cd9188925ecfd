// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "common/plain/handle.h"
#include "paramserver/server/fence_queue.h"
#include "paramserver/server/kept_seats.h"
#include "paramserver/server/learner_lines.h"
#include "paramserver/server/saver.h"
#include "paramserver/server/seats.h"
#include "paramserver/server/started_learners.h"
#include "paramserver/server/step_watch.h"

namespace bellows::ps {

struct ServerOptions {
  std::uint32_t learners = 8;  ///< at most so many at the same time
  std::uint32_t threads = 1;   ///< shards, if there are as many tensors
  Mode mode = Mode::asynchronous;
  std::uint32_t staleness = 8;       ///< in mode bounded: how far one may be ahead of the slowest
  std::uint32_t first_sequence = 0;  ///< the one before each learner's first
  std::optional<SaverOptions> save{};
  /// By bellows-ps: there is a place for each of these. Null: it has started none.
  const StartedLearners* started = nullptr;
};

/// bellows-ps: lets learners in and out, and has a thread for each shard. The first learner says
/// which tensors there are, how they begin and what is done with gradients; the others must agree.
class PsServer {
 public:
  using Say = std::function<void(const std::string&)>;

  /// `listener`: of SOCK_SEQPACKET, and without blocking.
  static Result<std::unique_ptr<PsServer>> make(EventLoop& loop, Fd listener, SeatKeeper keeper,
                                                const ServerOptions& options, Say say);
  ~PsServer();

  /// To be called after each turn of the loop, and at least when it says.
  EventLoop::Clock::time_point settle();
  /// No learner comes any more: the training is complete when those that are there have ended.
  void finish();
  /// Saves the training, for a later server to go on from, and ends. Learners get nothing applied
  /// any more.
  void stop();
  /// How it ended, once it has: with all saved, or for a job that goes on elsewhere.
  std::optional<Saver::End> over() const { return over_; }

 private:
  /// Somebody on a socket, before it is granted a seat and after.
  struct Peer {
    Fd socket;
    EventLoop::Watch watch;
    std::optional<std::uint32_t> learner{};
    std::optional<PsMessage> join{};  ///< whose initial weights are wanted
    Fd counts{};
    bool leaves = false;
    EventLoop::Clock::time_point until{};  ///< for who has no seat yet
  };

  PsServer(EventLoop& loop, SeatKeeper keeper, const ServerOptions& options, Say say);
  Status adopt(Inheritance left);
  ShardSteps shard_steps(std::uint32_t shard) const;
  Status begin();
  Status start_saver();
  Saved saved() const;
  void accept_peer();
  void on_message(std::uint64_t key);
  void take(std::uint64_t key, Peer& peer, const PsMessage& message, Fd passed);
  Status join(Peer& peer, const PsMessage& message, Fd counts);
  Status make_memory(const PsMessage& join, const Fd& counts);
  Result<bool> restore();
  Status begin_training();
  Status take_initial(Peer& peer, Fd weights);
  Status agree(const PsMessage& message, const Fd& counts) const;
  Status seat(Peer& peer);
  PsReport report() const;
  Status grant(const Peer& peer, const Seat& seat) const;
  std::optional<std::uint32_t> started_of(const Fd& process) const;
  bool became_another(std::uint32_t learner, const Fd& process) const;
  Status check_place(const Fd& process);
  bool is_about_to_end() const;
  void refuse(Peer& peer, const Error& error);
  void watch_process(std::uint32_t learner, std::shared_ptr<const Fd> process);
  void end(std::uint32_t learner);
  void on_fenced();
  void end_as(Saver::End end);
  void look_at_step(EventLoop::Clock::time_point now);
  bool finish_if_all_are_gone();
  void let_go(std::uint32_t learner, LearnerLines::Kind kind, const std::string& why);
  void say(LearnerLines::Kind kind, const std::string& text);

  EventLoop& loop_;
  ServerOptions options_;
  Say say_;
  Fd listener_;
  EventLoop::Watch listener_watch_;
  SeatKeeper keeper_;
  std::map<std::uint64_t, Peer> peers_;
  LearnerLines lines_;
  std::uint64_t next_peer_ = 1;
  /// A watch ends before its descriptor is closed.
  struct Process {
    std::shared_ptr<const Fd> fd;
    EventLoop::Watch watch;
    std::optional<std::uint32_t> started;  ///< the number of the learner that it is of
  };
  std::map<std::uint32_t, Process> processes_;

  std::optional<ServerMemory> memory_;
  RuleTerms terms_;
  Fd counts_;
  std::vector<TensorSpec> tensors_;
  TensorLayout layout_;
  std::optional<Seats> seats_;
  FenceQueue to_fence_;
  EventLoop::Watch fence_watch_;
  StepWatch step_watch_;
  std::unique_ptr<Cut> cut_;
  enum class Ending { none, finishes, stops };
  Ending ending_ = Ending::none;
  std::optional<Saver::End> over_;
  /// After what they use.
  std::vector<std::unique_ptr<ShardThread>> threads_;
  EventLoop::Watch saver_watch_;
  std::unique_ptr<Saver> saver_;
};

}  // namespace bellows::ps
