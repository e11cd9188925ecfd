// SPDX-License-Identifier: Apache-2.0
// What the launcher concludes from failures: the classes behind it, without a clock and without
// Slurm.
#include <criterion/criterion.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "launcher/machine/storage_watch.h"
#include "launcher/ranks/gang_start.h"
#include "launcher/ranks/hang_detector.h"
#include "launcher/slurm/node_watch.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

using Time = HangDetector::Clock::time_point;
using Steps = std::vector<std::optional<std::uint64_t>>;

event::Progress progress_of(std::uint32_t first, Steps steps, bool busy = false) {
  event::Progress progress{.steps = std::move(steps), .busy = busy};
  for (std::size_t i = 0; i < progress.steps.size(); ++i)
    progress.ranks.push_back(first + static_cast<std::uint32_t>(i));
  return progress;
}

// A detector whose two ranks took `steps` steps, one each second.
HangDetector trained(Time& now, std::chrono::seconds floor, std::uint64_t steps) {
  HangDetector detector(floor);
  detector.begin(now);
  for (std::uint64_t step = 0; step < steps; ++step, now += 1s) {
    detector.note("n1", progress_of(0, {step, step}), now);
    cr_expect(!detector.check(now));
  }
  return detector;
}

}  // namespace

Test(hang_detector, calls_what_does_not_advance) {
  Time now{1h};
  HangDetector detector = trained(now, 3s, 20);
  detector.note("n1", progress_of(0, {20, 57}), now);
  cr_expect(detector.limit() == 5s, "five times the second between two steps");
  cr_expect(!detector.check(now + 4900ms));
  auto what = detector.check(now + 5s);
  cr_expect(has(what, "no progress for 5 s"), "%s", what.value_or("").c_str());
  cr_expect(has(what, "rank 0 on n1 stays at step 20, while others are at step 57"));
  cr_expect(!detector.check(now + 5s), "told once");
  cr_expect(!detector.recovered());
  detector.note("n1", progress_of(0, {21, 57}), now + 6s);
  cr_expect(detector.recovered());
}

Test(hang_detector, has_a_floor_and_can_be_off) {
  Time now{1h};
  HangDetector detector = trained(now, 60s, 20);
  cr_expect(detector.limit() == 60s);
  cr_expect(!detector.check(now + 58s));
  cr_expect(has(detector.check(now + 60s), "all 2 ranks stay at step 19"));
  now = Time{1h};
  HangDetector off = trained(now, 0s, 20);
  cr_expect(!off.check(now + 1000h));
}

Test(hang_detector, leaves_time_before_the_first_steps) {
  Time now{1h};
  HangDetector detector(10s);
  detector.begin(now);
  cr_expect(!detector.check(now + 100h), "nobody has joined: nothing is known");
  now += 100h;
  detector.note("n1", progress_of(0, {std::nullopt, std::nullopt}), now);
  cr_expect(!detector.check(now + 59s));
  cr_expect(has(detector.check(now + 60s), "not one of 2 ranks has reached its first step"));
}

Test(hang_detector, does_not_count_saves_and_pauses) {
  Time now{1h};
  HangDetector detector = trained(now, 3s, 20);
  for (int i = 0; i < 100; ++i, now += 1s) {
    detector.note("n1", progress_of(0, {19, 19}, true), now);
    cr_expect(!detector.check(now));
  }
  detector.note("n1", progress_of(0, {20, 20}), now);
  cr_expect(detector.limit() == 5s, "nor is it learned as a slow step");
  now += 1000s;
  detector.excuse(now);
  cr_expect(!detector.check(now + 4s), "nobody ran");
  cr_expect(detector.check(now + 5s).has_value());
}

Test(hang_detector, learns_the_longest_of_the_last_hours) {
  Time now{1h};
  HangDetector detector = trained(now, 3s, 20);
  now += 3s;
  detector.note("n1", progress_of(0, {20, 20}), now);
  cr_expect(detector.limit() == 20s, "4 s since the last step");
  std::uint64_t step = 21;
  for (; step < 1000; ++step) detector.note("n1", progress_of(0, {step, step}), now += 1s);
  cr_expect(detector.limit() == 20s);
  for (; step < 18000; ++step) detector.note("n1", progress_of(0, {step, step}), now += 1s);
  cr_expect(detector.limit() == 5s, "forgotten after four hours");
}

Test(hang_detector, doubles_until_the_step_is_passed) {
  Time now{1h};
  HangDetector detector = trained(now, 10s, 20);
  cr_expect(detector.check(now += 10s).has_value());
  cr_expect(detector.limit() == 20s);
  detector.begin(now);
  for (std::uint64_t step = 10; step < 20; ++step)
    detector.note("n1", progress_of(0, {step, step}), now += 1s);
  cr_expect(detector.limit() == 20s, "it has not come further");
  cr_expect(detector.check(now += 20s).has_value());
  cr_expect(detector.limit() == 40s);
  detector.note("n1", progress_of(0, {20, 20}), now += 1s);
  cr_expect(detector.limit() == 10s);
}

Test(hang_detector, waits_for_the_ranks_of_all_nodes) {
  Time now{1h};
  HangDetector detector = trained(now, 3s, 20);
  for (std::uint64_t step = 0; step < 50; ++step) {
    detector.note("n1", progress_of(0, {19, 19}), now += 1s);
    detector.note("n2", progress_of(2, {step}), now);
    cr_expect(!detector.check(now));
  }
  detector.note("n1", progress_of(0, {}), now += 4s);
  cr_expect(!detector.check(now + 2s), "ranks that leave are a change");
  auto what = detector.check(now + 20s);
  cr_expect(has(what, "rank 2 on n2 stays at step 49"), "%s", what.value_or("").c_str());
}

Test(hang_detector, gives_time_once_a_rank_has_finished) {
  Time now{1h};
  HangDetector detector = trained(now, 3s, 20);
  event::Progress last = progress_of(0, {20});
  last.finished = 1;
  detector.note("n1", last, now);
  cr_expect(!detector.check(now + 17s));
  cr_expect(detector.check(now + 18s).has_value());
}

Test(hang_detector, leaves_alone_a_program_that_has_trained) {
  Time now{1h};
  HangDetector detector = trained(now, 3s, 20);
  event::Progress last = progress_of(0, {});
  last.finished = 2;
  detector.note("n1", last, now);
  cr_expect(!detector.check(now + 1000h));
}

Test(hang_detector, waits_less_once_a_rank_has_died) {
  Time now{1h};
  HangDetector detector = trained(now, 300s, 20);
  detector.note_death();
  detector.note("n1", progress_of(0, {20}), now);
  cr_expect(!detector.check(now + 29s));
  cr_expect(has(detector.check(now + 30s), "rank 0 on n1 stays at step 20"));
  detector.begin(now);
  cr_expect(detector.limit() >= 300s, "of the next attempt nobody has died");
  now = Time{1h};
  HangDetector slow = trained(now, 300s, 20);
  slow.note("n1", progress_of(0, {20, 20}), now += 100s);
  slow.note_death();
  cr_expect(slow.limit() >= 500s, "its steps may take long");
  now = Time{1h};
  HangDetector low = trained(now, 10s, 20);
  low.note_death();
  cr_expect(low.limit() == 10s);
  HangDetector off(0s);
  off.begin(now);
  off.note_death();
  off.note("n1", progress_of(0, {20}), now);
  cr_expect(!off.check(now + 1000h));
}

Test(storage_watch, tells_of_a_long_wait_and_of_its_end) {
  Time now{1h};
  StorageWatch watch;
  watch.begin(now);
  watch.note("n1", progress_of(0, {7, 7}), now);
  watch.note("n2", progress_of(2, {7}, true), now);
  cr_expect(!watch.check(now + 4900ms, 0.1));
  cr_expect(!watch.check(now + 50s, 11.0), "its saves usually take that long");
  cr_expect(!watch.check(now + 50s, std::nullopt));
  auto what = watch.check(now + 6s, 0.1);
  cr_expect(has(what, "waits for the file system of the checkpoints: the agent on n2 has been"));
  cr_expect(has(what, "for 6 s"));
  cr_expect(!watch.check(now + 7s, 0.1), "told once");
  watch.note("n2", progress_of(2, {7}), now + 8s);
  cr_expect(!watch.check(now + 8s, 0.1));
  watch.note("n1", progress_of(0, {8, 8}), now + 9s);
  cr_expect(has(watch.check(now + 9s, 0.1), "continues after 9 s"));
  cr_expect(!watch.check(now + 100s, 0.1), "nobody is at work");
}

Test(storage_watch, does_not_count_a_suspension) {
  Time now{1h};
  StorageWatch watch;
  watch.begin(now);
  watch.note("n1", progress_of(0, {7}, true), now);
  watch.excuse(3600s);
  now += 3600s;
  cr_expect(!watch.check(now + 4s, 0.1));
  cr_expect(has(watch.check(now + 6s, 0.1), "for 6 s"));
  watch.excuse(3600s);
  now += 3600s;
  watch.note("n1", progress_of(0, {8}), now + 9s);
  cr_expect(has(watch.check(now + 9s, 0.1), "continues after 9 s"));
}

Test(storage_watch, leaves_alone_ranks_that_train_while_they_save) {
  Time now{1h};
  StorageWatch watch;
  watch.begin(now);
  for (std::uint64_t step = 0; step < 100; ++step, now += 1s) {
    watch.note("n1", progress_of(0, {step, step}, true), now);
    cr_expect(!watch.check(now, 0.1));
  }
  cr_expect(watch.check(now + 5s, 0.1).has_value());
}

Test(gang_start, names_what_is_missing) {
  GangStart gang(60s);
  Time now{1h};
  cr_expect(!gang.check(now + 1000h), "nothing has begun");
  gang.begin({{"n1", {0, 1}}, {"n2", {2, 3}}}, now);
  cr_expect(!gang.check(now + 59s));
  gang.joined(0);
  gang.joined(3);
  gang.excuse(10s);
  cr_expect(!gang.check(now + 60s), "suspended for 10 s");
  auto late = gang.check(now + 70s);
  cr_assert(late.has_value());
  cr_expect(!late->nobody);
  cr_expect(late->text == "2 of 4 ranks did not start within 60 s: rank 1 on n1 and rank 2 on n2");
  cr_expect(!gang.check(now + 80s), "told once");
  gang.begin({{"n1", {0, 1}}}, now);
  cr_expect(gang.check(now + 60s)->nobody);
  gang.begin({{"n1", {0, 1}}}, now);
  gang.joined(0);
  gang.joined(1);
  cr_expect(!gang.check(now + 60s));
  GangStart unknown(60s);
  unknown.begin({{"n1", {0}}}, now);
  cr_expect(unknown.check(now + 60s).has_value());
  unknown.ask_again(now + 60s);
  cr_expect(!unknown.check(now + 69s) && unknown.check(now + 70s), "nothing had come of it");
  cr_expect(!unknown.check(now + 71s));
  GangStart off(0s);
  off.begin({{"n1", {0}}}, now);
  cr_expect(!off.check(now + 60h));
}

Test(node_reports, are_what_scontrol_tells) {
  auto nodes = parse_node_reports(
      "NodeName=n1 CoresPerSocket=8  Gres=gpu:4 GresDrain=N/A GresUsed=gpu:3(IDX:0-2) NodeAddr=a "
      "State=MIXED+DRAIN ThreadsPerCore=1 Partitions=main,big  Reason=State=IDLE now [root@x]\n"
      "NodeName=n2 Gres=gpu:a100:4 GresUsed=gpu:a100:0 State=IDLE Partitions=main\n"
      "NodeName=n3 Gres=gpu:4 GresUsed=gpu:0 State=DOWN*+NOT_RESPONDING "
      "Partitions=main\n\nnoise\n");
  cr_assert(nodes.size() == 3);
  cr_expect(nodes[0].name == "n1" && nodes[0].draining() && !nodes[0].usable());
  cr_expect(nodes[0].gpus == 4 && nodes[0].gpus_free() == 1 && nodes[0].partitions.contains("big"));
  cr_expect(nodes[1].usable() && !nodes[1].draining() && nodes[1].gpus_free() == 4);
  cr_expect(!nodes[2].usable() && nodes[2].states.contains("DOWN"));
}

Test(node_watch, takes_no_answer_for_no_news) {
  const std::string path = getenv("PATH");
  NodeWatch watch;
  Time now{1h};
  setenv("PATH", "/nonexistent", 1);
  watch.ask({}, now);
  cr_expect(!watch.asking() && !watch.poll(now));
  setenv("PATH", path.c_str(), 1);
}

Test(departure, keeps_the_size_where_there_is_room) {
  auto even = [](std::uint32_t gpus) { return gpus % 2 == 0; };
  auto any = [](std::uint32_t) { return true; };
  cr_expect(!size_after({8, 4, 4}, any), "room elsewhere");
  cr_expect(size_after({8, 4, 3}, any) == 4u);
  cr_expect(size_after({8, 3, 2}, even) == 4u);
  cr_expect(!size_after({4, 4, 0}, any), "nothing is left: it waits");
}
