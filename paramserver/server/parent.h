// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "common/fd.h"
#include "common/keeper/kept.h"
#include "paramserver/server/learner_board.h"
#include "paramserver/server/learner_processes.h"

namespace bellows::ps {

/// The process that users start: keeps the memory, starts a server again when it is killed, and has
/// learners, if it shall start some.
class Parent {
 public:
  using Say = std::function<void(const std::string&)>;
  /// In a process of its own. What it returns is the status of that.
  using Serve = std::function<int(Fd keeper)>;

  static constexpr int kFailed = 1;
  /// To a server: it ends when all learners have, with the training complete.
  static constexpr int kFinish = SIGUSR2;
  /// To a server: it saves, and ends. No signal that others send.
  static int stop_signal() { return SIGRTMIN; }

  /// `signals`: a signalfd for SIGTERM and SIGINT, on which this ends all, and for kFinish.
  /// `in_job`: SIGTERM comes from Slurm to all processes of a step; the server knows what follows.
  Parent(EventLoop& loop, const Fd& signals, bool in_job, Serve serve, Say say);

  /// Has learners. To be called before run.
  void set_learners(LearnerOptions options, const LearnerBoard& board);
  /// The exit status.
  int run();

 private:
  bool start_server();
  void on_keeper();
  void on_server_end(int code);
  void on_signal();
  void pass_on();
  void look_at_learners();
  void end_server(int signal);
  int wait_for_server() const;
  bool too_many_ends();
  bool failed(const char* what) const;

  EventLoop& loop_;
  const Fd& signals_;
  bool in_job_;
  Serve serve_;
  Say say_;
  KeptDescriptors kept_;
  Fd keeper_;
  EventLoop::Watch keeper_watch_;
  pid_t server_ = -1;
  int told_ = 0;            ///< the signal with which the server was told to end
  bool announced_ = false;  ///< Slurm's SIGTERM has come
  bool signalled_ = false;  ///< another has, to end all
  EventLoop::Clock::time_point pass_on_at_ = EventLoop::Clock::time_point::max();
  std::vector<EventLoop::Clock::time_point> ends_;
  std::optional<LearnerProcesses> learners_;
  std::optional<int> code_;  ///< what comes of it, once all have ended
};

}  // namespace bellows::ps
