// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/include/bellows.h"

// A small training program that saves, for the tests that end it, and what must hold afterwards.
namespace bellows::fault_test {

inline constexpr int kWorld = 2;
/// What a rank that lost its agent or its partner, or whose save failed, exits with.
inline constexpr int kGaveUp = 7;
/// And one to which something was done that must never be.
inline constexpr int kWrong = 5;
/// The steps in the directory when the program starts; it keeps as many.
inline constexpr std::uint64_t kBaseSteps = 2;

struct Plan {
  bool async = false;
  int saves = 1;
  /// Of a save that failed, for any reason but a lost agent; 0: a rank gives up then.
  int retries = 0;
  /// The last step is saved a second time, which exchanges it for the one that is there.
  bool again = false;
  /// Steps divisible by this stay.
  std::uint64_t keep_every = 0;
  /// The oldest step has a name, and stays.
  bool named = false;
  /// Of the sharded array, 8 bytes each; a shard of many has more than one block.
  std::uint64_t rows = 1500;
};

/// What the processes of a program and the test tell each other, in shared memory.
struct Board {
  std::atomic<std::uint64_t> acknowledged[kWorld];  ///< newest step told to be committed
  std::atomic<std::uint64_t> copied[kWorld];        ///< newest step of a save_async that returned
  std::atomic<std::uint32_t> failed[kWorld];        ///< saves that returned an error
  std::atomic<std::int32_t> code[kWorld];           ///< of the last of them
  std::atomic<bool> joined[kWorld];
  std::atomic<bool> restored[kWorld];    ///< from here on there are saves only
  std::atomic<std::uint32_t> open;       ///< the agent's descriptors after the saves
  std::atomic<std::uint64_t> made;       ///< the agent's allocations since the ranks had restored
  std::atomic<std::uint64_t> fail_made;  ///< the one that fails; 0: none
  char text[512];                        ///< the last sentence of who failed
};

/// A directory with kBaseSteps committed steps and something a dead attempt left, again and again.
class Scene {
 public:
  explicit Scene(const char* agent = AGENT, const Plan& plan = {});
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  ~Scene();

  const std::string& root() const { return root_; }
  std::string checkpoints() const { return root_ + "/checkpoints"; }
  Board& board() { return *board_; }
  /// The file of the agent's program.
  const std::string& agent() const { return agent_; }

  /// The directory as at first, and an empty board.
  void reset();
  /// What rank 0 and rank 1 run: they begin together, or not at all. All plans of a scene have the
  /// rows, retention and names of its own.
  std::function<int()> rank(int rank, const Plan& plan);
  /// In the parent, when both ranks are started.
  void started();

  /// Holds what is left against what the board says, and restores it in a fresh process, which
  /// then saves. "" or what is wrong. All processes of the program must have ended; an agent that
  /// was not killed has committed what it was given.
  std::string check(bool agent_killed);

 private:
  std::string check_directory(std::uint64_t acknowledged) const;
  std::string check_names(bool leftovers) const;
  std::string check_steps() const;
  std::string check_latest() const;
  std::string check_restore(std::uint64_t acknowledged);

  std::string root_;
  std::string agent_;
  Plan plan_;
  Board* board_ = nullptr;
  int pipes_[kWorld][2];  ///< to each rank
};

}  // namespace bellows::fault_test
