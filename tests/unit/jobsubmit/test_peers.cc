// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "jobsubmit/slurmctld/peers.h"
#include "jobsubmit/slurmctld/watcher.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

constexpr Peers::Times kQuick{.period = 0ms, .grace = 0ms, .stale = 1h};
constexpr const char* kOne = "1111111111111111";
constexpr const char* kTwo = "2222222222222222";

std::string path_of(const ScratchDir& dir, const std::string& host) {
  return dir.path() + "/bellows.policy." + host;
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

/// One of two controllers with a policy file of its own.
class Controller {
 public:
  Controller(const ScratchDir& state, const std::string& host, Peers::Times times,
             const std::string& tenants)
      : path_(own_.path() + "/bellows.yaml") {
    set(tenants);
    watcher_ = std::make_unique<PolicyWatcher>(
        path_, 5ms,
        [this](const std::string&, const std::string& problem) {
          const std::lock_guard lock(mutex_);
          if (!problem.empty()) said_.push_back(problem);
        },
        std::span<const LuaField>(), 1h, std::make_unique<Peers>(state.path(), host, times));
  }
  void set(const std::string& tenants) const {
    write(path_ + ".new", "version: 1\ntenants: {" + tenants + "}\n");
    cr_assert(std::rename((path_ + ".new").c_str(), path_.c_str()) == 0);
  }
  PolicyWatcher::State state() const { return watcher_->current(); }
  std::vector<std::string> said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  /// Waits at most 10 s for what `done` says of the state.
  template <typename Done>
  bool reaches(const Done& done) const {
    for (int i = 0; i < 1000; ++i) {
      if (done(state())) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

 private:
  ScratchDir own_;
  std::string path_;
  std::mutex mutex_;
  std::vector<std::string> said_;
  std::unique_ptr<PolicyWatcher> watcher_;
};

PolicyRecord record(const char* host, const char* digest, std::int64_t since) {
  return {host, digest, since};
}

bool differs(const PolicyWatcher::State& state) { return state.other != nullptr; }
bool agrees(const PolicyWatcher::State& state) { return !state.other; }

}  // namespace

Test(peers, two_controllers_notice_each_other, .timeout = 60) {
  const ScratchDir state;
  Controller east(state, "east", {5ms, 20ms, 1h}, "a: ");
  Controller west(state, "west", {5ms, 20ms, 1h}, "b: ");
  cr_assert(east.reaches(differs));
  cr_assert(west.reaches(differs));
  cr_expect(east.state().other->host == "west");
  cr_expect(east.state().other->digest == west.state().policy->digest);
  cr_expect(east.state().other->since == west.state().since);
  cr_expect(west.state().other->host == "east");
  cr_assert(east.said().size() == 1, "it is said once");
  const std::string said = east.said()[0];
  for (const std::string& part : {std::string("different policies: controller east has digest "),
                                  east.state().policy->digest + " in force since ",
                                  std::string("; controller west has digest "),
                                  west.state().policy->digest + " in force since "})
    cr_expect(said.find(part) != std::string::npos, "\"%s\" is not in: %s", part.c_str(),
              said.c_str());

  west.set("a: ");
  cr_expect(east.reaches(agrees) && west.reaches(agrees));
}

Test(peers, one_without_a_policy_differs, .timeout = 20) {
  const ScratchDir state;
  Peers east(state.path(), "east", kQuick);
  Peers west(state.path(), "west", kQuick);
  cr_assert(east.meet(kOne, 7).ok());
  const auto other = west.meet("", 0);
  cr_assert(other.ok() && *other);
  cr_expect(**other == record("east", kOne, 7));
  const auto none = east.meet(kOne, 7);
  cr_assert(none.ok() && *none);
  cr_expect(**none == record("west", "", 0));
}

Test(peers, a_file_that_both_share_may_change, .timeout = 20) {
  const ScratchDir state;
  Peers east(state.path(), "east", {0ms, 300ms, 1h});
  Peers west(state.path(), "west", {0ms, 300ms, 1h});
  cr_expect(not *east.meet(kOne, 1) && not *west.meet(kOne, 1));
  const auto begin = std::chrono::steady_clock::now();
  cr_expect(not *east.meet(kTwo, 2), "west will read it in a moment");
  while (!*east.meet(kTwo, 2)) std::this_thread::sleep_for(1ms);
  cr_expect(std::chrono::steady_clock::now() - begin >= 300ms);
  cr_expect(not *west.meet(kTwo, 3));
  cr_expect(not *east.meet(kTwo, 2));
}

Test(peers, a_dead_controllers_record_is_not_a_policy, .timeout = 20) {
  const ScratchDir state;
  Peers east(state.path(), "east", kQuick);
  Peers west(state.path(), "west", kQuick);
  cr_assert(west.meet(kTwo, 1).ok() && *east.meet(kOne, 1));
  timespec times[2] = {{0, UTIME_OMIT}, {::time(nullptr) - 3700, 0}};
  cr_assert(::utimensat(AT_FDCWD, path_of(state, "west").c_str(), times, 0) == 0);
  cr_expect(not *east.meet(kOne, 1));
  cr_expect(*west.meet(kTwo, 1), "it writes its own record again");
  cr_expect(*east.meet(kOne, 1));
}

Test(peers, what_is_not_a_record, .timeout = 20) {
  const ScratchDir state;
  Peers east(state.path(), "east", kQuick);
  const std::string good = std::string("bellows-policy/1 west 1 ") + kTwo + "\n";
  write(path_of(state, "west"), good);
  cr_assert(*east.meet(kOne, 1));
  for (const std::string& bad :
       {std::string(), std::string("bellows-policy/1 west 1"), "bellows-policy/2" + good.substr(16),
        std::string("bellows-policy/1 north 1 22"), std::string("bellows-policy/1 west -1 22"),
        std::string("bellows-policy/1 west 1 2%2"), std::string(5000, 'x')}) {
    write(path_of(state, "west"), bad);
    cr_expect(not *east.meet(kOne, 1), "%s", bad.c_str());
  }
  write(path_of(state, "west.tmp.7"), good);
  write(path_of(state, "we st"), std::string("bellows-policy/1 we st 1 22"));
  cr_expect(not *east.meet(kOne, 1));
}

Test(peers, a_directory_that_is_not_there, .timeout = 20) {
  Peers east("/nonexistent/state", "east", kQuick);
  const auto other = east.meet(kOne, 1);
  cr_assert(not other.ok());
  cr_expect(other.error().text.find("/nonexistent/state") != std::string::npos);
}

Test(peers, a_name_that_no_file_can_have, .timeout = 20) {
  const ScratchDir state;
  Peers odd(state.path(), "../x", kQuick);
  cr_assert(odd.meet(kOne, 1).ok());
  cr_expect(::access(path_of(state, "unnamed").c_str(), R_OK) == 0);
}
