// SPDX-License-Identifier: Apache-2.0
// Learners and shards in threads of one process, for ThreadSanitizer, which Criterion does not run
// under.
#include <bit>

#include "common/event_loop.h"
#include "common/listen_at.h"
#include "paramserver/include/bellows_ps.h"
#include "paramserver/server/ps_server.h"
#include "tests/unit/paramserver/ps_world.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::ps_test;

namespace {

void push_all(World& world, std::uint32_t count) {
  std::uint32_t read[2];
  std::vector<std::thread> threads;
  for (std::uint32_t l = 0; l < 2; ++l)
    threads.emplace_back([&, l] {
      Learner learner;
      world.attach(l, &learner);
      for (std::uint32_t q = 0; q < count; ++q) {
        push_mark(learner, l);
        // All that it reads is written by nobody meanwhile.
        for (std::uint32_t s = 0; s < world.geometry().shards; ++s) {
          const float* weights = learner.pull(s);
          std::uint32_t sum = 0;
          for (std::uint64_t i = 0; i < world.geometry().elements / 4; ++i)
            sum += std::bit_cast<std::uint32_t>(weights[i]);
          read[l] = sum;
        }
      }
      require(learner.drain(20000), "not all is applied");
    });
  for (std::thread& thread : threads) thread.join();
}

void push_ones(const std::string& socket, unsigned count) {
  constexpr std::uint64_t kCounts[] = {64, 64};
  const std::vector<float> zeroes(64);
  const float* const initial[] = {zeroes.data(), zeroes.data()};
  bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  config.socket = socket.c_str();
  config.rate = 1;
  // The second has four rows.
  constexpr std::uint64_t kWidths[] = {0, 16}, kRows[] = {0, 1, 2, 3};
  config.width = kWidths;
  bellows_ps_t* ps;
  require(bellows_ps_join(&config, kCounts, initial, 2, &ps) == 0, "no seat");
  for (unsigned q = 0; q < count; ++q) {
    require(bellows_ps_begin(ps) == 0, "no room for a gradient");
    for (std::size_t t = 0; t < 2; ++t)
      std::fill_n(static_cast<float*>(bellows_ps_gradient(ps, t)), 64, 1.0F);
    require(bellows_ps_gradient_rows(ps, 1, kRows, 4) == 0, "no rows");
    require(bellows_ps_push(ps, 1) == 0 && bellows_ps_pull(ps) == 0, "no push, or no pull");
  }
  require(bellows_ps_drain(ps) == 0 && bellows_ps_pull(ps) == 0, "not all is applied");
  require(*bellows_ps_weights(ps, 1) <= -static_cast<float>(count), "a gradient is missing");
  require(bellows_ps_leave(ps) == 0, "not left");
}

/// All of bellows-ps, and learners that come and go while others push.
void come_and_go(Mode mode) {
  const ScratchDir scratch;
  const std::string socket = scratch.path() + "/ps";
  auto loop = EventLoop::make();
  auto listener = listen_at(socket, 0600);
  require(loop.ok() && listener.ok(), "no socket");
  ServerOptions options;
  options.threads = 2;
  options.mode = mode;
  auto server = PsServer::make(**loop, std::move(*listener), SeatKeeper(Fd()), options,
                               [](const std::string&) {});
  require(server.ok(), "no server");
  std::atomic<bool> ends{false};
  std::thread serving([&] {
    while (!ends)
      (*loop)->run_once(
          std::min((*server)->settle(), EventLoop::Clock::now() + std::chrono::milliseconds(20)));
  });
  std::vector<std::thread> learners;
  for (unsigned l = 0; l < 3; ++l)
    learners.emplace_back([&] {
      for (unsigned i = 0; i < 10; ++i) push_ones(socket, 50);
    });
  for (std::thread& learner : learners) learner.join();
  ends = true;
  serving.join();
}

}  // namespace

int main() {
  for (const Mode mode : {Mode::asynchronous, Mode::synchronous}) {
    World world(2, {128, 64}, mode);
    world.join(0, 1, 0xffff'ff00);
    world.join(1, 1, 0xffff'ff00);
    world.start();
    push_all(world, 2000);
    world.stop();
    world.expect_sums({{0, 0xffff'ff00, 2000}, {1, 0xffff'ff00, 2000}});
    come_and_go(mode);
  }
  std::puts("each gradient was applied once");
  return 0;
}
