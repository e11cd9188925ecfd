// SPDX-License-Identifier: Apache-2.0
// Learners that join, leave, are stopped and killed at random, under servers to which the same is
// done, with sequences that wrap: tens of thousands of updates, a million with BELLOWS_LONG=1. Then
// starts and ends: a hundred, ten thousand with BELLOWS_LONG=1.
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/unit/paramserver/ps_processes.h"

using namespace bellows;
using namespace bellows::ps_test;
using std::chrono::milliseconds;

namespace {

using Random = std::mt19937_64;

constexpr std::uint64_t kLives = 1000;
constexpr std::uint64_t kMarks = 192;
constexpr std::size_t kAtOnce = 4;

bool is_long() {
  const char* said = std::getenv("BELLOWS_LONG");
  return said && *said == '1';
}

/// The second tensor has rows of one element.
bellows_ps_config with_rows() {
  static constexpr std::uint64_t kWidths[] = {0, 1};
  bellows_ps_config config = BELLOWS_PS_CONFIG_INIT;
  config.rate = 1;
  config.wait_ms = kWaitMs;
  config.width = kWidths;
  return config;
}

/// A process that takes part once. Its gradients are its marks, and in a tensor of their own the
/// number 1 at its place, which is a row: that one counts how many were applied, the marks say
/// which.
pid_t start_life(std::uint32_t life, std::uint32_t count, Counters& counters) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(120);
  OpenLearner open({kMarks, kLives}, with_rows());
  if (open.code != BELLOWS_PS_OK) _exit(1);
  for (std::uint32_t q = 0; q < count; ++q) {
    if (bellows_ps_begin(open.ps) != BELLOWS_PS_OK) _exit(2);
    auto* const marks = static_cast<float*>(bellows_ps_gradient(open.ps, 0));
    for (std::uint64_t i = 0; i < kMarks; ++i) marks[i] = mark(life, q, i);
    const std::uint64_t row = life;
    if (bellows_ps_gradient_rows(open.ps, 1, &row, 1) != BELLOWS_PS_OK) _exit(2);
    *static_cast<float*>(bellows_ps_gradient(open.ps, 1)) = 1;
    if (bellows_ps_push(open.ps, 1) != BELLOWS_PS_OK) _exit(3);
    ++counters[life];
    if (q % 3 == 0 && bellows_ps_pull(open.ps) != BELLOWS_PS_OK) _exit(4);
  }
  _exit(open.leave() == BELLOWS_PS_OK ? 0 : 5);
}

/// One server, and what happens to it and to its learners until so many updates are made.
class Round {
 public:
  Round(std::uint64_t seed, std::uint32_t updates) : random_(seed), updates_(updates) {}

  void run() {
    OpenLearner reader({kMarks, kLives}, with_rows());
    cr_assert_eq(reader.code, BELLOWS_PS_OK, "%s", reader.error().c_str());
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (pushed() < updates_ && std::chrono::steady_clock::now() < end) {
      while (running_.size() < kAtOnce && lives_ < kLives) start();
      std::this_thread::sleep_for(milliseconds(below(3)));
      happen();
      reap();
    }
    cr_expect_geq(pushed(), updates_, "too slow: %u updates", pushed());
    for (const auto& [life, child] : running_) kill_life(life);
    reap();
    cr_assert(eventually([&] { return slots() == 1; }), "seats of learners that ended are left");
    judge(reader.pull());
    total += pushed();
    deaths += killed_.size();
    servers += server_kills_;
  }

  static inline std::uint64_t total = 0, deaths = 0, servers = 0;

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  std::uint32_t pushed() {
    std::uint32_t all = 0;
    for (std::uint32_t life = 0; life < lives_; ++life) all += counters_[life];
    return all;
  }
  int slots() const { return slots_of(server_.pid()); }
  void start() {
    // Most live longer than until something happens to them.
    const auto count = static_cast<std::uint32_t>(below(2) ? below(300) : updates_);
    counts_[lives_] = count;
    running_[lives_] = start_life(lives_, count, counters_);
    ++lives_;
  }
  void kill_life(std::uint32_t life) {
    ::kill(running_[life], SIGKILL);
    killed_.insert(life);
  }
  std::uint32_t any() { return std::next(running_.begin(), below(running_.size()))->first; }
  void happen() {
    if (running_.empty()) return;
    const pid_t worker = server_.worker();
    const std::uint64_t what = below(100);
    if (what < 4) {
      kill_life(any());
    } else if (what < 8) {
      stop(running_[any()]);
    } else if (what < 10) {
      const std::uint32_t life = any();
      stop(running_[life]);
      kill_life(life);
    } else if (what < 15 && worker != 0 && server_kills_ < 8) {
      // After more in a minute bellows-ps gives up.
      ++server_kills_;
      if (below(2)) stop(worker);
      ::kill(worker, SIGKILL);
    } else if (what < 18 && worker != 0) {
      stop(worker);
    }
  }
  /// For a while.
  void stop(pid_t process) {
    ::kill(process, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(below(10)));
    ::kill(process, SIGCONT);
  }
  void reap() {
    for (auto it = running_.begin(); it != running_.end();) {
      const bool is_killed = killed_.count(it->first) != 0;
      int status = 0;
      if (waitpid(it->second, &status, is_killed ? 0 : WNOHANG) == 0) {
        ++it;
        continue;
      }
      cr_expect(is_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
                "learner %u: status %d", it->first, status);
      // It may have been too late to kill it.
      if (WIFEXITED(status)) killed_.erase(it->first);
      it = running_.erase(it);
    }
  }
  void judge(const std::vector<float>& weights) {
    std::vector<std::uint32_t> applied(lives_);
    for (std::uint32_t life = 0; life < lives_; ++life) {
      applied[life] = static_cast<std::uint32_t>(-weights[kMarks + life]);
      const std::uint32_t pushed = counters_[life];
      cr_expect(applied[life] == pushed || (killed_.count(life) && applied[life] == pushed + 1),
                "learner %u pushed %u gradients, of which %u were applied", life, pushed,
                applied[life]);
      cr_expect(killed_.count(life) || pushed == counts_[life]);
    }
    cr_expect(is_sum({weights.begin(), weights.begin() + kMarks}, applied));
  }

  Random random_;
  std::uint32_t updates_;
  Server server_{{"--threads=2", "--learners=64", "--first-sequence=4294967200"}};
  Counters counters_;
  std::uint32_t lives_ = 0;
  std::map<std::uint32_t, std::uint32_t> counts_;
  std::map<std::uint32_t, pid_t> running_;
  std::set<std::uint32_t> killed_;
  unsigned server_kills_ = 0;
};

std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.insert(entry.path().filename().string());
  return names;
}

/// One start and end of bellows-ps: its learner leaves, is killed, or sees it told to end, or
/// killed.
void start_and_end(unsigned kind) {
  Server server;
  Counters counters;
  const pid_t learner = start_learner(0, kind == 0 ? 20 : 1'000'000, counters);
  cr_assert(eventually([&] { return counters[0] > 5; }));
  if (kind == 0) cr_expect_eq(exit_code(learner), 0);
  if (kind == 1) {
    kill(learner, SIGKILL);
    cr_expect_eq(exit_code(learner), -1);
  }
  const pid_t worker = server.worker();
  kill(server.pid(), kind == 3 ? SIGKILL : SIGTERM);
  cr_assert(eventually([&] { return server.has_ended(); }));
  const auto is_gone = [worker] {
    // This process is the next parent of it.
    (void)waitpid(worker, nullptr, WNOHANG);
    return kill(worker, 0) != 0;
  };
  cr_expect(eventually(is_gone), "the server outlives its parent");
  if (kind >= 2) cr_expect_gt(exit_code(learner), 0, "a learner does not notice the end");
  cr_expect(kind == 3 || access(server.socket().c_str(), F_OK) != 0, "the socket is left");
}

}  // namespace

Test(ps_chaos, each_gradient_counts_once_whatever_happens, .timeout = 3600) {
  const std::uint64_t rounds = is_long() ? 20 : 4;
  const std::uint32_t updates = is_long() ? 50'000 : 20'000;
  for (std::uint64_t seed = 1; seed <= rounds; ++seed) Round(seed, updates).run();
  std::fprintf(stderr, "%s\n",
               fmt::format("{} updates, {} learners and {} servers killed", Round::total,
                           Round::deaths, Round::servers)
                   .c_str());
}

Test(ps_chaos, starts_and_ends_leave_nothing, .timeout = 3600) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto mine = [] { return names_in("/proc/self/fd").size(); };
  start_and_end(0);
  const auto before = mine();
  const auto shared = names_in("/dev/shm");
  const unsigned count = is_long() ? 10'000 : 100;
  for (unsigned i = 0; i < count; ++i) {
    start_and_end(i % 32 < 30 ? i % 2 : 2 + i % 2);
    cr_assert_eq(mine(), before, "after %u: %zu descriptors, and before %zu", i, mine(), before);
    // What a parent that was killed has left.
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    cr_assert(waitpid(-1, nullptr, WNOHANG) < 0, "a process is left");
  }
  // Others may use it meanwhile.
  for (const std::string& name : names_in("/dev/shm"))
    cr_expect(shared.count(name) || name.find("bellows") == std::string::npos, "/dev/shm/%s",
              name.c_str());
}
