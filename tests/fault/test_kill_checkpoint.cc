// SPDX-License-Identifier: Apache-2.0
// kill -9 of ranks and agents at swept moments of a save: what was acknowledged stays, nothing
// half-written is ever restored, and nobody hangs.
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>

#include "checkpoint/include/bellows.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/library_support.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

constexpr int kWorld = 2;
constexpr std::uint64_t kValues = 50000;
// What a rank that lost its agent or a partner exits with.
constexpr int kGaveUp = 7;

/// The newest step each rank was told is committed; shared with the ranks.
struct Acknowledged {
  std::atomic<std::uint64_t> step[kWorld];
};

std::uint64_t value_at(std::uint64_t step, std::uint64_t i) { return step * 1000003 + i; }

/// Restores, checks every value, then saves step after step until it is killed or left alone.
int rank_main(int rank, Acknowledged* acknowledged) {
  bellows_config config = BELLOWS_CONFIG_INIT;
  config.rank = rank;
  config.world = kWorld;
  config.keep = 2;
  bellows_t* b = nullptr;
  if (bellows_init(&config, &b) != BELLOWS_OK) return kGaveUp;
  const std::uint64_t first = rank == 0 ? 0 : kValues / 3;
  const std::uint64_t rows = rank == 0 ? kValues / 3 : kValues - kValues / 3;
  std::vector<std::uint64_t> data(rows);
  if (bellows_register(b, "x", BELLOWS_U64, 1, &kValues, BELLOWS_SHARDED, first, rows,
                       data.data()) != BELLOWS_OK) {
    return 1;
  }
  std::uint64_t step = 0;
  const int rc = bellows_restore(b, &step);
  if (rc == BELLOWS_ERR_AGENT) return kGaveUp;
  if (rc < 0) return 2;
  // Never older than what a rank was told before.
  if (step < acknowledged->step[0] || step < acknowledged->step[1]) return 3;
  for (std::uint64_t i = 0; rc == BELLOWS_OK && i < rows; ++i) {
    if (data[i] != value_at(step, first + i)) return 4;
  }
  while (true) {
    ++step;
    for (std::uint64_t i = 0; i < rows; ++i) data[i] = value_at(step, first + i);
    const int saved = bellows_save(b, step);
    if (saved == BELLOWS_ERR_AGENT || saved == BELLOWS_ERR_IO) return kGaveUp;
    if (saved != BELLOWS_OK) return 5;
    acknowledged->step[rank] = step;
  }
}

class Program {
 public:
  Program() {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    acknowledged_ = new (page) Acknowledged{};
  }

  void start() {
    const std::string before = place_.attempt();
    for (int rank = 0; rank < kWorld; ++rank) {
      ranks_[rank] = fork();
      if (ranks_[rank] != 0) continue;
      alarm(60);
      _exit(rank_main(rank, acknowledged_));
    }
    const std::uint64_t old = acknowledged_->step[0];
    cr_assert(eventually([&] { return acknowledged_->step[0] > old && place_.attempt() != before; },
                         20000),
              "no step was saved after a restart");
  }
  void kill_rank(int rank) { kill(ranks_[rank], SIGKILL); }
  void kill_agent() {
    if (place_.agent() > 0) kill(place_.agent(), SIGKILL);
  }
  /// All ranks must end soon, killed or having given up; then the agent does too.
  void await_end(const char* what, int round) {
    for (pid_t pid : ranks_) {
      const int ended = await_rank(pid);
      cr_assert(ended != kHangs, "%s, round %d: a rank hangs", what, round);
      cr_assert(ended == 200 + SIGKILL || ended == kGaveUp,
                "%s, round %d: a rank ends with status %d", what, round, ended);
    }
    cr_assert(eventually([&] { return !place_.agent_lives(); }, 20000),
              "%s, round %d: the agent stays", what, round);
  }
  void check_store(const char* what, int round) {
    auto newest = newest_step(place_.checkpoints());
    cr_assert(newest.ok() && newest->step.has_value(), "%s, round %d: no step is left", what,
              round);
    cr_expect(newest->skipped.empty(), "%s, round %d: %s", what, round,
              newest->skipped.empty() ? "" : newest->skipped[0].error.c_str());
    for (const auto& step : acknowledged_->step) {
      cr_expect(*newest->step >= step, "%s, round %d: step %lu was acknowledged, %lu is the newest",
                what, round, step.load(), *newest->step);
    }
  }

 private:
  Place place_;
  Acknowledged* acknowledged_;
  pid_t ranks_[kWorld] = {};
};

// Moments spread over several saves: no two rounds hit the same one.
void pause_for(int round) {
  std::this_thread::sleep_for(std::chrono::microseconds(round * 389 % 9973));
}

void run_rounds(const char* what, int rounds, const std::function<void(Program&)>& fault) {
  Program program;
  for (int round = 0; round < rounds; ++round) {
    program.start();
    pause_for(round);
    fault(program);
    program.await_end(what, round);
    program.check_store(what, round);
  }
}

}  // namespace

Test(kill, an_agent_while_saving, .timeout = 240) {
  run_rounds("agent killed", 25, [](Program& p) { p.kill_agent(); });
}

Test(kill, a_rank_while_saving, .timeout = 240) {
  run_rounds("rank killed", 25, [](Program& p) { p.kill_rank(0); });
}

Test(kill, all_ranks_at_once, .timeout = 240) {
  run_rounds("ranks killed", 25, [](Program& p) {
    p.kill_rank(0);
    p.kill_rank(1);
  });
}

Test(kill, everything_at_once, .timeout = 240) {
  run_rounds("all killed", 25, [](Program& p) {
    p.kill_agent();
    p.kill_rank(0);
    p.kill_rank(1);
  });
}
