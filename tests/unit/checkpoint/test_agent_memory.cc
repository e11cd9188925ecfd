// SPDX-License-Identifier: Apache-2.0
// An agent, on a thread of the test, that gets no large pieces of memory: the save fails with a
// sentence, and the agent goes on.
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "checkpoint/include/bellows.h"
#include "checkpoint/system/memory_reserve.h"
#include "checkpoint/system/worker.h"
#include "tests/unit/checkpoint/agent_support.h"
#include "tests/unit/checkpoint/checkpoint_support.h"
#include "tests/unit/checkpoint/replaced_new.h"

namespace {

/// What operator new gives at most.
std::atomic<std::size_t> most{SIZE_MAX};

}  // namespace

void* allocate(std::size_t bytes) {
  return bytes > most ? nullptr : std::malloc(bytes ? bytes : 1);
}

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

constexpr std::size_t kArrays = 1500;

/// A program of one rank with its own agent.
class Program {
 public:
  Program() {
    options_.mode = AgentOptions::Mode::standalone;
    options_.socket_path = scratch_.path() + "/run/socket";
    options_.dir = scratch_.path() + "/checkpoints";
    options_.out_fd = null_.get();
    agent_ = std::thread([this] { exit_ = agent_main(options_); });
    cr_assert(eventually([&] { return std::filesystem::exists(options_.socket_path); }));
    setenv("BELLOWS_SOCKET", options_.socket_path.c_str(), 1);
    // Nobody told this agent the name of an attempt; it also lets in who is of its directory.
    setenv("BELLOWS_ATTEMPT", options_.dir.c_str(), 1);
    bellows_config config = BELLOWS_CONFIG_INIT;
    config.rank = 0;
    config.world = 1;
    cr_assert(eventually([&] { return bellows_init(&config, &b_) == BELLOWS_OK; }), "%s",
              bellows_error(b_));
    const std::uint64_t shape[] = {4};
    for (std::size_t i = 0; i < kArrays; ++i) {
      const std::string name = fmt::format("layer-{}", i);
      cr_assert(bellows_register(b_, name.c_str(), BELLOWS_U64, 1, shape, BELLOWS_REPLICATED, 0, 0,
                                 data_) == BELLOWS_OK);
    }
    std::uint64_t step = 0;
    cr_assert(bellows_restore(b_, &step) == BELLOWS_NO_CHECKPOINT);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (agent_.joinable()) end();
  }
  /// The agent's exit status.
  int end() {
    bellows_finalize(b_, 1);
    agent_.join();
    return exit_;
  }
  bellows_t* rank() const { return b_; }
  std::string checkpoints() const { return options_.dir; }

 private:
  ScratchDir scratch_;
  Fd null_{open("/dev/null", O_WRONLY | O_CLOEXEC)};
  AgentOptions options_;
  std::thread agent_;
  int exit_ = -1;
  bellows_t* b_ = nullptr;
  std::uint64_t data_[4] = {1, 2, 3, 4};
};

}  // namespace

Test(agent_memory, a_save_that_finds_none_fails_and_the_next_is_stored, .timeout = 120) {
  Program program;
  int failed = 0;
  std::uint64_t step = 1;
  cr_assert(bellows_save(program.rank(), step) == BELLOWS_OK);
  for (std::size_t limit = 16 << 10; limit < std::size_t{16} << 20; limit *= 2) {
    most = limit;
    const int rc = bellows_save(program.rank(), ++step);
    most = SIZE_MAX;
    const std::string why = bellows_error(program.rank());
    cr_assert(rc == BELLOWS_OK || has(why, "memory") || has(why, "bad_alloc"), "%zu: %d %s", limit,
              rc, why.c_str());
    failed += rc != BELLOWS_OK;
    cr_assert(verify_step(program.checkpoints(), step - 1).ok());
    cr_assert(bellows_save(program.rank(), step) == BELLOWS_OK, "%s",
              bellows_error(program.rank()));
  }
  cr_expect(failed >= 3 && failed < 10, "%d saves failed", failed);
  cr_expect(program.end() == 0);
}

Test(agent_memory, what_a_task_throws_is_told, .timeout = 30) {
  auto completions = Completions::make();
  cr_assert(completions.ok());
  Workers workers(1, **completions);
  std::vector<std::string> told;
  const auto note = [&](const Status& ran) { told.push_back(why(ran)); };
  workers.post({[] { throw std::bad_alloc(); }, note});
  workers.post({[] { throw std::runtime_error("what it was"); }, note});
  workers.post({[] {}, note});
  cr_assert(eventually([&] {
    (*completions)->run();
    return told.size() == 3;
  }));
  cr_expect(has(told[0], "out of memory"), "%s", told[0].c_str());
  cr_expect(has(told[1], "what it was"), "%s", told[1].c_str());
  cr_expect(told[2].empty());
}

Test(agent_memory, the_reserve_is_for_one_use_of_its_thread, .timeout = 30) {
  MemoryReserve reserve;
  cr_assert(reserve.full());
  most = 1000;
  const auto fails = [] {
    try {
      need_memory(2000);
    } catch (const std::bad_alloc&) {
      return true;
    }
    return false;
  };
  bool other = false;
  std::thread([&] { other = fails(); }).join();
  const bool full = reserve.full(), mine = fails();
  most = SIZE_MAX;
  cr_expect(other && full, "another thread took it");
  cr_expect(mine && !reserve.full());
  reserve.refill();
  cr_expect(reserve.full());
}
