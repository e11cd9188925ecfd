// SPDX-License-Identifier: Apache-2.0
// Learners and shards in threads of one process, for ThreadSanitizer, which Criterion does not run
// under.
#include <bit>

#include "tests/unit/paramserver/ps_world.h"

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
  }
  std::puts("each gradient was applied once");
  return 0;
}
