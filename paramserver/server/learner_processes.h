// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/child.h"
#include "common/event_loop.h"
#include "paramserver/server/learner_board.h"
#include "paramserver/server/learner_descendants.h"
#include "paramserver/server/learner_output.h"

namespace bellows::ps {

/// Of the environment of each learner.
inline constexpr std::string_view kSocketVariable = "BELLOWS_PS_SOCKET";

struct LearnerOptions {
  std::vector<std::string> command;
  std::string socket;
  std::uint32_t learners = 1;
  std::uint32_t restarts = 3;       ///< of each learner, in a row without an update
  std::optional<LearnerRun> run{};  ///< what their processes are known by
};

/// How many learners an environment has GPUs for; 0: it names none.
std::uint32_t gpus_in(const char* const* environment);

/// NAME=VALUE: what a learner gets. Of the lists of devices it sees one device.
std::vector<std::string> learner_environment(const char* const* environment,
                                             const LearnerOptions& options, std::uint32_t learner);

/// The learners that bellows-ps starts, each in a process group of its own. One that fails is
/// started again, without the others, when nothing that it has started is left.
class LearnerProcesses {
 public:
  using Clock = EventLoop::Clock;
  using Say = std::function<void(const std::string&)>;

  LearnerProcesses(EventLoop& loop, LearnerOptions options, const LearnerBoard& board, Say say);

  /// To be called first, and after each turn of the loop, and at least when it says.
  Clock::time_point settle();
  /// All have ended with 0.
  bool have_finished() const;
  /// What a learner failed with that is not started any more: the status of a shell.
  const std::optional<int>& failure() const { return failure_; }

  /// None is started any more, and how one ends does not count.
  void start_none() { starts_ = false; }
  /// Also SIGTERM, and 5 seconds later SIGKILL.
  void end();
  bool are_gone() const;
  /// Passes on what they have written, but takes no longer than 3 seconds.
  void close();

 private:
  struct One {
    std::uint32_t number = 0;
    std::optional<Child> child{};
    Fd process{};
    EventLoop::Watch watch{};
    std::vector<std::unique_ptr<LearnerOutput>> output{};
    std::string last{};  ///< how it ended
    int code = 0;
    std::uint32_t failures = 0;  ///< in a row without an update
    Clock::time_point again{};
    bool finished = false;
  };

  void start(One& one);
  void on_end(One& one);
  void end_descendants();
  void look_again(One& one);
  void give_up(const One& one, const std::string& text);

  EventLoop& loop_;
  LearnerOptions options_;
  const LearnerBoard& board_;
  Say say_;
  std::vector<std::unique_ptr<One>> all_;
  std::vector<std::uint32_t> ended_;  ///< what they have started may be left
  std::optional<int> failure_;
  bool starts_ = true;
  bool ends_ = false;
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace bellows::ps
