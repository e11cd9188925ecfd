// SPDX-License-Identifier: Apache-2.0
// What the parts of a run conclude from nodes, times and saves, without Slurm.
#include <criterion/criterion.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "launcher/machine/node_policy.h"
#include "launcher/machine/open_saves.h"
#include "launcher/machine/own_stop.h"
#include "launcher/machine/restore_tally.h"
#include "launcher/machine/time_left.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

using Time = std::chrono::steady_clock::time_point;

NodeReport report(const std::string& name, const std::string& state, std::uint32_t gpus_used) {
  return {name, {state}, {"main"}, 4, gpus_used};
}

SlurmJob job_on(std::vector<NodeShare> nodes) {
  SlurmJob job;
  job.id = 7;
  job.partition = "main";
  job.nodes = std::move(nodes);
  return job;
}

/// A job on two nodes of four GPUs, with the policy that watches it.
struct OnTwoNodes {
  SlurmJob job = job_on({{"n1", 4, 4}, {"n2", 4, 4}});
  RankLayout layout = *RankLayout::of(job);
  NodeFacts facts{.job = job, .layout = layout, .running = true, .can_stop = true};
  NodePolicy policy;
  Time now{1h};

  NodeAdvice advise(const std::vector<NodeReport>& reports) {
    return policy.advise(reports, facts, now);
  }
};

const std::vector<NodeReport> kDraining = {report("n1", "ALLOCATED", 4), report("n2", "DRAIN", 4)};

constexpr const char* kHangs = "hangs";

/// Looks at that time; `line` is the answer to a question that is asked then.
std::optional<JobLimits> answer(TimeLeft& time, const std::string& line, double now) {
  const bool due = time.is_due(now);
  auto limits = due && line != kHangs ? JobLimits::from_line(line) : std::nullopt;
  if (!limits) return time.reckon(now);
  time.note_answer(*limits, now);
  return limits;
}

event::Shard part_of(std::uint64_t step, std::uint64_t bytes, std::uint64_t took_ms) {
  event::Shard shard{.step = step, .took_ms = took_ms};
  shard.file.size = bytes;
  return shard;
}

OwnStopEnd end_after(OwnStop& stop, int command_status) {
  stop.note_command(ChildExit{command_status << 8});
  return stop.judge(Time{1h});
}

}  // namespace

Test(node_policy, leaves_a_draining_node_as_large_as_there_is_room) {
  OnTwoNodes run;
  cr_expect(run.advise(kDraining).ask_all, "before it goes");
  NodeAdvice advice =
      run.advise({kDraining[0], kDraining[1], report("n3", "IDLE", 0), report("n4", "DOWN", 0)});
  cr_expect(advice.stop == "drain of n2" && !advice.gpus, "%s", advice.stop.c_str());
  cr_expect(has(advice.text, "leaves"));

  const auto contract = Contract::parse("bellows/1 tenant=vision gpus=1-8");
  cr_assert(contract.ok());
  run.facts.contract = &*contract;
  (void)run.advise(kDraining);
  advice = run.advise({kDraining[0], kDraining[1], report("n3", "MIXED", 1)});
  cr_expect(advice.stop == "drain of n2" && advice.gpus == 4u, "n3 has not room enough");
}

Test(node_policy, stays_where_it_must_and_says_so_once) {
  OnTwoNodes run;
  run.facts.stays = true;
  NodeAdvice advice = run.advise(kDraining);
  cr_expect(advice.stop == "" && has(advice.text, "n2 is being drained: the job stays"));
  cr_expect(run.advise(kDraining).text == "");
  run.facts.stays = false;
  run.job.asked.required_nodes = {"n2"};
  cr_expect(run.advise(kDraining).text == "", "once for one drain");
  cr_expect(run.advise({report("n1", "ALLOCATED", 4), report("n2", "ALLOCATED", 4)}).text == "");
  cr_expect(has(run.advise(kDraining).text, "asks for that node"));
  run.job.asked.required_nodes.clear();
  run.facts.can_stop = false;
  cr_expect(run.advise(kDraining).stop == "");
}

Test(node_policy, grows_back_when_all_it_lost_is_free_and_not_at_once) {
  OnTwoNodes run;
  run.policy.note_lost({{"n3", 4, 4}, {"n4", 2, 2}}, run.now);
  const NodeReport n1 = report("n1", "ALLOCATED", 4), n2 = report("n2", "ALLOCATED", 4);
  const std::vector<NodeReport> back = {n1, n2, report("n3", "IDLE", 0), report("n4", "MIXED", 2)};
  cr_expect(run.advise(back).stop == "", "it has just shrunk");
  run.now += 2min;
  cr_expect(run.advise({n1, n2, report("n3", "IDLE", 0)}).stop == "", "n4 is not there");
  cr_expect(run.advise({n1, n2, back[2], report("n4", "MIXED", 3)}).stop == "", "nor free");
  cr_expect(run.advise(back).stop == "growing back to n3,n4");
  run.facts.can_stop = false;
  cr_expect(run.advise(back).stop == "");
}

Test(own_stop, ends_with_its_command) {
  OwnCheckpoint how;
  how.command = "save";
  OwnStop refused(how, true, Time{1h});
  cr_expect(end_after(refused, 3) == OwnStopEnd::refused);
  cr_expect(has(refused.trouble(), "status 3"), "%s", refused.trouble().c_str());
  OwnStop must(how, false, Time{1h});
  cr_expect(end_after(must, 3) == OwnStopEnd::unsaved);
  OwnStop saved(how, true, Time{1h});
  cr_expect(end_after(saved, 0) == OwnStopEnd::saved);
  OwnStop late(how, true, Time{1h});
  cr_expect(late.judge(Time{1h}) == OwnStopEnd::waiting);
  cr_expect(late.judge(Time{1h} + std::chrono::seconds(how.grace)) == OwnStopEnd::refused);
  cr_expect(has(late.trouble(), "did not end in time"));
}

Test(own_stop, gives_ranks_their_whole_time) {
  OwnCheckpoint how;
  how.signal = SIGUSR1;
  how.grace = 10;
  OwnStop stop(how, false, Time{1h});
  cr_expect(stop.must_signal());
  stop.begin_time(Time{1h} + 8s);
  stop.note_signalled();
  stop.excuse(5s);
  cr_expect(!stop.must_signal());
  cr_expect(stop.judge(Time{1h} + 22s) == OwnStopEnd::waiting);
  cr_expect(stop.judge(Time{1h} + 23s) == OwnStopEnd::unsaved);
  cr_expect(has(stop.trouble(), "within 10 s"));
  stop.note_ranks(ChildExit{0});
  cr_expect(stop.judge(Time{1h} + 23s) == OwnStopEnd::saved);
}

Test(time_left, learns_from_whole_saves) {
  TimeLeft time;
  JobLimits limits;
  limits.total = 86400;
  limits.left = 1000;
  const double unknown = time.lead(limits, nullptr, 0);
  time.note_save(part_of(1, 1000, 100'000), 200);
  time.note_save(part_of(1, 1000, 20'000), 210);
  cr_expect(time.lead(limits, nullptr, 210) == unknown, "not committed yet");
  time.note_save(event::Committed{1}, 220);
  const double known = time.lead(limits, nullptr, 220);
  cr_expect(known >= 120 && known < 240, "it took 120 s: %f", known);
  OwnCheckpoint own;
  own.grace = 30;
  cr_expect(time.lead(limits, &own, 220) < known, "a program's own way has its own time");
}

Test(time_left, stops_by_the_limit_that_was_known_when_no_answer_comes) {
  for (const std::string lost : {"", "hangs"}) {
    TimeLeft time;
    const auto known = answer(time, "100 86400 0 0 0 0\n", 0);
    cr_assert(known && known->left == 100);
    const double lead = time.lead(*known, nullptr, 0);
    cr_assert(lead > 10 && lead < 90);
    double now = 1;
    std::optional<JobLimits> left;
    for (; !left && now < 100; ++now) left = answer(time, lost, now);
    cr_assert(left.has_value(), "silence");
    cr_expect(static_cast<double>(left->left) <= lead && now < 105 - lead, "%f: %f", now, lead);
  }
}

Test(time_left, asks_again_soon_after_a_lost_answer) {
  TimeLeft time;
  cr_expect(!answer(time, "", 0));
  const auto known = answer(time, "100 86400 0 0 0 0\n", 5);
  cr_assert(known.has_value(), "at the start");
  (void)time.lead(*known, nullptr, 5);
  cr_expect(!answer(time, "", 30));
  const auto moved = answer(time, "900 86400 0 0 0 0\n", 45);
  cr_expect(moved && moved->left == 900);
}

Test(time_left, knows_a_pause_from_silence) {
  TimeLeft time;
  (void)time.lead(*answer(time, "100 86400 0 0 0 0\n", 0), nullptr, 0);
  cr_expect(!answer(time, "", 30));
  time.note_pause(5000);
  cr_expect(!answer(time, "hangs", 5000), "a suspended job's limit moves");
}

Test(time_left, forgets_half_saves_of_an_attempt_that_ended) {
  TimeLeft time;
  JobLimits limits;
  limits.total = 86400;
  time.note_save(part_of(1, 1000, 0), 0);
  time.begin_attempt();
  time.note_save(part_of(1, 1000, 1000), 5000);
  time.note_save(event::Committed{1}, 5001);
  cr_expect(time.lead(limits, nullptr, 5001) < 60, "%f", time.lead(limits, nullptr, 5001));
}

Test(open_saves, are_over_when_every_node_has_answered_and_nothing_is_open) {
  OpenSaves saves;
  Time now{1h};
  cr_expect(saves.begin(4) && !saves.begin(4));
  const std::uint64_t id = saves.begin_drain(now);
  saves.note_unwritten("n1", {.unwritten = 0, .id = id - 1}, now);
  cr_expect(!saves.all_answered(1), "that was said before the question");
  saves.note_unwritten("n1", {.unwritten = 1, .id = id}, now);
  saves.note_unwritten("n2", {.unwritten = 0, .id = id}, now);
  cr_expect(saves.all_answered(2) && !saves.drained(2, now));
  saves.note_unwritten("n1", {.unwritten = 0, .id = 0}, now);
  cr_expect(!saves.drained(2, now), "step 4 is neither committed nor failed");
  saves.end(4);
  cr_expect(saves.drained(2, now) && !saves.drained(3, now));
}

Test(open_saves, are_given_up_without_news) {
  OpenSaves saves;
  Time now{1h};
  (void)saves.begin_drain(now);
  cr_expect(!saves.drained(1, now + 2s));
  saves.note_news(now + 2s);
  cr_expect(!saves.drained(1, now + 4s) && saves.drained(1, now + 6s));
}

Test(open_saves, wait_for_a_commit_that_a_file_system_holds_up) {
  OpenSaves saves;
  Time now{1h};
  cr_expect(saves.begin(4));
  const std::uint64_t id = saves.begin_drain(now);
  saves.note_unwritten("n1", {.busy = true, .id = id}, now + 100s);
  cr_expect(!saves.drained(1, now + 101s));
}

Test(open_saves, do_not_wait_for_an_agent_that_has_died) {
  OpenSaves saves;
  Time now{1h};
  (void)saves.begin_drain(now);
  cr_expect(!saves.drained(2, now) && saves.drained_without_agent(now));
  cr_expect(saves.begin(4));
  cr_expect(!saves.drained_without_agent(now + 1300ms), "between two reports of the others");
  cr_expect(saves.drained_without_agent(now + 2600ms));
}

Test(restore_tally, counts_every_restore_of_a_rank) {
  RestoreTally tally;
  for (std::uint64_t bytes : {8, 500'000, 12'000'000}) {
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      cr_expect(!tally.add(event::Restored{rank, 60, bytes, bytes / 4}, 2));
  }
  event::Progress progress;
  cr_expect(!tally.add(progress, 2), "no rank trains yet");
  progress.max_step = 61;
  const auto said = tally.add(progress, 2);
  cr_assert(said);
  cr_expect(*said == "restored step 60: 25.0 MB from the agents' memory, 6.3 MB from files", "%s",
            said->c_str());
  cr_expect(!tally.add(progress, 2), "once is enough");
}
