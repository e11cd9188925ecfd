// SPDX-License-Identifier: Apache-2.0
// What a saver reads of all shards is one state of the training, and stays as it is while they go
// on.
#include <criterion/criterion.h>

#include <atomic>
#include <thread>

#include "tests/unit/paramserver/ps_world.h"

using namespace bellows;
using namespace bellows::ps_test;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

std::vector<std::uint32_t> numbers(const float* from, std::uint64_t count) {
  std::vector<std::uint32_t> all(count);
  std::memcpy(all.data(), from, count * sizeof all[0]);
  return all;
}

/// What learners of sequence base + 1 and on, all of one incarnation, give together.
class Sums {
 public:
  Sums(std::uint32_t base, std::uint64_t elements) : base_(base), elements_(elements) {}

  /// The sum of so many of each learner. Counts may only grow from call to call.
  const std::vector<std::uint32_t>& of(const std::vector<std::uint64_t>& counts) {
    sum_.resize(elements_);
    done_.resize(counts.size());
    for (std::uint32_t l = 0; l < counts.size(); ++l)
      for (; done_[l] < counts[l]; ++done_[l])
        for (std::uint64_t i = 0; i < elements_; ++i)
          sum_[i] += mark(l, base_ + static_cast<std::uint32_t>(done_[l]) + 1, i);
    return sum_;
  }

 private:
  std::uint32_t base_;
  std::uint64_t elements_;
  std::vector<std::uint64_t> done_;
  std::vector<std::uint32_t> sum_;
};

std::vector<std::uint64_t> counts_at(World& world, std::uint32_t shard, Current at) {
  std::vector<std::uint64_t> counts;
  for (std::uint32_t l = 0; l < world.geometry().learners; ++l)
    counts.push_back(world.control().record(shard, at.buffer, l).total.load());
  return counts;
}

/// That all shards have the same gradients of everybody in a cut, in weights and state.
void expect_one_cut(World& world, const std::vector<Current>& pins, Sums& sums) {
  const auto counts = counts_at(world, 0, pins[0]);
  const std::vector<std::uint32_t>& all = sums.of(counts);
  std::uint64_t begin = 0;
  for (std::uint32_t s = 0; s < pins.size(); ++s) {
    cr_assert(counts_at(world, s, pins[s]) == counts, "shard %u has other gradients", s);
    const std::uint64_t elements = world.control().shard(s).count;
    const std::uint32_t state = world.control().record(s, pins[s].buffer).state;
    const auto weights = numbers(world.weights().buffer(s, pins[s].buffer), elements);
    const auto states = numbers(world.states().buffer(s, state), elements);
    for (std::uint64_t i = 0; i < elements; ++i)
      cr_assert(weights[i] == all[begin + i] && states[i] == all[begin + i]);
    begin += elements;
  }
}

std::uint64_t versions(World& world) {
  std::uint64_t sum = 0;
  for (std::uint32_t s = 0; s < world.geometry().shards; ++s)
    sum += world.control().current(s).version;
  return sum;
}

}  // namespace

Test(ps_cut, is_one_state_of_the_training_and_stays_as_it_is, .timeout = 120) {
  // Where sequences wrap.
  const std::uint32_t base = 0xffff'f000;
  World world(2, {128, 64, 64});
  world.join(0, 1, base);
  world.join(1, 1, base);
  world.start();
  std::atomic<bool> ends = false;
  std::vector<std::thread> threads;
  for (std::uint32_t l = 0; l < 2; ++l)
    threads.emplace_back([&world, &ends, l] {
      Learner learner;
      world.attach(l, &learner);
      while (!ends) push_mark(learner, l);
      cr_assert(learner.drain(20000));
    });
  Sums sums(base, 256);
  for (int i = 0; i < 100; ++i) {
    world.cut().begin(Cut::Then::goes_on);
    const auto pins = world.cut().wait(steady_clock::now() + seconds(20));
    cr_assert(pins);
    const std::uint64_t before = versions(world);
    expect_one_cut(world, *pins, sums);
    // While shards go on.
    cr_assert(eventually([&] { return versions(world) > before + 30; }));
    expect_one_cut(world, *pins, sums);
    world.cut().end();
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
}

Test(ps_cut, that_holds_stops_all_until_it_ends, .timeout = 60) {
  World world(1, {64, 64});
  world.join(0, 1, 0);
  world.start();
  Learner learner;
  world.attach(0, &learner);
  for (int i = 0; i < 100; ++i) push_mark(learner, 0);
  world.cut().begin(Cut::Then::holds);
  const auto pins = world.cut().wait(steady_clock::now() + seconds(20));
  cr_assert(pins);
  Sums sums(0, 128);
  expect_one_cut(world, *pins, sums);
  const std::uint64_t version = world.control().current(0).version;
  while (learner.sequence() < version + 2) push_mark(learner, 0);
  // It goes on as soon as it may, and not before.
  cr_expect_not(learner.drain(100));
  cr_expect_eq(world.control().current(0).version, version);
  world.cut().end();
  cr_expect(learner.drain(20000));
  world.expect_sums({{0, 0, static_cast<std::uint32_t>(version + 2)}});
}

Test(ps_cut, is_taken_of_learners_that_are_in_step, .timeout = 60) {
  World world(2, {64, 64}, Mode::synchronous);
  world.join(0, 1, 0);
  world.join(1, 1, 0);
  world.start();
  Learner one, other;
  world.attach(0, &one);
  world.attach(1, &other);
  Sums sums(0, 128);
  for (int i = 0; i < 50; ++i) {
    push_mark(one, 0);
    world.cut().begin(Cut::Then::goes_on);
    // The step waits for the other, and the cut for nobody.
    const auto pins = world.cut().wait(steady_clock::now() + seconds(20));
    cr_assert(pins);
    expect_one_cut(world, *pins, sums);
    push_mark(other, 1);
    cr_assert(one.drain(20000));
    expect_one_cut(world, *pins, sums);
    world.cut().end();
  }
}

Test(ps_cut, leaves_a_learner_out_that_is_fenced, .timeout = 60) {
  World world(2, {64, 64});
  world.join(0, 1, 0);
  world.join(1, 1, 0);
  world.start();
  Learner good;
  world.attach(0, &good);
  for (int i = 0; i < 20; ++i) {
    push_mark(good, 0);
    world.cut().begin(Cut::Then::goes_on);
    if (i == 10) world.slot_of(1).published = 77;
    cr_assert(world.cut().wait(steady_clock::now() + seconds(20)));
    world.cut().end();
  }
  cr_assert(good.drain(20000));
  world.expect_sums({{0, 0, 20}});
}

Test(ps_cut, that_was_given_up_leaves_the_next_one_whole, .timeout = 60) {
  World world(1, {64, 64});
  world.join(0, 1, 0);
  world.start();
  Learner learner;
  world.attach(0, &learner);
  Sums sums(0, 128);
  for (int i = 0; i < 200; ++i) {
    push_mark(learner, 0);
    world.cut().begin(Cut::Then::goes_on);
    (void)world.cut().wait(steady_clock::now());
    world.cut().end();
    world.cut().begin(Cut::Then::goes_on);
    const auto pins = world.cut().wait(steady_clock::now() + seconds(20));
    cr_assert(pins);
    expect_one_cut(world, *pins, sums);
    world.cut().end();
  }
}
