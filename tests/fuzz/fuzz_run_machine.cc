// SPDX-License-Identifier: Apache-2.0
/// A run to which anything happens, in any order: each two bytes are one thing. Whatever it was, no
/// two attempts live at once, the job is not requeued before a commit that was promised or while
/// its ranks are at work, and the run comes to its end once everybody does what is asked.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/launcher/machine_world.h"

namespace {

using namespace bellows;
using namespace std::chrono_literals;

constexpr std::size_t kLongest = 400;
/// Of the sequences that driver.cc makes, these at least see a promise kept and the job requeued.
constexpr unsigned long long kFarAtLeast = 300;

/// How far the sequences came: one that never promises a stop shows nothing about promises.
struct Tally {
  unsigned long long sequences = 0, promised = 0, committed = 0, requeued = 0;
} tally;

struct Driver {
  MachineWorld& world;
  unsigned choice;

  // Who speaks, of what, and of which step: three parts of the choice that depend on nothing else.
  std::string node() const { return choice % 4 == 3 ? "n9" : choice % 2 == 0 ? "n1" : "n2"; }
  unsigned number() const { return choice / 4 % 4; }
  std::uint64_t step() const {
    return choice / 128 != 0 && world.stop.promised() ? *world.stop.promised() : choice / 16 % 8;
  }

  std::uint32_t rank() const { return choice / 4 % 5; }
  std::optional<std::uint64_t> newest() const {
    return number() == 3 ? std::nullopt : std::optional<std::uint64_t>(choice / 16 % 8);
  }
  Error error() const { return {choice % 3 == 0 ? ErrorKind::io : ErrorKind::busy, "went wrong"}; }

  event::CommandFailed failure() const {
    constexpr const char* kCommands[] = {"commit", "gate", "stop", "retention", "hello"};
    return {kCommands[choice / 5 % 5], step(), error()};
  }

  event::Progress progress() const {
    using Signal = event::Progress::Signal;
    return {.max_step = newest(),
            .ranks = {rank()},
            .steps = {newest()},
            .unwritten = choice / 64 % 2,
            .busy = choice % 11 == 0,
            .signal = choice % 16 == 0   ? Signal::term
                      : choice % 16 == 1 ? Signal::usr1
                                         : Signal::none,
            .id = number()};
  }

  event::Shard shard() const {
    event::Shard shard{.step = step(), .id = number()};
    shard.file.rank = rank();
    return shard;
  }

  event::Rank rank_news() const {
    using State = event::Rank::State;
    constexpr State kStates[] = {State::joined, State::finished, State::stopped, State::exited,
                                 State::lost};
    return {rank(), kStates[choice / 16 % 5]};
  }

  Event::Body event(unsigned which) const {
    switch (which) {
      case 0:
        return event::Hello{};
      case 1:
        return event::Found{step()};
      case 2:
        return event::Ready{};
      case 3:
        return event::Gated{number(), newest()};
      case 4:
        return event::Committed{step()};
      case 5:
        return failure();
      case 6:
        return progress();
      case 7:
        return shard();
      case 8:
        return event::SaveError{rank(), step(), error(), number()};
      case 9:
        return rank_news();
      case 10:
        return event::RestoreError{rank(), step(), error()};
      default:
        return event::Restored{rank(), step()};
    }
  }

  void time() const {
    constexpr std::chrono::milliseconds kTimes[] = {0ms, 100ms, 1s, 4s, 12s, 61s, 700s, 2h};
    world.pass(kTimes[choice % 8]);
  }

  void slurm() const {
    constexpr SlurmState kStates[] = {
        SlurmState::running,   SlurmState::running, SlurmState::suspended, SlurmState::pending,
        SlurmState::cancelled, SlurmState::timeout, SlurmState::preempted, SlurmState::node_fail};
    world.record.state = kStates[choice % 8];
    world.record.times.preempt = choice / 8 % 4 == 1 ? 1000 : 0;
    world.slurm_silent = choice / 32 % 2 == 1;
    // A job that runs does not get a node back.
    if (choice / 64 == 3 && world.record.nodes.size() > 1) world.record.nodes.pop_back();
  }

  void answers() const {
    constexpr RoadEnd kEnds[] = {RoadEnd::moved,    RoadEnd::found,     RoadEnd::kept_size,
                                 RoadEnd::as_it_is, RoadEnd::forgotten, RoadEnd::newer_run,
                                 RoadEnd::ended,    RoadEnd::gone,      RoadEnd::refused,
                                 RoadEnd::gave_up};
    world.road = {kEnds[choice % 10], "why", SlurmState::failed};
    const bool may_be_forgotten =
        world.road.end == RoadEnd::kept_size || world.road.end == RoadEnd::as_it_is;
    if (world.road.end == RoadEnd::forgotten || (may_be_forgotten && choice % 3 == 0))
      world.road.outlast = std::chrono::seconds(requeue_clock::kForgottenRunClears);
    world.agents_start = choice % 7 != 0;
    world.ranks_start = choice % 7 != 1;
    world.lingering.clear();
    world.fruitless_runs.reset();
    if (choice % 3 != 0) world.fruitless_runs = choice % 13;
    world.step_below.reset();
    if (choice % 2 != 0) world.step_below = choice % 7;
    world.step_signalled = {};
    if (choice % 5 == 0) world.step_signalled = Error{ErrorKind::unavailable, "silent"};
  }

  void surroundings() const {
    world.around = {};
    auto& around = world.around;
    around.owner = {"8.0.200.x.1", RunName{8, 0, 200, "x"}};
    SlurmJob owner = MachineWorld::job();
    switch (choice % 7) {
      case 0:
        around.owner_job = Error{ErrorKind::unavailable, "silent"};
        break;
      case 1:
        owner.id = 8;
        around.owner_job = owner;
        break;
      case 2:
        around.owner = {"7.1.200.x.1", RunName{7, 1, 200, "x"}};
        owner.times.start += 50;
        around.owner_job = owner;
        break;
      case 3:
        around.finished = "/ckpt/finished";
        break;
      case 4:
        around.owner = {"7.0.100.r.1", world.machine.run().rules.run};
        around.finished_of_owner = "/ckpt/finished";
        break;
      default:
        around = {};
    }
  }

  void ranks() const {
    if (!world.ranks_live) return;
    const std::string name = "bellows-ranks-";
    if (choice / 16 % 2 == 1 && world.step_may_outlast_srun())
      world.lingering = {name + std::to_string(world.machine.run().attempt.number)};
    if (choice % 3 == 0) return world.ranks_killed(SIGKILL);
    if (choice % 7 == 0) return world.feed(input::RanksGone{});
    if (choice % 11 == 0) return world.ranks_end(choice % 2 == 0 ? 0 : 3, "/ckpt/finished");
    world.ranks_end(choice % 2 == 0 ? 0 : 3);
  }

  void agents() const {
    if (!world.agents) return;
    if (choice % 3 == 0) return world.agents_end(choice % 2 == 0 ? 0 : 1);
    if (choice % 8 == 7) return world.feed(input::AgentsClosed{});
    world.agent_lost("an agent died", choice % 2 == 0 ? "n2" : "");
  }

  void control() const {
    if (choice % 16 == 15) return world.feed(input::StatusRequest{1});
    input::StopRequest stop{
        .client = 1 + choice % 3, .hold = choice % 4 == 0, .from_scratch = choice % 5 == 0};
    if (choice % 2 == 0) stop.gpus = choice % 9;
    if (choice % 7 == 0) stop.batch = choice;
    world.feed(stop);
  }

  void limits() const {
    JobLimits limits;
    limits.left = choice * 4;
    limits.total = 1000;
    limits.preempted = choice % 9 == 0;
    world.feed(input::Limits{limits});
  }

  void nodes() const {
    std::vector<NodeReport> reports;
    for (const char* name : {"n1", "n2", "n3"}) {
      NodeReport report{.name = name, .states = {"MIXED"}, .partitions = {"main"}};
      report.gpus = 2;
      report.gpus_used = choice / 4 % 3;
      reports.push_back(report);
    }
    if (choice % 4 < 2) reports[choice % 4].states.insert("DRAIN");
    world.feed(input::Nodes{reports});
  }

  void words() const {
    constexpr const char* kLines[] = {
        "srun: error: Node failure on n2",
        "srun: error: Task launch for StepId=7.1 failed on node n2: Invalid job credential",
        "srun: error: n2: task 3: Killed",
        "srun: error: Timed out waiting for job step to complete",
        "srun: error: Unable to create step for job 7: Invalid partition",
        "slurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=7.1.",
        "slurmstepd-n1: error: execve(): train: No such file or directory"};
    if (choice % 8 < 7) return world.feed(input::SrunLine{kLines[choice % 8]});
    world.feed(input::RankWords{choice / 8 % 2 == 0 ? "ImportError: no module" : "bye"});
  }

  void look() const {
    const bool gone = choice % 4 == 0;
    world.feed(input::JobLook{
        Error{gone ? ErrorKind::not_found : ErrorKind::unavailable, "no answer about the job"}});
  }

  void later_run() const {
    if (choice % 2 == 0) ++world.record.restarts;
    if (choice % 4 != 2) world.record.times.start += 50;
  }

  void owner() const {
    constexpr const char* kOwners[] = {"7.0.100.r.1", "7.1.200.x.1", "7.0.100.r.2", "8.0.200.x.1"};
    world.feed(input::Owner{kOwners[choice % 4]});
  }

  void act(unsigned what) const {
    if (what % 64 < 20) return happen(what % 64);
    if (what % 64 < 32) return world.agent({event(what % 64 - 20), node()});
    together(what % 64);
  }

  void happen(unsigned what) const {
    switch (what) {
      case 3:
        return slurm();
      case 4:
        return answers();
      case 5:
        return ranks();
      case 6:
        return agents();
      case 7:
        return control();
      case 8:
        return limits();
      case 9:
        return world.feed(input::Term{});
      case 10:
        return world.feed(input::Usr1{});
      case 11:
        return world.agents_greet();
      case 12:
        return world.agents_find(choice % 2 ? std::optional<std::uint64_t>(choice % 7)
                                            : std::nullopt);
      case 13:
        return world.agents_ready();
      case 14:
        return world.join();
      case 15:
        return world.save(step());
      case 16:
        return world.start_ranks(choice % 7);
      case 17:
        return world.feed(input::HistoryNews{"history", choice % 2 == 0});
      case 18:
        return owner();
      case 19:
        return world.feed(input::Paused{std::chrono::seconds(choice)});
      default:
        return time();
    }
  }

  /// What all agents say, and the rarer news.
  void together(unsigned what) const {
    switch (what) {
      case 32:
      case 33:
        return world.answer_gate(choice / 16 % 8);
      case 34:
      case 35:
        return world.give_parts(step());
      case 36:
      case 37:
        return world.commit(step());
      case 38:
        return world.answer_query(choice % 4 == 0 ? 1 : 0);
      case 39:
        return world.progress(choice / 16 % 8);
      case 40:
        if (world.own_command) world.own_command_ends(choice % 2 == 0 ? 0 : 3);
        return;
      case 41:
        return nodes();
      case 42:
        return words();
      case 43:
        return look();
      case 44:
        return later_run();
      case 45:
        return surroundings();
      case 46:
        world.start_ranks(choice % 7);
        return world.join();
      default:
        return time();
    }
  }
};

RunRules rules_of(unsigned choice) {
  RunRules rules = MachineWorld::rules();
  if (choice % 4 == 1) rules.own.signal = SIGUSR1;
  if (choice % 4 == 2) rules.own.command = "save";
  rules.run.restart = choice / 4 % 2;
  if (choice / 32 % 2 == 1) rules.contract = *Contract::parse("bellows/1 tenant=vision gpus=1-4");
  rules.stays = choice / 64 % 2 == 1;
  rules.rendezvous = choice / 128 == 1;
  return rules;
}

void count(const MachineWorld& world) {
  ++tally.sequences;
  if (!world.stop.promised()) return;
  ++tally.promised;
  if (!world.stop.kept()) return;
  ++tally.committed;
  if (!world.roads.empty()) ++tally.requeued;
}

}  // namespace

extern "C" bool fuzz_target_came_far() {
  std::printf(
      "%llu sequences: %llu stops promised, %llu of them committed, %llu of these requeued\n",
      tally.sequences, tally.promised, tally.committed, tally.requeued);
  return tally.requeued >= kFarAtLeast;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const RunRules rules = rules_of(data[0]);
  SlurmJob job = MachineWorld::job();
  job.restarts = rules.run.restart;
  MachineWorld world(rules, job);
  world.around.halt_was_lost = data[0] / 8 % 4 == 0;
  world.begin();
  for (std::size_t i = 1; i + 1 < std::min(size, kLongest) && !world.exit; i += 2)
    Driver{world, data[i + 1]}.act(data[i]);
  if (!world.exit && !world.ends_in_a_kind_world()) world.broken = "there is no way out";
  count(world);
  if (world.broken.empty()) return 0;
  std::fprintf(stderr, "%s\n", world.broken.c_str());
  for (const std::string& line : world.said) std::fprintf(stderr, "  %s\n", line.c_str());
  std::abort();
}
