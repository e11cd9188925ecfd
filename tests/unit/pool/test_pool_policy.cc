// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "pool/policy/decider.h"
#include "tests/unit/support/pool_world.h"

using namespace bellows;
using namespace bellows::pool;
using std::chrono::seconds;
using State = PoolMember::State;
using Kind = SizeReason::Kind;

namespace {
constexpr SignalBook::Time kBegin{};
}  // namespace

Test(pool_policy, reads_what_it_may_say, .timeout = 10) {
  const auto policy = read_pool_policy(
      "name: index\nmin: 2\nmax: 16\nburst_interval: 30\nvotes: largest\n"
      "targets:\n  - {metric: 'vllm:num_requests_waiting', per_member: 2.5, of: mean}\n"
      "thresholds:\n  - {metric: memory, up: 0.9, down: 0.4}\n  - {metric: gpu}\n",
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
  cr_assert(complaint("max: 2\nmin: 0\ntargets:\n  - {metric: a, per_member: 1}\n")
                .find("nobody says how much") != std::string::npos);
  cr_assert(complaint("max: 2\nmin: 0\n").empty());
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
  cr_assert_not(book.vote("m", 1, 2, at(61), seconds(60)), "one that was refused comes again");
  cr_assert_eq(book.take_votes().size(), 0u);
  cr_assert(book.vote("m", 1, 3, at(61), seconds(60)));
  cr_assert_not(book.vote("m", 1, 3, at(122), seconds(60)), "the same one again");
}

Test(member_starts, keeps_the_last, .timeout = 10) {
  MemberStarts started;
  cr_assert_not(started.median().has_value());
  for (int i = 0; i < 100; ++i) started.add(MemberStarts::Seconds(1000));
  for (int i = 1; i <= 1000; ++i) started.add(MemberStarts::Seconds(i));
  for (int i = 1; i <= 24; ++i) started.add(MemberStarts::Seconds(500));
  cr_assert_eq(started.median()->count(), 500);
  cr_assert_eq(started.p95()->count(), 949);
}

Test(member_starts, does_not_judge_a_burst_by_its_slowest, .timeout = 10) {
  MemberStarts started;
  for (int i = 0; i < 500; ++i) started.add(MemberStarts::Seconds(4 + i / 100.0));
  cr_assert_lt(started.median()->count(), 6.6);
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

Test(decider, does_not_grow_for_the_silence_of_new_members, .timeout = 10) {
  World world;
  Decider decider(world.policy);
  world.with(1).all_say(100, 0);
  cr_assert_eq(decider.decide(at(0), world.signals, world.started, world.members).wanted, 10);
  world.with(10);
  const auto decision = decider.decide(at(1), world.signals, world.started, world.members);
  cr_expect_eq(decision.wanted, 10, "the first one says all of the load, and nine nothing");
  cr_expect_eq(decision.reason.missing, 9);
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

Test(decider, a_threshold_that_rests_keeps_no_target_from_it, .timeout = 10) {
  World world;
  world.policy.thresholds = {{.metric = "cpu", .up = 0.8, .down = 0.4}};
  Decider decider(world.policy);
  world.with(4).all_say(1, 0, "cpu");
  world.all_say(1, 0);
  auto decision = decider.decide(at(0), world.signals, world.started, world.members);
  cr_assert_eq(decision.wanted, 7);
  cr_assert(decision.reason.kind == Kind::threshold);
  world.with(7).all_say(1, 5, "cpu");
  world.all_say(15, 5);
  decision = decider.decide(at(5), world.signals, world.started, world.members);
  cr_expect_eq(decision.wanted, 11);
  cr_expect(decision.reason.kind == Kind::target);
}

Test(decider, votes_for_more_do_not_count_those_that_start, .timeout = 10) {
  World world;
  world.policy.targets.clear();
  Decider decider(world.policy);
  world.with(4);
  for (std::uint32_t round = 0; round < 4; ++round) {
    const int second = 60 * static_cast<int>(round);
    for (const auto& member : world.members)
      if (member.state == State::ready)
        (void)world.signals.vote(member.id, 1, round + 1, at(second), seconds(60));
    const auto decision = decider.decide(at(second), world.signals, world.started, world.members);
    cr_expect_eq(decision.wanted, 8, "%u", decision.wanted);
    world.with(4, 4);
  }
}

Test(decider, takes_its_steps_by_the_second, .timeout = 10) {
  World world;
  world.policy.step_up = 1;
  world.policy.step_down = 1;
  world.policy.stabilisation = seconds(0);
  world.policy.panic_window = seconds(0);
  Decider decider(world.policy);
  world.with(10);
  const auto wanted = [&](std::chrono::milliseconds when, double calls) {
    for (const auto& member : world.members)
      world.signals.put(member.id, "calls", calls, kBegin + when);
    return decider.decide(kBegin + when, world.signals, world.started, world.members).wanted;
  };
  for (int i = 0; i < 40; ++i) {
    const auto seconds_passed = static_cast<std::uint32_t>(i / 10);
    cr_expect_eq(wanted(std::chrono::milliseconds(100 * i), 15), 11 + seconds_passed, "%d", i);
  }
  for (int i = 40; i < 80; ++i) {
    const auto seconds_passed = static_cast<std::uint32_t>(i / 10 - 4);
    cr_expect_eq(wanted(std::chrono::milliseconds(100 * i), 1), 13 - seconds_passed, "%d", i);
  }
}

Test(decider, begins_anew_after_a_hole, .timeout = 10) {
  World world;
  world.started.add(MemberStarts::Seconds(10));
  world.policy.stabilisation = seconds(0);
  Decider decider(world.policy);
  world.with(10);
  for (int second = 0; second < 20; ++second) {
    world.all_say(10, second);
    (void)decider.decide(at(second), world.signals, world.started, world.members);
  }
  for (int second = 40; second < 50; ++second) {
    world.all_say(4, second);
    const auto decision = decider.decide(at(second), world.signals, world.started, world.members);
    cr_expect_eq(decision.wanted, 10, "%d", second);
  }
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
  for (const Kind kind :
       {Kind::steady, Kind::target, Kind::threshold, Kind::vote, Kind::stabilising, Kind::panic,
        Kind::missing_data, Kind::bounds, Kind::script, Kind::failed}) {
    SizeDecision decision;
    decision.reason.kind = kind;
    cr_assert_gt(explain(decision).size(), 10);
  }
}

namespace {

Result<PoolPolicy> script_of(const std::string& text) { return read_pool_policy(text, "p.lua"); }

/// A pool whose script says how many it needs.
struct ScriptWorld : World {
  explicit ScriptWorld(const std::string& text) {
    const auto read = script_of(text);
    cr_assert(read, "%s", read ? "" : read.error().text.c_str());
    policy.targets.clear();
    policy.script = read->script;
    policy.stabilisation = seconds(0);
    decider.emplace(policy);
  }
  SizeDecision decide(int second) { return decider->decide(at(second), signals, started, members); }
  std::optional<Decider> decider;
};

}  // namespace

Test(policy_script, what_is_no_policy_is_refused_with_its_line, .timeout = 10) {
  for (const char* text :
       {"", "x = ", "members = 7", "error('no')", "while true do end",
        "function members(s) return 1 end metrics = 7",
        "function members(s) return 1 end metrics = {1}",
        "local t = {} for i = 1, 1e9 do t[i] = {} end", "os.execute('true')", "\27Lua"}) {
    const auto read = script_of(text);
    cr_assert_not(read, "%s", text);
    cr_expect(read.error().kind == ErrorKind::invalid);
    cr_expect(read.error().text.starts_with("p.lua:"), "%s", read.error().text.c_str());
  }
  cr_expect(script_of("\n\nx = = 1").error().text.starts_with("p.lua:3: "));
  const auto read = script_of("metrics = {'a', 'b'} function members(s) return 1 end");
  cr_assert(read);
  cr_expect((read->script->names() == std::vector<std::string>{"a", "b"}));
}

Test(policy_script, decides_by_what_members_say, .timeout = 10) {
  ScriptWorld world(
      "metrics = {'calls'} "
      "function members(s) return s.metrics.calls.sum / 10 end");
  world.with(2).all_say(24, 0);
  cr_expect_eq(world.decide(0).wanted, 5);
  world.with(5).all_say(1, 10);
  const SizeDecision decision = world.decide(20);
  cr_expect_eq(decision.wanted, 1);
  cr_expect(decision.reason.kind == Kind::script);
}

Test(policy_script, is_asked_once_a_second, .timeout = 10) {
  ScriptWorld world(
      "metrics = {'calls'} function members(s) return s.wanted + 1 + 0 * s.votes end");
  world.with(3).all_say(1, 0);
  for (int i = 0; i < 30; ++i) {
    const auto now = kBegin + std::chrono::milliseconds(100 * i);
    const auto decision = world.decider->decide(now, world.signals, world.started, world.members);
    cr_expect_eq(decision.wanted, 4u + static_cast<unsigned>(i / 10), "%d", i);
  }
}

Test(policy_script, sees_the_pool, .timeout = 10) {
  ScriptWorld world(
      "metrics = {'calls', 'queue'}\n"
      "function members(s)\n"
      "  local m = s.metrics.calls\n"
      "  assert(s.min == 1 and s.max == 20 and s.wanted == 5 and s.ready == 4 and s.starting == "
      "1)\n"
      "  assert(s.votes == 1 and m.sum == 16 and m.mean == 16 / 3 and m.median == 4)\n"
      "  assert(m.largest == 10 and m.known == 3 and m.missing == 1)\n"
      "  assert(s.metrics.queue.known == 0 and s.metrics.queue.missing == 4)\n"
      "  assert(s.metrics.other == nil)\n"
      "  return s.wanted + s.votes\n"
      "end");
  world.with(4, 1);
  (void)world.signals.put("m0", "calls", 2, at(0));
  (void)world.signals.put("m1", "calls", 4, at(0));
  (void)world.signals.put("m2", "calls", 10, at(0));
  (void)world.signals.put("m2", "other", 10, at(0));
  (void)world.signals.vote("m1", 3, 1, at(0), seconds(60));
  const SizeDecision decision = world.decide(0);
  cr_expect_eq(decision.wanted, 6, "%s", explain(decision).c_str());
}

Test(policy_script, one_that_fails_keeps_the_size_and_says_why, .timeout = 20) {
  for (const char* body :
       {"error('no')", "return nil", "return 'x'", "return -1", "return 0/0", "return 1e300",
        "while true do end", "return s.none.sum", "local t = {} while true do t[#t + 1] = {} end",
        "pcall(function() while true do end end) return 1"}) {
    ScriptWorld world(std::string("function members(s) ") + body + " end");
    world.with(3);
    for (int second = 0; second < 3; ++second) {
      const SizeDecision decision = world.decide(second);
      cr_expect_eq(decision.wanted, 3, "%s", body);
      cr_expect(decision.reason.kind == Kind::failed, "%s", body);
      cr_expect(explain(decision).find("p.lua:") != std::string::npos, "%s",
                explain(decision).c_str());
    }
  }
}

Test(policy_script, stays_within_the_limits_of_the_pool, .timeout = 10) {
  ScriptWorld world("function members(s) return 1000 * s.ready end");
  world.with(3);
  cr_expect_eq(world.decide(0).wanted, 20);
  ScriptWorld idle("function members(s) return 0 end");
  idle.with(3);
  cr_expect_eq(idle.decide(0).wanted, 1);
}

Test(policy_script, does_not_shrink_on_missing_data, .timeout = 10) {
  constexpr const char* kOne = "metrics = {'calls'} function members(s) return 1 end";
  ScriptWorld world(kOne);
  world.with(3).all_say(1, 0);
  cr_expect_eq(world.decide(0).wanted, 1);
  ScriptWorld other(kOne);
  other.with(3);
  (void)other.signals.put("m0", "calls", 1, at(0));
  const SizeDecision decision = other.decide(0);
  cr_expect_eq(decision.wanted, 3);
  cr_expect(decision.reason.kind == Kind::missing_data);
}

Test(policy_script, a_metric_of_one_member_does_not_keep_the_pool_large, .timeout = 10) {
  ScriptWorld world("metrics = {'calls'} function members(s) return 1 end");
  world.with(3).all_say(1, 0);
  (void)world.signals.put("m0", "lie", 1, at(0));
  cr_expect_eq(world.decide(0).wanted, 1);
}

Test(policy_script, the_example_has_one_more_while_requests_wait, .timeout = 10) {
  const auto text = read_file(EXAMPLES "/queue.lua", 64 * 1024);
  cr_assert(text);
  ScriptWorld world(*text);
  world.with(3).all_say(9, 0, "running");
  world.all_say(0, 0, "oldest");
  cr_expect_eq(world.decide(0).wanted, 4);
  world.with(4).all_say(6, 1, "running");
  world.all_say(7, 1, "oldest");
  cr_expect_eq(world.decide(1).wanted, 5);
  world.with(4, 1);
  cr_expect_eq(world.decide(2).wanted, 5, "not another one while one starts");
  world.with(5).all_say(6, 3, "running");
  world.all_say(0, 3, "oldest");
  cr_expect_eq(world.decide(3).wanted, 4);
}

Test(policy_script, keeps_nothing_between_two_decisions, .timeout = 10) {
  ScriptWorld world("n = 2 function members(s) n = n + 1 return n end");
  world.with(1);
  cr_expect_eq(world.decide(0).wanted, 3);
  cr_expect_eq(world.decide(1).wanted, 3);
}
