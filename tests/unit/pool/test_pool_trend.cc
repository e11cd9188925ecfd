// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "pool/policy/decider.h"
#include "pool/policy/need_history.h"
#include "tests/unit/support/pool_world.h"

using namespace bellows::pool;
using std::chrono::seconds;
using Kind = SizeReason::Kind;

namespace {

constexpr int kStart = 8;   ///< s, that a member takes to start
constexpr int kPool = 100;  ///< ready members

std::optional<NeedHistory::Line> line_of(const std::function<double(int)>& need) {
  NeedHistory history;
  for (int second = 0; second < 100; ++second) history.add(at(second), need(second), seconds(24));
  return history.line(seconds(24));
}

/// A hundred members that take so long to start, and decisions about what they need.
struct Play : World {
  Play() : decider((policy.max = 1000, policy.stabilisation = seconds(0), policy)) {
    started.add(seconds(kStart));
    with(kPool);
  }
  SizeDecision decide(int second, double needed) {
    all_say(needed * 10 / kPool, second);
    return decider.decide(at(second), signals, started, members);
  }
  Decider decider;
};

}  // namespace

Test(need_history, sees_a_line, .timeout = 10) {
  const auto rising = line_of([](int second) { return 50 + 0.5 * second; });
  cr_assert(rising.has_value());
  cr_expect_float_eq(rising->slope, 0.5, 1e-9);
  cr_expect_float_eq(rising->last, 99.5, 1e-9);
  const auto falling = line_of([](int second) { return 50 - 0.25 * second; });
  cr_assert(falling.has_value());
  cr_expect_float_eq(falling->slope, -0.25, 1e-9);
}

Test(need_history, takes_no_step_for_a_line, .timeout = 10) {
  for (int when = 76; when <= 99; ++when) {
    cr_expect_not(line_of([&](int second) { return second < when ? 10 : 90; }).has_value(), "%d",
                  when);
    cr_expect_not(line_of([&](int second) { return second < when ? 90 : 10; }).has_value(), "%d",
                  when);
  }
}

Test(need_history, takes_no_scatter_for_a_line, .timeout = 10) {
  std::mt19937 random(1);
  int lines = 0;
  for (int i = 0; i < 1000; ++i)
    lines +=
        line_of([&](int) { return 50 + static_cast<double>(random() % 1000) / 1000; }).has_value();
  cr_assert_eq(lines, 0);
}

Test(need_history, takes_little_for_no_line, .timeout = 10) {
  NeedHistory history;
  for (int second = 0; second <= 20; ++second) {
    history.add(at(second), second, seconds(24));
    cr_expect_not(history.line(seconds(24)).has_value(), "%d", second);
  }
  NeedHistory rare;
  for (int i = 0; i < 4; ++i) rare.add(at(8 * i), i, seconds(24));
  cr_expect_not(rare.line(seconds(24)).has_value());
}

Test(need_history, has_the_largest_of_its_window, .timeout = 10) {
  NeedHistory history;
  for (const auto& [second, need] : {std::pair(0, 9), {1, 7}, {2, 5}, {3, 6}})
    history.add(at(second), need, seconds(2));
  cr_expect_eq(history.largest(seconds(2)), 7, "what is older is forgotten");
  cr_expect_eq(history.largest(seconds(1)), 6);
  cr_expect_eq(history.largest(seconds(2), -1), 6, "what was 7 two seconds ago is 5 now");
}

Test(decider, starts_members_ahead_of_a_steady_rise, .timeout = 10) {
  Play play;
  for (int second = 0; second <= 60; ++second) {
    const auto decision = play.decide(second, 100 + second);
    if (second < 3 * kStart - 3) cr_expect_eq(decision.wanted, 100u + second);
    if (second < 3 * kStart) continue;
    cr_expect_eq(decision.wanted, 100u + second + kStart);
    cr_expect(decision.reason.kind == Kind::trend);
  }
}

Test(decider, follows_a_steady_fall, .timeout = 10) {
  Play play;
  for (int second = 0; second <= 60; ++second) {
    const auto decision = play.decide(second, 100 - second);
    if (second >= 3 * kStart) cr_expect_eq(decision.wanted, 100u - second, "%d", second);
  }
}

Test(decider, a_fall_does_not_shorten_what_the_owner_set, .timeout = 10) {
  Play play;
  play.policy.stabilisation = seconds(60);
  play.decider = Decider(play.policy);
  for (int second = 0; second <= 90; ++second) {
    const auto decision = play.decide(second, 100 - second / 2.0);
    if (second < 60) cr_expect_eq(decision.wanted, 100u, "%d", second);
    if (second > 61) cr_expect_eq(decision.wanted, 100u - (second - 60) / 2, "%d", second);
  }
}

Test(decider, does_not_go_beyond_a_step, .timeout = 10) {
  Play play;
  std::uint32_t most = 0;
  for (int second = 0; second <= 100; ++second)
    most = std::max(most, play.decide(second, second < 40 ? 50 : 150).wanted);
  cr_assert_eq(most, 150);
}

Test(decider, sees_no_trend_where_members_are_silent, .timeout = 10) {
  Play play;
  for (int second = 0; second <= 60; ++second) {
    play.all_say((100.0 + second) * 10 / kPool, second);
    play.signals.forget("m7");
    const auto decision = play.decider.decide(at(second), play.signals, play.started, play.members);
    cr_expect(decision.reason.kind != Kind::trend, "%d", second);
  }
}

/// One of ten that raises or lowers its metric steadily, from what is believed at least to what is
/// believed at most.
Test(decider, bounds_a_liar_with_a_trend, .timeout = 10) {
  for (const double change : {-1.0, 1.0}) {
    World world;
    world.policy.stabilisation = seconds(0);
    world.started.add(seconds(kStart));
    Decider decider(world.policy);
    world.with(10);
    for (int second = 0; second < 100; ++second) {
      world.all_say(10, second);
      const double lie = 10 + change * std::clamp((second - 50) * 20 / 24.0 - 10, -10.0, 10.0);
      (void)world.signals.put("m4", "calls", lie, at(second));
      const auto decision = decider.decide(at(second), world.signals, world.started, world.members);
      cr_expect(decision.wanted >= 9 && decision.wanted <= 12, "%d: %u", second, decision.wanted);
    }
  }
}
