// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/program_rank.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/checkpoint_support.h"

namespace bellows::fault_test {

namespace fs = std::filesystem;
using checkpoint_test::eventually;

namespace {

constexpr std::uint64_t kWeights = 700;
constexpr std::uint64_t kRandom = 40;

/// The value of element `i` at a step.
constexpr std::uint64_t value_at(std::uint64_t step, std::uint64_t i) { return step * 1000003 + i; }

/// The arrays of one rank, one of each layout.
class Arrays {
 public:
  Arrays(int rank, int world, std::uint64_t rows)
      : rank_(static_cast<std::uint64_t>(rank)),
        rows_(rows),
        first_(world == 1 || rank == 0 ? 0 : rows / 3),
        x_(world == 1  ? rows
           : rank == 0 ? rows / 3
                       : rows - rows / 3),
        weights_(kWeights),
        random_(kRandom) {}

  int add_to(bellows_t* b) {
    const int rc = bellows_register(b, "x", BELLOWS_U64, 1, &rows_, BELLOWS_SHARDED, first_,
                                    x_.size(), x_.data());
    if (rc != BELLOWS_OK) return rc;
    for (int i = 0; i < 3; ++i) {
      constexpr const char* kNames[] = {"weights", "random", "epoch"};
      constexpr std::int32_t kLayouts[] = {BELLOWS_REPLICATED, BELLOWS_PER_RANK, BELLOWS_VALUE};
      std::uint64_t* const data[] = {weights_.data(), random_.data(), &epoch_};
      bellows_array array = BELLOWS_ARRAY_INIT;
      array.name = kNames[i];
      array.dtype = BELLOWS_U64;
      array.ndims = i < 2 ? 1 : 0;
      array.shape = i == 0 ? &kWeights : &kRandom;
      array.layout = kLayouts[i];
      array.data = data[i];
      if (const int more = bellows_register_array(b, &array); more != BELLOWS_OK) return more;
    }
    return rc;
  }
  void train_to(std::uint64_t step) {
    for_each([&](std::uint64_t* at, std::uint64_t value) { *at = value; }, step);
  }
  bool are_of(std::uint64_t step) {
    bool same = true;
    for_each([&](const std::uint64_t* at, std::uint64_t value) { same = same && *at == value; },
             step);
    return same;
  }

 private:
  template <class Use>
  void for_each(const Use& use, std::uint64_t step) {
    for (std::uint64_t i = 0; i < x_.size(); ++i) use(&x_[i], value_at(step, first_ + i));
    for (std::uint64_t i = 0; i < kWeights; ++i) use(&weights_[i], ~value_at(step, i));
    for (std::uint64_t i = 0; i < kRandom; ++i) use(&random_[i], value_at(step, i) ^ (rank_ << 32));
    use(&epoch_, step + 77);
  }

  std::uint64_t rank_, rows_, first_;
  std::vector<std::uint64_t> x_, weights_, random_;
  std::uint64_t epoch_ = 0;
};

/// A rank's life.
class Rank {
 public:
  Rank(int rank, int world, const Plan& plan, Board& board)
      : rank_(rank), board_(board), arrays_(rank, world, plan.rows) {
    bellows_config config = BELLOWS_CONFIG_INIT;
    config.rank = rank;
    config.world = world;
    config.keep = kBaseSteps;
    config.keep_every = plan.keep_every;
    rc_ = bellows_init(&config, &b_);
    if (rc_ == BELLOWS_OK) rc_ = arrays_.add_to(b_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  bool good() const { return rc_ >= 0; }
  std::uint64_t step() const { return step_; }

  void restore() {
    rc_ = bellows_restore(b_, &step_);
    if (rc_ == BELLOWS_OK && !arrays_.are_of(step_)) {
      fail(fmt::format("the arrays are not those of step {}", step_));
    }
  }
  /// Returns when the step is committed, or has failed too often.
  void save(int retries) {
    arrays_.train_to(++step_);
    save_again(retries);
  }
  void save_again(int retries) {
    do {
      rc_ = bellows_save(b_, step_);
      note_failure();
    } while (may_go_on() && rc_ != BELLOWS_OK && retries-- > 0);
    if (rc_ == BELLOWS_OK) board_.acknowledged[rank_] = step_;
  }
  void save_async(bool go_on) {
    arrays_.train_to(++step_);
    rc_ = bellows_save_async(b_, step_);
    // The copy is the agent's: what becomes of these is nobody's business.
    arrays_.train_to(~step_);
    if (rc_ == BELLOWS_OK) board_.copied[rank_] = step_;
    note_failure();
    learn_saved();
    // The failure is that of an earlier save.
    if (go_on && may_go_on()) rc_ = BELLOWS_OK;
  }
  void wait(bool go_on) {
    do {
      rc_ = bellows_wait(b_);
      note_failure();
    } while (go_on && rc_ != BELLOWS_OK && may_go_on());
    const std::uint64_t saved = learn_saved();
    if (rc_ == BELLOWS_OK && board_.failed[rank_] == 0 && saved != step_) {
      fail(fmt::format("step {} is saved after the wait for {}", saved, step_));
    }
  }
  void lose_partner() { rc_ = BELLOWS_ERR_IO; }
  /// The exit status of a rank that comes to its end, or gives up.
  int leave() {
    if (!good()) note(bellows_error(b_));
    const int before = rc_;
    rc_ = bellows_finalize(b_, good() ? 1 : 0);
    if (broken_ || before == BELLOWS_ERR_INVALID) return kWrong;
    return before >= 0 && rc_ == BELLOWS_OK ? 0 : kGaveUp;
  }

 private:
  std::uint64_t learn_saved() {
    std::uint64_t saved = 0;
    if (bellows_saved_step(b_, &saved) == BELLOWS_OK) board_.acknowledged[rank_] = saved;
    return saved;
  }
  void note_failure() {
    if (rc_ == BELLOWS_OK) return;
    ++board_.failed[rank_];
    board_.code[rank_] = rc_;
    note(bellows_error(b_));
  }
  // After a save that failed: the agent is there, and what was acknowledged still restores.
  bool may_go_on() {
    if (rc_ == BELLOWS_OK || rc_ == BELLOWS_ERR_AGENT) return rc_ == BELLOWS_OK;
    const std::uint64_t acknowledged = std::max(board_.acknowledged[0].load(), kBaseSteps);
    const auto newest = newest_step(getenv("BELLOWS_CHECKPOINT_DIR"));
    if (newest && newest->skipped.empty() && newest->step >= acknowledged) return true;
    fail(fmt::format("after a save that failed, step {} does not restore", acknowledged));
    return false;
  }
  void fail(const std::string& text) {
    rc_ = BELLOWS_ERR_CORRUPT;
    broken_ = true;
    note(text);
  }
  void note(const std::string& text) {
    if (text.empty()) return;
    std::snprintf(board_.text, sizeof board_.text, "rank %d: %s", rank_, text.c_str());
  }

  int rank_;
  Board& board_;
  Arrays arrays_;
  bellows_t* b_ = nullptr;
  int rc_ = 0;
  bool broken_ = false;
  std::uint64_t step_ = 0;
};

/// Whether the partner has come this far.
bool meet(int mine, int theirs) {
  char byte = 'x';
  return write(theirs, &byte, 1) == 1 && read(mine, &byte, 1) == 1;
}

// Those of the agent that owns the directory. Waits for the last save's threads to close theirs.
void count_descriptors(Board& board, const std::string& dir) {
  const auto owner = read_file(dir + "/owner.json", 4096);
  const auto at = owner ? owner->find("node.") : std::string::npos;
  if (at == std::string::npos) return;
  const std::string fds = fmt::format("/proc/{}/fd", std::atoi(owner->c_str() + at + 5));
  const auto count = [&] {
    std::error_code code;
    return static_cast<std::uint32_t>(
        std::distance(fs::directory_iterator(fds, code), fs::directory_iterator()));
  };
  const std::uint32_t most = board.open;
  // The agent still tidies up and makes buffers: without a number to reach, one that stays.
  std::uint32_t last = 0;
  int same = 0;
  eventually(
      [&] {
        const std::uint32_t now = count();
        same = now == last ? same + 1 : 0;
        last = now;
        return most == 0 ? same > 20 : now <= most;
      },
      2000);
  board.open = last;
}

void make_saves(Rank& rank, const Plan& plan) {
  const bool go_on = plan.retries > 0;
  for (int i = 0; i < plan.saves && rank.good(); ++i) {
    if (plan.async) rank.save_async(go_on);
    if (!plan.async) rank.save(plan.retries);
  }
  if (plan.async && rank.good()) rank.wait(go_on);
  if (plan.again && rank.good()) rank.save_again(plan.retries);
  // Training goes on after a failure.
  if (plan.async && go_on && rank.good()) rank.save(plan.retries);
}

}  // namespace

int run_rank(int number, const Plan& plan, Board& board, int mine, int theirs) {
  char byte = 'x';
  // The second rank starts when the first has its agent.
  if (number == 1 && read(mine, &byte, 1) != 1) return kGaveUp;
  Rank rank(number, kWorld, plan, board);
  if (!rank.good()) return rank.leave();
  board.joined[number] = true;
  const bool both = number == 0 ? meet(mine, theirs) : write(theirs, &byte, 1) == 1;
  if (!both) {
    rank.leave();
    return kGaveUp;
  }
  rank.restore();
  board.restored[number] = rank.good();
  if (rank.good() && !meet(mine, theirs)) rank.lose_partner();
  make_saves(rank, plan);
  if (rank.good() && meet(mine, theirs)) {
    if (number == 0) count_descriptors(board, getenv("BELLOWS_CHECKPOINT_DIR"));
    (void)meet(mine, theirs);
  }
  return rank.leave();
}

int restore_and_save(const Plan& plan, Board& board, const std::string& dir,
                     std::uint64_t acknowledged) {
  const auto fails = [&](const std::string& why) {
    if (!why.empty()) std::snprintf(board.text, sizeof board.text, "%s", why.c_str());
    return 1;
  };
  const auto there = list_steps(dir);
  Rank rank(0, 1, plan, board);
  if (rank.good()) rank.restore();
  if (!rank.good()) {
    rank.leave();
    return fails("");
  }
  board.restored[0] = true;
  const std::uint64_t step = rank.step();
  if (step < acknowledged) return fails(fmt::format("step {} comes back", step));
  if (!there || std::find(there->begin(), there->end(), step) == there->end()) {
    return fails(fmt::format("step {} comes back, which was not committed", step));
  }
  const auto names = list_names(dir);
  for (const std::string& name : *names) {
    if (name.starts_with(".tmp-")) return fails(name + " is still there after a start");
  }
  rank.save(0);
  return rank.leave();
}

}  // namespace bellows::fault_test
