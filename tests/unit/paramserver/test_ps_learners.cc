// SPDX-License-Identifier: Apache-2.0
// bellows-ps with learners that it starts: who is started again, who ends with whom, what is left.
#include <criterion/criterion.h>
#include <fmt/core.h>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "common/child.h"
#include "paramserver/server/learner_descendants.h"
#include "paramserver/server/learner_lines.h"
#include "paramserver/server/learner_processes.h"
#include "paramserver/wire/ps_report.h"
#include "tests/unit/paramserver/ps_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::ps_test;

namespace {

using Words = std::vector<std::string>;

constexpr int kWaitMs = 20000;

std::string text_of(const std::string& path) {
  // A file of a process that ends meanwhile gives an error, which an iterator would throw.
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// bellows-ps with a command, in which DIR stands for a directory, and with its output in files.
class Run {
 public:
  Run(const Words& options, const Words& command) {
    ChildOptions child;
    child.command = {"sh", "-c", fmt::format("exec \"$@\" >{0}/out 2>{0}/err", dir()), "sh",
                     BELLOWS_PS};
    for (const std::string& option : options) child.command.push_back(with_dir(option));
    child.command.emplace_back("--");
    for (const std::string& word : command) child.command.push_back(with_dir(word));
    child.environment = {"PATH=/usr/bin:/bin", "TMPDIR=" + dir()};
    auto started = Child::start(child);
    cr_assert(started.ok());
    child_.emplace(std::move(*started));
  }

  std::string dir() const { return scratch_.path(); }
  std::string out() const { return text_of(dir() + "/out"); }
  std::string err() const { return text_of(dir() + "/err"); }
  /// With the directory in the place of DIR.
  std::string with_dir(std::string text) const {
    const auto at = text.find("DIR");
    return at == std::string::npos ? text : text.replace(at, 3, dir());
  }
  bool says(const std::string& text) const {
    return (out() + err()).find(text) != std::string::npos;
  }
  void signal(int number) const { kill(child_->pid(), number); }
  void kill_group() { child_->signal(SIGKILL); }
  /// As a shell has it; -1: it has not ended.
  int status() {
    return eventually([&] { return child_->poll_exit().has_value(); }) ? child_->poll_exit()->code()
                                                                       : -1;
  }
  /// The process that has the threads; 0: there is none now.
  pid_t server() const { return child("bellows-ps"); }
  pid_t child(const std::string& name) const {
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", child_->pid()));
    for (pid_t pid = 0; file >> pid;)
      if (text_of(fmt::format("/proc/{}/comm", pid)) == name + "\n") return pid;
    return 0;
  }
  /// No socket, and no process that has this run's directory in its environment.
  bool nothing_left() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir()))
      if (entry.path().filename().string().starts_with("bellows-ps-")) return false;
    for (const auto& entry : std::filesystem::directory_iterator("/proc"))
      if (text_of(entry.path().string() + "/environ").find("TMPDIR=" + dir()) != std::string::npos)
        return false;
    return true;
  }

 private:
  ScratchDir scratch_;
  std::optional<Child> child_;
};

Words ledger(Words more) {
  more.insert(more.begin(), {PS_LEDGER, "DIR"});
  return more;
}

std::vector<std::string> environment_of(std::vector<const char*> variables, std::uint32_t learner) {
  variables.push_back(nullptr);
  return ps::learner_environment(variables.data(), {{}, "/s", 4, 3}, learner);
}

bool has(const std::vector<std::string>& all, const std::string& wanted) {
  return std::find(all.begin(), all.end(), wanted) != all.end();
}

}  // namespace

Test(ps_learners, each_have_a_device_of_their_own) {
  const auto second = environment_of({"CUDA_VISIBLE_DEVICES=3,5", "A=b", "BELLOWS_SOCKET=/a",
                                      "BELLOWS_PS_LEARNER=9", "BELLOWS_PS_OTHER=1"},
                                     1);
  for (const char* wanted : {"CUDA_VISIBLE_DEVICES=5", "A=b", "BELLOWS_PS_SOCKET=/s",
                             "BELLOWS_PS_LEARNER=1", "BELLOWS_PS_LEARNERS=4", "BELLOWS_PS_OTHER=1"})
    cr_expect(has(second, wanted), "%s", wanted);
  cr_expect_not(has(second, "BELLOWS_SOCKET=/a"));
  cr_expect_not(has(second, "BELLOWS_PS_LEARNER=9"));
  // More learners than devices share them.
  cr_expect(has(environment_of({"CUDA_VISIBLE_DEVICES=3,5"}, 2), "CUDA_VISIBLE_DEVICES=3"));
  cr_expect(has(environment_of({"CUDA_VISIBLE_DEVICES="}, 2), "CUDA_VISIBLE_DEVICES="));
  cr_expect(has(environment_of({"OMP_NUM_THREADS=7"}, 0), "OMP_NUM_THREADS=7"));
  const char* const three[] = {"X=1,2", "GPU_DEVICE_ORDINAL=0", "CUDA_VISIBLE_DEVICES=0,1,2",
                               nullptr};
  const char* const none[] = {"CUDA_VISIBLE_DEVICES=", nullptr};
  cr_expect_eq(ps::gpus_in(three), 3);
  cr_expect_eq(ps::gpus_in(none), 0);
}

// On GPUs of AMD's the numbers of one list count what another leaves: 1 of 1 would be none.
Test(ps_learners, see_one_device_where_there_are_several_lists) {
  const auto all = environment_of({"ZE_AFFINITY_MASK=4,5", "ROCR_VISIBLE_DEVICES=0,1",
                                   "GPU_DEVICE_ORDINAL=0,1", "CUDA_VISIBLE_DEVICES=0,1"},
                                  1);
  for (const char* wanted : {"CUDA_VISIBLE_DEVICES=1", "ROCR_VISIBLE_DEVICES=0,1",
                             "GPU_DEVICE_ORDINAL=0,1", "ZE_AFFINITY_MASK=5"})
    cr_expect(has(all, wanted), "%s", wanted);
  const auto of_amd = environment_of(
      {"GPU_DEVICE_ORDINAL=0,1", "ROCR_VISIBLE_DEVICES=2,3", "CUDA_VISIBLE_DEVICES="}, 1);
  for (const char* wanted :
       {"ROCR_VISIBLE_DEVICES=3", "GPU_DEVICE_ORDINAL=0", "CUDA_VISIBLE_DEVICES="})
    cr_expect(has(of_amd, wanted), "%s", wanted);
  cr_expect(has(environment_of({"GPU_DEVICE_ORDINAL=0,1"}, 1), "GPU_DEVICE_ORDINAL=1"));
}

Test(ps_learners, all_end_and_then_the_server, .timeout = 60) {
  Run run({"--learners=3", "--threads=2"}, ledger({"200"}));
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  for (const char* line : {"[learner 0] learner 0 of 3, life 1, device none\n",
                           "[learner 2] learner 2 of 3, life 1, device none\n",
                           "[learner 0] ledger exact: 3 learners in 3 lives, 600 gradients, 0 in"})
    cr_expect(run.says(line), "%s", run.out().c_str());
  cr_expect(eventually([&] { return run.nothing_left(); }));
}

Test(ps_learners, may_be_asked_for, .timeout = 60) {
  Run run({"--learners=2", "--socket=DIR/s"}, ledger({"400", "--pause", "1000"}));
  const std::string path = run.dir() + "/s";
  ps::PsReport seen;
  cr_expect(eventually([&] {
              const auto report = ps::ask_for_report(path.c_str(), kWaitMs);
              if (report) seen = *report;
              return seen.learners == 2 && seen.updates > 100;
            }),
            "%s", run.err().c_str());
  // Two tensors, and one thread.
  cr_expect_geq(seen.gradients, seen.updates);
  cr_expect_leq(seen.most_staleness, seen.updates);
  cr_expect_leq(seen.staleness, seen.gradients * seen.most_staleness);
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
}

// Else one that joins again and again would have the places of all.
Test(ps_learners, have_one_place_each, .timeout = 60) {
  Run run({"--learners=2"}, ledger({"100", "--again", "40"}));
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  for (const char* line :
       {"a second time: it has joined already, or what it has started, as learner ",
        "ledger exact: 2 learners in 2 lives, 200 gradients, 0 in doubt"})
    cr_expect(run.says(line), "%s", (run.out() + run.err()).c_str());
  // 80 were refused.
  const std::string err = run.err();
  const std::size_t lines = count_of("refuses a learner", err);
  cr_expect_eq(lines, ps::LearnerLines::kMost, "%s", err.c_str());
}

namespace {

/// A ledger whose learner 1 begins when there is a file `go`, or the output has these words.
Words late_ledger(const std::string& words, Words more) {
  Words command = ledger(std::move(more));
  command.insert(command.begin(),
                 {"sh", "-c",
                  fmt::format("[ $BELLOWS_PS_LEARNER = 0 ] || until [ -e $TMPDIR/go ] || "
                              "grep -q '{}' $TMPDIR/out; do sleep 0.05; done; exec \"$@\"",
                              words),
                  "sh"});
  return command;
}

}  // namespace

Test(ps_learners, have_one_place_each_whatever_their_groups, .timeout = 60) {
  Run run({"--learners=2"}, late_ledger("from another", {"100", "--apart", "2"}));
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  for (const char* line : {"from another group: it has joined already, or what it has started",
                           "ledger exact: 2 learners in 2 lives, 200 gradients, 0 in doubt"})
    cr_expect(run.says(line), "%s", (run.out() + run.err()).c_str());
}

Test(ps_learners, find_their_places_whoever_else_comes, .timeout = 60) {
  Run run({"--learners=2", "--socket=DIR/s"}, late_ledger("never said", {"100"}));
  cr_assert(eventually([&] { return run.says("learner 0 joins"); }), "%s", run.err().c_str());
  ChildOptions other;
  other.command = {PS_LEDGER, run.dir(), "100"};
  other.environment = {"BELLOWS_PS_SOCKET=" + run.dir() + "/s", "BELLOWS_PS_LEARNER=1",
                       "BELLOWS_PS_LEARNERS=2"};
  auto child = Child::start(other);
  cr_assert(child.ok() && eventually([&] { return child->poll_exit().has_value(); }));
  cr_expect_eq(child->poll_exit()->code(), 1);
  cr_expect(run.says("refuses a learner: the places left are for learners that bellows-ps has"),
            "%s", run.err().c_str());
  std::ofstream(run.dir() + "/go") << "go";
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
}

Test(ps_learners, lines_of_each_kind_are_said_for_a_while) {
  using Kind = ps::LearnerLines::Kind;
  ps::LearnerLines lines(3);
  auto now = ps::LearnerLines::Clock::now();
  for (const Kind kind : {Kind::join, Kind::end, Kind::put_out, Kind::refusal}) {
    for (std::uint32_t i = 1; i < ps::LearnerLines::kMost; ++i)
      cr_expect_eq(lines.line(kind, "text", now), "text");
    cr_expect_eq(lines.line(kind, "text", now), "text; it says no more of this kind for a minute");
    for (int i = 0; i < 3; ++i) cr_expect_eq(lines.line(kind, "text", now), "");
  }
  now += std::chrono::seconds(61);
  cr_expect_eq(lines.line(Kind::end, "other", now),
               "other; before that, 3 more that it did not say");
}

Test(ps_learners, all_are_told_of_that_join_at_first) {
  ps::LearnerLines lines(40);
  const auto now = ps::LearnerLines::Clock::now();
  for (int i = 0; i < 40; ++i)
    cr_expect(!lines.line(ps::LearnerLines::Kind::join, "joins", now).empty());
  cr_expect_eq(lines.line(ps::LearnerLines::Kind::join, "joins", now), "");
}

Test(ps_learners, one_that_is_killed_comes_back, .timeout = 60) {
  Run run({"--learners=2"}, ledger({"400", "--kill", "1", "100"}));
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  cr_expect(run.says("learner 1 was killed by signal 9 (Killed); it is started again"));
  cr_expect(run.says("ledger exact: 2 learners in 3 lives, 800 gradients, 1 in doubt"), "%s",
            run.out().c_str());
}

Test(ps_learners, updates_give_one_that_fails_new_tries, .timeout = 60) {
  Run run({"--learners=2", "--restarts=1"},
          ledger({"80", "--pause", "1000", "--mortal", "1", "30"}));
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  cr_expect(run.says("ledger exact: 2 learners in 4 lives"), "%s", run.out().c_str());
}

// As timeout(1) has them.
Test(ps_learners, updates_of_other_groups_count, .timeout = 60) {
  Words command = ledger({"80", "--pause", "1000", "--mortal", "1", "30"});
  command.insert(command.begin(), {"sh", "-c", "timeout 50 \"$@\"; exit $?", "sh"});
  Run run({"--learners=2", "--restarts=1"}, command);
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  cr_expect(run.says("ledger exact: 2 learners in 4 lives"), "%s", run.out().c_str());
}

Test(ps_learners, one_that_always_fails_ends_all, .timeout = 60) {
  Run run({"--learners=2", "--restarts=1"}, ledger({"100000", "--pause", "1000", "--fail", "1"}));
  cr_expect_eq(run.status(), 3);
  cr_expect(run.says("gives up: learner 1 exited with status 3; it failed 2 times in a row without "
                     "an update between\n"),
            "%s", run.err().c_str());
  cr_expect(eventually([&] { return run.nothing_left(); }));
}

Test(ps_learners, that_cannot_be_started_are_named, .timeout = 60) {
  Run run({}, {"no-such-program"});
  cr_expect_eq(run.status(), 127);
  cr_expect(run.says("gives up: learner 0 cannot run no-such-program: No such file"), "%s",
            run.err().c_str());
}

Test(ps_learners, go_on_when_the_server_is_killed, .timeout = 60) {
  Run run({"--learners=2", "--threads=2"}, ledger({"1000", "--pause", "1000"}));
  cr_assert(eventually([&] { return run.says("learner 1 joins"); }), "%s", run.err().c_str());
  for (int i = 0; i < 3; ++i) {
    const pid_t server = run.server();
    cr_assert_gt(server, 0);
    kill(server, SIGKILL);
    cr_assert(eventually([&] { return run.server() != 0 && run.server() != server; }));
  }
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  cr_expect(run.says("the server was killed; another goes on with its memory\n"));
  cr_expect(run.says("ledger exact: 2 learners in 2 lives, 2000 gradients, 0 in doubt"), "%s",
            (run.out() + run.err()).c_str());
}

// No socket tells the next server of it.
Test(ps_learners, may_become_another_program_after_the_server_was_killed, .timeout = 60) {
  Run run({"--learners=2", "--restarts=0"},
          ledger({"200", "--pause", "1000", "--again", "1", "--exec", "1", "50"}));
  cr_assert(eventually([&] { return run.says("learner 1 joins"); }), "%s", run.err().c_str());
  kill(run.server(), SIGKILL);
  cr_assert(eventually([&] { return run.says("goes on with 2 learners"); }), "%s",
            run.err().c_str());
  std::ofstream(run.dir() + "/go") << "go";
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  cr_expect(run.says("ledger exact: 2 learners in 3 lives, 400 gradients, 0 in doubt"), "%s",
            (run.out() + run.err()).c_str());
}

Test(ps_learners, nothing_is_left_of_a_killed_one, .timeout = 60) {
  Run run({"--learners=2"}, {"sh", "-c", "sleep 1000 & echo is here; wait"});
  cr_assert(eventually([&] { return run.says("[learner 1] is here"); }), "%s", run.err().c_str());
  cr_assert_not(run.nothing_left());
  run.kill_group();
  cr_expect(eventually([&] { return run.nothing_left(); }));
}

namespace {

/// A learner that leaves a daemon.
const Words kDaemon = {"sh", "-c", "setsid -f sleep 1000; echo is here; exec sleep 1000"};

}  // namespace

Test(ps_learners, what_has_left_their_groups_ends_with_them, .timeout = 60) {
  Run run({}, kDaemon);
  cr_assert(eventually([&] { return run.says("[learner 0] is here"); }), "%s", run.err().c_str());
  run.signal(SIGTERM);
  cr_expect_eq(run.status(), 128 + SIGTERM);
  cr_expect(eventually([&] { return run.nothing_left(); }));
}

Test(ps_learners, what_has_left_their_groups_ends_with_a_killed_one, .timeout = 60) {
  Run run({}, kDaemon);
  cr_assert(eventually([&] { return run.says("[learner 0] is here"); }), "%s", run.err().c_str());
  run.kill_group();
  cr_expect(eventually([&] { return run.nothing_left(); }));
}

Test(ps_learners, what_has_left_is_looked_for_no_longer_than_said) {
  const auto run = ps::LearnerRun::make();
  cr_assert(run.ok());
  ChildOptions options;
  options.command = {"sleep", "1000"};
  options.environment = {"PATH=/usr/bin:/bin", "BELLOWS_PS_RUN=" + run->token(),
                         "BELLOWS_PS_LEARNER=3"};
  auto child = Child::start(options);
  cr_assert(child.ok());
  cr_expect_eq(run->learner_of(child->pid()), 3);
  const auto ends = [&] { return child->poll_exit().has_value(); };
  run->kill_all(ps::LearnerRun::Limit(0));
  run->kill_all_of({0, 2}, kWaitMs * ps::LearnerRun::Limit(1));
  cr_expect_eq(run->learner_of(child->pid()), 3);
  cr_expect_not(ends());
  run->kill_all_of({2, 3}, kWaitMs * ps::LearnerRun::Limit(1));
  cr_expect(eventually(ends));
}

Test(ps_learners, what_has_left_its_group_ends_before_it_is_started_again, .timeout = 60) {
  Run run({},
          {"sh", "-c",
           "if [ -e $TMPDIR/pid ]; then ! grep -qs . /proc/$(cat $TMPDIR/pid)/environ; exit; fi; "
           "setsid -f sh -c 'echo $$ >$TMPDIR/new; mv $TMPDIR/new $TMPDIR/pid; exec sleep 1000'; "
           "until [ -e $TMPDIR/pid ]; do sleep 0.05; done; exit 3"});
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  cr_expect(run.says("learner 0 exited with status 3; it is started again"));
}

// The guard of the one that was killed may be late.
Test(ps_learners, another_one_keeps_its_socket_in_the_same_place, .timeout = 60) {
  std::optional<Run> first(std::in_place, Words{"--socket=DIR/s"}, Words{"sleep", "1000"});
  const std::string path = first->dir() + "/s";
  cr_assert(eventually([&] { return first->says("is ready"); }), "%s", first->err().c_str());
  const pid_t guard = first->child("ps-guard");
  cr_assert_gt(guard, 0);
  kill(guard, SIGSTOP);
  first->kill_group();
  // Its server ends a moment later.
  cr_assert(eventually([&] {
    plain::Handle probe;
    return plain::connect_to(path.c_str(), &probe, 1) != 0;
  }));
  Run second(
      {"--socket=" + path},
      {"sh", "-c", "trap 'echo is told; exit' TERM; echo is here; while :; do sleep 0.1; done"});
  cr_assert(eventually([&] { return second.says("is here"); }), "%s", second.err().c_str());
  kill(guard, SIGCONT);
  cr_assert(eventually([&] { return kill(guard, 0) != 0; }));
  cr_expect(ps::ask_for_report(path.c_str(), kWaitMs).has_value());
  second.signal(SIGTERM);
  cr_expect_eq(second.status(), 128 + SIGTERM);
  // Nor has it killed the learner.
  cr_expect(second.says("is told") && !second.says("started again"), "%s",
            (second.out() + second.err()).c_str());
}

// As sbatch has it, a job has the environment of who has submitted it.
Test(ps_learners, what_is_of_another_job_lives_on, .timeout = 60) {
  Run run({}, {"sh", "-c",
               "SLURM_JOB_ID=7 setsid -f sh -c 'echo $$ >$TMPDIR/pid; exec sleep 1000'; "
               "until [ -s $TMPDIR/pid ]; do sleep 0.05; done"});
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  cr_expect_not(run.nothing_left());
  std::ifstream file(run.dir() + "/pid");
  pid_t pid = 0;
  cr_assert(file >> pid && kill(pid, SIGKILL) == 0);
  cr_expect(eventually([&] { return run.nothing_left(); }));
}

Test(ps_learners, end_when_it_is_told, .timeout = 60) {
  Run run({"--learners=2"}, {"sh", "-c",
                             "[ $BELLOWS_PS_LEARNER = 0 ] && trap '' TERM; echo is here; "
                             "while :; do sleep 0.1; done"});
  cr_assert(eventually([&] { return run.says("[learner 0] is here"); }), "%s", run.err().c_str());
  run.signal(SIGTERM);
  // Learners that were not done must not look so.
  cr_expect_eq(run.status(), 128 + SIGTERM);
  cr_expect(eventually([&] { return run.nothing_left(); }));
}

Test(ps_learners, long_lines_and_the_last_one_are_labelled, .timeout = 60) {
  Run run({}, {"sh", "-c", "head -c 10000 /dev/zero | tr '\\0' x; echo; printf end; echo e >&2"});
  cr_expect_eq(run.status(), 0, "%s", run.err().c_str());
  const std::string out = run.out();
  cr_expect_eq(std::count(out.begin(), out.end(), 'x'), 10000);
  cr_expect(run.says("[learner 0] end\n"), "%s", out.c_str());
  cr_expect(run.says("[learner 0] e\n"));
}
