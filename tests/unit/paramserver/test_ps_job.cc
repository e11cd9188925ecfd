// SPDX-License-Identifier: Apache-2.0
// bellows-ps as the rank of a job whose agent and launcher are this test: what follows after
// Slurm's SIGTERM.
#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "common/child.h"
#include "paramserver/wire/ps_report.h"
#include "tests/unit/checkpoint/job_agent_support.h"
#include "tests/unit/paramserver/ps_support.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::checkpoint_test;

namespace {

constexpr int kReportMs = 20000;

/// With one learner, which bellows-ps starts.
class Job {
 public:
  Job() : agent(scratch_.path(), "n1") {
    agent.tell(hello_for(scratch_.path() + "/ck", 1, {{"n1", {0}}}));
    agent.tell(command::Restore{});
    ChildOptions options;
    options.command = {"sh", "-c", "exec \"$@\" >\"$0/out\" 2>&1", scratch_.path(), BELLOWS_PS};
    for (const std::string& word :
         {"--socket=" + socket(), std::string("--checkpoint-every=0"), std::string("--"),
          std::string(PS_LEDGER), scratch_.path(), std::string("20000"), std::string("--pause"),
          std::string("1000")})
      options.command.push_back(word);
    options.environment = {"BELLOWS_SOCKET=" + agent.socket(), "BELLOWS_RANK=0",
                           "BELLOWS_WORLD_SIZE=1"};
    for (char** variable = environ; *variable; ++variable)
      options.environment.emplace_back(*variable);
    options.death_signal = SIGKILL;
    auto started = Child::start(options);
    cr_assert(started.ok());
    child_.emplace(std::move(*started));
    cr_assert(trains_on(), "%s", out().c_str());
  }

  std::string socket() const { return scratch_.path() + "/ps"; }
  std::string out() const { return text_of(scratch_.path() + "/out"); }
  bool says(const std::string& text) const { return out().find(text) != std::string::npos; }
  std::uint64_t updates() const {
    const auto report = ps::ask_for_report(socket().c_str(), kReportMs);
    return report ? report->updates : 0;
  }
  /// By more than what is under way.
  bool trains_on() const {
    const std::uint64_t before = updates();
    return ps_test::eventually([&] { return updates() > before + 50; });
  }
  /// To the process that was started alone, as Slurm sends it. Returns once it has been taken.
  void announce() const {
    kill(child_->pid(), SIGTERM);
    const std::string status = "/proc/" + std::to_string(child_->pid()) + "/status";
    cr_assert(ps_test::eventually(
        [&] { return text_of(status).find("ShdPnd:\t0000000000000000") != std::string::npos; }));
  }
  /// As a shell has it; -1: it does not end.
  int status() {
    return ps_test::eventually([this] { return child_->poll_exit().has_value(); })
               ? child_->poll_exit()->code()
               : -1;
  }

 private:
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  ScratchDir scratch_;
  std::optional<Child> child_;

 public:
  JobAgentThread agent;
};

}  // namespace

Test(ps_job, trains_on_after_an_announcement_until_it_is_to_stop, .timeout = 60) {
  Job job;
  job.announce();
  cr_expect(job.trains_on(), "%s", job.out().c_str());
  const std::uint64_t stop = job.updates() + 100;
  job.agent.tell(command::SetGate{stop});
  job.agent.tell(command::SetStop{stop});
  const auto shard = job.agent.await<event::Shard>();
  cr_assert(shard && shard->step >= stop, "%s", job.out().c_str());
  job.agent.tell(command::Commit{shard->step, {shard->file}});
  cr_assert(job.agent.await<event::Committed>());
  job.agent.tell(command::Committed{shard->step});
  cr_expect_eq(job.status(), 0, "%s", job.out().c_str());
  cr_expect(job.says("stops at update "), "%s", job.out().c_str());
}

// As with scancel, when the launcher and the agent end at once.
Test(ps_job, ends_with_its_agent, .timeout = 60) {
  Job job;
  job.announce();
  job.agent.end();
  cr_expect_eq(job.status(), 1, "%s", job.out().c_str());
  cr_expect(job.says("has no agent to save the training"), "%s", job.out().c_str());
}
