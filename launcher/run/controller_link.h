// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/controller_address.h"
#include "common/munge/munge.h"
#include "elastic/wire/message.h"
#include "launcher/base/side_question.h"
#include "launcher/machine/input.h"
#include "launcher/machine/machine.h"

namespace bellows {

/// How long a step takes, from the times at which the newest step was seen to change. A value type.
class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// The ranks compute, and this is their newest step.
  void note(std::uint64_t step, Clock::time_point now);
  /// They do not compute.
  void stop() { first_.reset(); }
  /// A mean in seconds over the steps since the last call; 0 while these are too few to tell.
  double take();

 private:
  struct Seen {
    std::uint64_t step;
    Clock::time_point at;
  };
  std::optional<Seen> first_;
  Seen last_{};
};

/// The launcher's line to bellowsd: reports the run every few seconds, from a process of its own so
/// that nothing waits for it, and passes orders on as requests to stop. A run goes on without it.
class ControllerLink {
 public:
  using Clock = std::chrono::steady_clock;
  /// The machine's client for orders.
  static constexpr std::uint64_t kClient = UINT64_MAX;

  ControllerLink(ControllerAddress address, uid_t slurm_user, Munge munge);

  void add_poll(std::vector<pollfd>& fds) const;
  /// Reports when it is time to. An order, once, when one has come.
  std::optional<input::StopRequest> look(const RunMachine& machine, Clock::time_point now);
  /// The machine's answer to an order.
  void take_reply(const std::string& json);
  /// Why bellowsd does not answer, or that it does again; once for each.
  std::optional<std::string> news();

 private:
  void note_steps(const RunMachine& machine, Clock::time_point now);
  RunReport report_of(const RunMachine& machine);
  void ask(const RunReport& report);
  std::optional<input::StopRequest> read(const std::string& answer, Clock::time_point now);
  void fail(const std::string& why, Clock::time_point now);

  ControllerAddress address_;  ///< what answered last comes first
  const uid_t slurm_user_;
  const Munge munge_;
  SideQuestion question_;
  Clock::time_point next_{};
  std::chrono::seconds patience_{2};  ///< until it tries again when there is no answer
  StepClock steps_;
  std::string order_;  ///< that the machine has taken up
  std::optional<OrderAnswer> answer_;
  std::string trouble_;
  std::optional<std::string> news_;
};

}  // namespace bellows
