// SPDX-License-Identifier: Apache-2.0
/// A run to which anything happens, in any order: each two bytes are one thing. Whatever it was, no
/// two attempts live at once, the job is not requeued before a commit while its ranks are at work,
/// and the run comes to its end once everybody does what is asked.

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/unit/machine_world.h"

namespace {

using namespace bellows;
using namespace std::chrono_literals;

constexpr std::size_t kLongest = 400;

struct Driver {
  MachineWorld& world;
  unsigned choice;

  std::string node() const { return choice % 5 == 0 ? "n9" : choice % 2 == 0 ? "n1" : "n2"; }

  Event event(Event::Kind kind) const {
    Event event;
    event.kind = kind;
    event.node = node();
    event.rank = choice % 5;
    event.step = choice % 7;
    if (choice % 3 != 0) event.max_step = choice % 7;
    event.ranks = {event.rank};
    event.steps = {event.max_step};
    event.id = choice % 4;
    event.unwritten = choice % 2;
    event.busy = choice % 11 == 0;
    event.error = "went wrong";
    event.error_kind = choice % 3 == 0 ? ErrorKind::io : ErrorKind::busy;
    event.signal = choice % 16 == 0 ? "TERM" : choice % 16 == 1 ? "USR1" : "";
    constexpr const char* kStates[] = {"joined", "finished", "stopped", "exited", "lost"};
    event.state = kStates[choice % 5];
    constexpr const char* kCommands[] = {"commit", "gate", "stop", "retention", "hello"};
    event.cmd = kCommands[choice / 5 % 5];
    return event;
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
    world.record.times.preempt = choice / 8 % 4 == 0 ? 1000 : 0;
    world.slurm_silent = choice / 32 % 2 == 0;
    world.record.nodes = MachineWorld::job().nodes;
    if (choice / 64 == 3) world.record.nodes.pop_back();
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
    if (choice % 5 == 0) world.lingering = {"bellows-ranks-1"};
    world.fruitless_runs.reset();
    if (choice % 3 != 0) world.fruitless_runs = choice % 13;
    world.around = {};
    if (choice % 11 == 0) world.around.owner_job = Error{ErrorKind::unavailable, "silent"};
  }

  void ranks() const {
    if (!world.ranks_live) return;
    if (choice % 3 == 0) return world.ranks_killed(SIGKILL);
    if (choice % 7 == 0) return world.feed(input::RanksGone{});
    world.ranks_end(choice % 2 == 0 ? 0 : 3);
  }

  void agents() const {
    if (!world.agents) return;
    if (choice % 3 == 0) return world.agents_end(choice % 2 == 0 ? 0 : 1);
    world.agent_lost("an agent died", choice % 2 == 0 ? "n2" : "");
  }

  void control() const {
    input::StopRequest stop{
        .client = 1 + choice % 3, .hold = choice % 4 == 0, .from_scratch = choice % 5 == 0};
    if (choice % 2 == 0) stop.gpus = choice % 9;
    world.feed(stop);
  }

  void limits() const {
    JobLimits limits;
    limits.left = choice * 4;
    limits.total = 1000;
    limits.preempted = choice % 9 == 0;
    world.feed(input::Limits{limits});
  }

  void act(unsigned what) const {
    using Kind = Event::Kind;
    constexpr Kind kKinds[] = {Kind::hello,      Kind::found, Kind::ready,         Kind::gated,
                               Kind::committed,  Kind::error, Kind::progress,      Kind::shard,
                               Kind::save_error, Kind::rank,  Kind::restore_error, Kind::restored};
    switch (what % 32) {
      case 0:
      case 1:
      case 2:
        return time();
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
        return world.save(choice % 7);
      case 16:
        return world.start_ranks(choice % 7);
      case 17:
        return world.feed(input::HistoryNews{"history", choice % 2 == 0});
      case 18:
        return world.feed(input::Owner{choice % 2 ? "7.1.200.x.1" : "7.0.100.r.1"});
      case 19:
        return world.feed(input::Paused{std::chrono::seconds(choice)});
      default:
        return world.agent(event(kKinds[what % 12]));
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  RunRules rules = MachineWorld::rules();
  if (data[0] % 4 == 1) rules.own.signal = SIGUSR1;
  if (data[0] % 4 == 2) rules.own.command = "save";
  SlurmJob job = MachineWorld::job();
  job.restarts = data[0] / 4 % 2;
  rules.run.restart = job.restarts;
  MachineWorld world(rules, job);
  world.around.halt_was_lost = data[0] / 8 % 4 == 0;
  world.begin();
  for (std::size_t i = 1; i + 1 < std::min(size, kLongest) && !world.exit; i += 2)
    Driver{world, data[i + 1]}.act(data[i]);
  if (!world.exit && !world.ends_in_a_kind_world()) world.broken = "there is no way out";
  if (world.broken.empty()) return 0;
  std::fprintf(stderr, "%s\n", world.broken.c_str());
  for (const std::string& line : world.said) std::fprintf(stderr, "  %s\n", line.c_str());
  std::abort();
}
