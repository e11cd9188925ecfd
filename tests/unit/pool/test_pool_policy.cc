// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "pool/policy/decider.h"

using namespace bellows::pool;
using std::chrono::seconds;
using State = PoolMember::State;
using Kind = SizeReason::Kind;

namespace {

constexpr SignalBook::Time kBegin{};

SignalBook::Time at(int second) { return kBegin + seconds(second); }

/// Members of a pool that aims at 10 calls for each.
struct World {
  PoolPolicy policy;
  SignalBook signals;
  MemberStarts started;
  std::vector<PoolMember> members;

  World() {
    policy.max = 20;
    policy.stabilisation = seconds(30);
    policy.targets = {{.metric = "calls", .per_member = 10}};
  }
  World& with(int ready, int unready = 0) {
    members.clear();
    for (int i = 0; i < ready + unready; ++i)
      members.push_back(
          {"m" + std::to_string(i), i < ready ? State::ready : State::unready, at(i - 1000)});
    return *this;
  }
  void all_say(double value, int second, const std::string& metric = "calls") {
    for (const auto& member : members)
      if (member.state == State::ready) signals.put(member.id, metric, value, at(second));
  }
};

}  // namespace

Test(pool_policy, reads_what_it_may_say, .timeout = 10) {
  const auto policy = read_pool_policy(
      "name: index\nmin: 2\nmax: 16\nburst_interval: 30\nvotes: largest\n"
      "targets:\n  - {metric: 'vllm:num_requests_waiting', per_member: 2.5, of: mean}\n"
      "thresholds:\n  - {metric: memory, up: 0.9, down: 0.4}\n",
      "pool.yaml");
  cr_assert(policy.ok());
  cr_assert_eq(policy->max, 16);
  cr_assert_eq(policy->burst_interval.count(), 30);
  cr_assert_eq(policy->targets.at(0).per_member, 2.5);
  cr_assert(policy->targets[0].of == TargetRule::Of::mean);
  cr_assert_eq(policy->thresholds.at(0).down, 0.4);
}

Test(pool_policy, says_what_is_wrong_and_where, .timeout = 10) {
  const auto complaint = [](const char* text) {
    const auto policy = read_pool_policy(text, "p");
    return policy.ok() ? std::string() : policy.error().text;
  };
  cr_assert(complaint("min: 2\n").find("needs max") != std::string::npos);
  cr_assert(complaint("max: 2\nmin: 3\n").starts_with("p:1:"));
  cr_assert(complaint("max: 2\nstael: 3\n").find("did you mean \"stale\"") != std::string::npos);
  for (const char* bad : {"nan", "inf", "-1", "0", "1e300", "x", ""})
    cr_assert(
        complaint(
            (std::string("max: 2\ntargets:\n  - {metric: a, per_member: ") + bad + "}\n").c_str())
            .starts_with("p:3:"),
        "%s", bad);
  cr_assert(
      complaint("max: 2\nthresholds:\n  - {metric: cpu, up: 0.5, down: 0.5}\n").find("swing") !=
      std::string::npos);
}

Test(signal_book, refuses_what_is_no_metric, .timeout = 10) {
  SignalBook book;
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {std::nan(""), inf, -inf, -1.0, 1e13})
    cr_assert_not(book.put("m", "calls", bad, at(0)));
  cr_assert_not(book.get("m", "calls", at(0), seconds(15)).has_value());
}

Test(signal_book, ages_by_time, .timeout = 10) {
  SignalBook book;
  cr_assert(book.put("m", "calls", 3, at(0)));
  for (int i = 0; i < 1000; ++i) (void)book.put("other", "calls", 3, at(0));
  cr_assert_eq(*book.get("m", "calls", at(15), seconds(15)), 3);
  cr_assert_not(book.get("m", "calls", at(16), seconds(15)).has_value());
}

Test(signal_book, takes_one_vote_in_an_interval, .timeout = 10) {
  SignalBook book;
  cr_assert(book.vote("m", 1, 1, at(0), seconds(60)));
  cr_assert_not(book.vote("m", 1, 2, at(59), seconds(60)));
  cr_assert_eq(book.take_votes().size(), 1u);
  cr_assert_not(book.vote("m", 1, 1, at(61), seconds(60)), "the same one again");
  cr_assert_eq(book.take_votes().size(), 0u);
  cr_assert(book.vote("m", 1, 3, at(61), seconds(60)));
}

Test(member_starts, keeps_the_last, .timeout = 10) {
  MemberStarts started;
  cr_assert_not(started.median().has_value());
  for (int i = 0; i < 100; ++i) started.add(MemberStarts::Seconds(1000));
  for (int i = 1; i <= 64; ++i) started.add(MemberStarts::Seconds(i));
  cr_assert_eq(started.median()->count(), 32);
  cr_assert_eq(started.p95()->count(), 61);
}

Test(decider, grows_at_once_and_shrinks_after_the_window, .timeout = 10) {
  World world;
  Decider decider(world.policy);
  world.with(2).all_say(40, 0);
  auto decision = decider.decide(at(0), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 8);
  cr_assert(decision.reason.kind == Kind::target);
  world.with(8);
  for (int second = 1; second <= 31; ++second) {
    world.all_say(5, second);
    decision = decider.decide(at(second), world.signals, world.started, world.members);
    cr_assert_eq(decision.wanted, second <= 30 ? 8 : 4, "%d", second);
  }
  const std::vector<std::string> newest{"m7", "m6", "m5", "m4"};
  cr_assert(decision.drain == newest);
}

Test(decider, waits_for_a_start_time_before_it_shrinks, .timeout = 10) {
  World world;
  world.started.add(MemberStarts::Seconds(99.5));
  Decider decider(world.policy);
  world.with(8);
  SizeDecision decision;
  for (int second = 0; second <= 100; ++second) {
    world.all_say(5, second);
    decision = decider.decide(at(second), world.signals, world.started, world.members);
    cr_assert_eq(decision.wanted, second < 100 ? 8 : 4, "%d", second);
    if (second == 50) cr_assert(decision.reason.kind == Kind::stabilising);
  }
}

Test(decider, does_not_shrink_on_missing_data, .timeout = 10) {
  World world;
  Decider decider(world.policy);
  world.with(8);
  for (int second = 0; second < 100; ++second) {
    world.all_say(1, second);
    world.signals.forget("m3");
    const auto decision = decider.decide(at(second), world.signals, world.started, world.members);
    cr_assert_eq(decision.wanted, 8);
    cr_assert(decision.reason.kind == Kind::missing_data);
    cr_assert_eq(decision.reason.missing, 1);
  }
}

Test(decider, takes_a_stale_metric_for_missing, .timeout = 10) {
  World world;
  Decider decider(world.policy);
  world.with(4).all_say(1, 0);
  SizeDecision decision;
  for (int second = 0; second < 100; ++second)
    decision = decider.decide(at(second), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 4);
  cr_assert(decision.reason.kind == Kind::missing_data);
}

Test(decider, counts_nobody_before_it_is_ready, .timeout = 10) {
  World world;
  Decider decider(world.policy);
  world.with(2, 6).all_say(15, 0);
  for (const auto& member : world.members)
    if (member.state == State::unready) {
      world.signals.put(member.id, "calls", 1000, at(0));
      (void)world.signals.vote(member.id, 1, 1, at(0), seconds(60));
    }
  auto decision = decider.decide(at(0), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 8, "it has 8 and may not shrink yet");
  cr_assert(decision.reason.kind == Kind::stabilising);
  for (int second = 1; second < 60; ++second) {
    world.all_say(5, second);
    decision = decider.decide(at(second), world.signals, world.started, world.members);
  }
  cr_assert_eq(decision.wanted, 1);
  const std::vector<std::string> only{"m1"};
  cr_assert(decision.drain == only, "who starts is left to start");
}

Test(decider, cancels_a_start_only_above_max, .timeout = 10) {
  World world;
  world.policy.max = 5;
  Decider decider(world.policy);
  world.with(3, 4).all_say(100, 0);
  const auto decision = decider.decide(at(0), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 5);
  const std::vector<std::string> starting{"m6", "m5"};
  cr_assert(decision.drain == starting);
}

Test(decider, bounds_votes, .timeout = 10) {
  World world;
  world.policy.targets.clear();
  world.policy.max = 6;
  Decider decider(world.policy);
  world.with(3);
  (void)world.signals.vote("m0", 2'000'000'000, 1, at(0), seconds(60));
  auto decision = decider.decide(at(0), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 4, "one member's vote counts for 1");
  world.with(6);
  for (const auto& member : world.members)
    (void)world.signals.vote(member.id, 100, 2, at(100), seconds(60));
  decision = decider.decide(at(100), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 6);
  for (const auto& member : world.members)
    (void)world.signals.vote(member.id, -100, 3, at(200), seconds(60));
  decision = decider.decide(at(200), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 1);
}

Test(decider, lets_a_vote_override_thresholds, .timeout = 10) {
  World world;
  world.policy.targets.clear();
  world.policy.thresholds = {{.metric = "cpu", .up = 0.8, .down = 0.5}};
  Decider decider(world.policy);
  world.with(4).all_say(1, 0, "cpu");
  (void)world.signals.vote("m0", -1, 1, at(0), seconds(60));
  auto decision = decider.decide(at(0), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 3);
  world.with(3).all_say(1, 59, "cpu");
  decision = decider.decide(at(59), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 3, "for the burst interval");
  world.all_say(1, 60, "cpu");
  decision = decider.decide(at(60), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 5);
  cr_assert(decision.reason.kind == Kind::threshold);
}

/// Whatever one of ten says, the pool has at most one member more and one less than with an honest
/// one in its place.
Test(decider, bounds_a_liar, .timeout = 10) {
  for (const double lie : {0.0, 1e-300, 1000.0, 1e12, 1e300, std::nan("")}) {
    World world;
    Decider decider(world.policy);
    world.with(10);
    SizeDecision decision;
    for (int second = 0; second < 100; ++second) {
      world.all_say(10, second);
      (void)world.signals.put("m4", "calls", lie, at(second));
      decision = decider.decide(at(second), world.signals, world.started, world.members);
      cr_assert(decision.wanted >= 9 && decision.wanted <= 11, "%g: %u", lie, decision.wanted);
    }
  }
}

Test(decider, keeps_what_the_last_keeper_had, .timeout = 10) {
  World world;
  Decider decider(world.policy);
  world.with(7);
  const auto decision = decider.decide(at(0), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 7);
  cr_assert(decision.drain.empty());
}

Test(decider, explains_every_kind, .timeout = 10) {
  for (const Kind kind : {Kind::steady, Kind::target, Kind::threshold, Kind::vote,
                          Kind::stabilising, Kind::panic, Kind::missing_data, Kind::bounds}) {
    SizeDecision decision;
    decision.reason.kind = kind;
    cr_assert_gt(explain(decision).size(), 10);
  }
}
