// SPDX-License-Identifier: Apache-2.0
// The process above a keeper: whatever is killed is started again.
#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/base/program_output.h"
#include "pool/keeper/supervisor.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::pool;
using namespace std::chrono_literals;

namespace {

void note(const std::string& path, pid_t pid) { std::ofstream(path, std::ios::app) << pid << "\n"; }

/// A supervisor in a process of its own. Its work and its proxy write their ids into files.
class Supervised {
 public:
  explicit Supervised(std::function<int()> work) {
    supervisor_ = fork();
    if (supervisor_ != 0) return;
    const auto tell = [this, work = std::move(work)] {
      note(dir_.path() + "/work", getpid());
      return work();
    };
    SupervisorOptions options{
        .work = tell,
        .helpers = {{"proxy", {"sh", "-c", "echo $$ >>" + dir_.path() + "/proxy; exec sleep 100"}}},
        .say = [](const std::string&) {}};
    _exit(Supervisor(std::move(options)).run());
  }
  ~Supervised() {
    if (supervisor_ > 0) kill(supervisor_, SIGKILL);
    if (supervisor_ > 0) waitpid(supervisor_, nullptr, 0);
  }
  std::vector<pid_t> ids(const char* whose) const {
    std::ifstream file(dir_.path() + "/" + whose);
    std::vector<pid_t> ids;
    for (pid_t id = 0; file >> id;) ids.push_back(id);
    return ids;
  }
  bool has(const char* whose, std::size_t starts) const {
    for (int i = 0; ids(whose).size() < starts && i < 1000; ++i) std::this_thread::sleep_for(10ms);
    return ids(whose).size() == starts;
  }
  int wait_for_end() {
    int status = -1;
    waitpid(std::exchange(supervisor_, -1), &status, 0);
    return status;
  }
  pid_t pid() const { return supervisor_; }

 private:
  ScratchDir dir_;
  pid_t supervisor_ = -1;
};

int wait_for_ever() {
  signal(SIGTERM, [](int) { _exit(143); });
  for (;;) pause();
}

bool is_gone(pid_t pid) {
  for (int i = 0; kill(pid, 0) == 0 && i < 1000; ++i) std::this_thread::sleep_for(10ms);
  return kill(pid, 0) != 0;
}

}  // namespace

Test(pool_supervisor, who_is_killed_is_started_again_and_the_other_goes_on, .timeout = 60) {
  Supervised all(wait_for_ever);
  cr_assert(all.has("work", 1) && all.has("proxy", 1));
  kill(all.ids("work")[0], SIGKILL);
  cr_assert(all.has("work", 2));
  kill(all.ids("proxy")[0], SIGKILL);
  cr_assert(all.has("proxy", 2));
  cr_expect_eq(all.ids("work").size(), 2);
  cr_expect_eq(kill(all.ids("work")[1], 0), 0);
}

Test(pool_supervisor, nobody_outlives_it, .timeout = 60) {
  Supervised all(wait_for_ever);
  cr_assert(all.has("work", 1) && all.has("proxy", 1));
  const pid_t work = all.ids("work")[0], proxy = all.ids("proxy")[0];
  kill(all.pid(), SIGKILL);
  (void)all.wait_for_end();
  cr_expect(is_gone(work));
  cr_expect(is_gone(proxy));
}

Test(pool_supervisor, its_exit_code_is_that_of_the_work, .timeout = 60) {
  Supervised all([] { return 7; });
  cr_expect_eq(WEXITSTATUS(all.wait_for_end()), 7);
}

Test(pool_supervisor, a_signal_ends_the_work_and_then_all, .timeout = 60) {
  Supervised all(wait_for_ever);
  cr_assert(all.has("work", 1) && all.has("proxy", 1));
  const pid_t proxy = all.ids("proxy")[0];
  kill(all.pid(), SIGTERM);
  cr_expect_eq(WEXITSTATUS(all.wait_for_end()), 143);
  cr_expect(is_gone(proxy));
}

Test(pool_supervisor, who_dies_again_and_again_is_given_up, .timeout = 60) {
  Supervised all([] {
    raise(SIGKILL);
    return 0;
  });
  cr_expect_eq(WEXITSTATUS(all.wait_for_end()), 1);
  cr_expect_eq(all.ids("work").size(), 11);
}

Test(pool_supervisor, what_a_killed_keeper_runs_ends_with_it, .timeout = 60) {
  const ScratchDir dir;
  const std::string file = dir.path() + "/sbatch";
  const Supervised supervised([&] {
    // The first one is killed while it submits.
    if (access(file.c_str(), F_OK) == 0) pause();
    (void)output_of(
        {"sh", "-c", "echo $$ >" + file + ".new; mv " + file + ".new " + file + "; exec sleep 100"},
        100s, 100);
    return 0;
  });
  cr_assert(supervised.has("work", 1));
  for (int i = 0; access(file.c_str(), F_OK) != 0 && i < 1000; ++i)
    std::this_thread::sleep_for(10ms);
  pid_t program = 0;
  std::ifstream(file) >> program;
  cr_assert_gt(program, 0);
  cr_assert_eq(kill(supervised.ids("work")[0], SIGKILL), 0);
  cr_assert(supervised.has("work", 2));
  cr_expect(is_gone(program));
}
