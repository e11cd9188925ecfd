// SPDX-License-Identifier: Apache-2.0
// Each gradient is applied once, whoever pushes and reads at the same time.
#include <criterion/criterion.h>

#include <thread>

#include "tests/unit/paramserver/ps_world.h"

using namespace bellows;
using namespace bellows::ps_test;

namespace {

void push_all(World& world, std::uint32_t learners, std::uint32_t count) {
  std::vector<std::thread> threads;
  for (std::uint32_t l = 0; l < learners; ++l)
    threads.emplace_back([&world, l, count] {
      Learner learner;
      world.attach(l, &learner);
      for (std::uint32_t q = 0; q < count; ++q) {
        push_mark(learner, l);
        for (std::uint32_t s = 0; s < world.geometry().shards; ++s) learner.pull(s);
      }
      cr_assert(learner.drain(20000));
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Test(ps_ledger, each_gradient_is_applied_once, .timeout = 60) {
  World world(2, {128, 64});
  world.join(0, 1, 0);
  world.join(1, 1, 0);
  world.start();
  push_all(world, 2, 20000);
  world.expect_sums({{0, 0, 20000}, {1, 0, 20000}});
}

Test(ps_ledger, staleness_is_what_came_between_pull_and_update, .timeout = 60) {
  World world(2, {64});
  world.join(0, 1, 0);
  world.join(1, 1, 0);
  Learner fast, slow;
  world.attach(0, &fast);
  world.attach(1, &slow);
  fast.pull(0);
  slow.pull(0);
  world.start();
  for (int i = 0; i < 3; ++i) push_mark(fast, 0);
  cr_assert(fast.drain(20000));
  world.stop();
  push_mark(slow, 1);
  // Too late to be of what was pushed, and before that is applied.
  slow.pull(0);
  world.start();
  cr_assert(slow.drain(20000));
  world.stop();
  const ShardWords& words = world.control().shard(0);
  cr_expect_eq(words.gradients.load(), 4);
  cr_expect_eq(words.staleness.load(), 0 + 1 + 2 + 3);
  cr_expect_eq(words.most_staleness.load(), 3);
}

Test(ps_ledger, a_version_that_is_not_there_yet_is_not_believed, .timeout = 60) {
  World world(1, {64});
  world.join(0, 1, 0);
  Learner learner;
  world.attach(0, &learner);
  world.pin_of(0, 0) = Current{1000, 0}.word();
  world.start();
  push_mark(learner, 0);
  cr_assert(learner.drain(20000));
  world.stop();
  cr_expect_eq(world.control().shard(0).gradients.load(), 1);
  cr_expect_eq(world.control().shard(0).most_staleness.load(), 0);
}

Test(ps_ledger, also_where_sequences_wrap, .timeout = 60) {
  World world(2, {64, 64});
  const std::uint32_t base = 0xffff'ff00;
  world.join(0, 1, base);
  world.join(1, 1, base);
  world.start();
  push_all(world, 2, 1000);
  world.expect_sums({{0, base, 1000}, {1, base, 1000}});
}

Test(ps_ledger, learners_in_step_are_summed_together, .timeout = 60) {
  World world(2, {128, 64}, Mode::synchronous);
  world.join(0, 1, 0);
  world.join(1, 1, 0);
  world.start();
  push_all(world, 2, 2000);
  world.expect_sums({{0, 0, 2000}, {1, 0, 2000}});
  const Current current = world.control().current(0);
  cr_expect_eq(current.version, 2000);
}
