// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "jobsubmit/lua/hook.h"
#include "jobsubmit/policy/policy.h"
#include "jobsubmit/slurmctld/peers.h"
#include "jobsubmit/slurmctld/people.h"

namespace bellows {

/// Keeps the policy file's newest readable content at hand. A thread of its own looks at the file
/// each `period` (also on network file systems, where inotify says nothing), reads and parses it
/// there together with the Lua script that it names, and swaps them in whole, the script compiled;
/// callers never wait for a file. A bad or missing one leaves the last good policy in force. The
/// same thread looks up the users and groups that the policy names, again from time to time, and
/// compares the policy with that of a second controller. Any number of threads may call current().
class PolicyWatcher {
 public:
  struct State {
    std::shared_ptr<const Policy> policy;  ///< null: none was ever read
    std::shared_ptr<LuaHook> hook;         ///< the policy's script; null: it has none in force
    std::time_t since = 0;                 ///< when `policy` came into force
    std::string problem;                   ///< why the newest file is not in force; empty: it is
    std::shared_ptr<const People> people;  ///< null: not looked up yet
    std::shared_ptr<const PolicyRecord> other;  ///< a controller with another policy; null: none
  };
  /// Called from the watcher's thread (and once from the constructor) at each change of the file:
  /// with an empty problem after a good read. Also when users or groups cannot be looked up, and
  /// when another controller's policy differs. The problem says what stays in force.
  using Report = std::function<void(const std::string& path, const std::string& problem)>;

  /// Reads once before it returns; users and groups come later. Never fails: a missing or bad file
  /// is a State. They are looked up again after each `people_period`. `job_fields` are what scripts
  /// see of jobs, and outlive the object. Without `peers` there is no second controller.
  PolicyWatcher(std::string path, std::chrono::milliseconds period, Report report,
                std::span<const LuaField> job_fields = {},
                std::chrono::milliseconds people_period = std::chrono::minutes(5),
                std::unique_ptr<Peers> peers = nullptr);
  /// Joins the thread.
  ~PolicyWatcher();
  PolicyWatcher(const PolicyWatcher&) = delete;
  PolicyWatcher& operator=(const PolicyWatcher&) = delete;

  State current() const;

 private:
  void look(bool may_wait);
  void run();
  struct Loaded {
    std::shared_ptr<const Policy> policy;
    std::shared_ptr<LuaHook> hook;
  };
  Result<Loaded> load();
  void read(bool may_wait);
  void refresh_people();
  void meet_peers();
  std::shared_ptr<const People> ask_people(const Policy& policy);

  const std::string path_;
  const std::chrono::milliseconds period_;
  const std::chrono::milliseconds people_period_;
  const Report report_;
  const std::span<const LuaField> job_fields_;
  // For the watcher's thread only:
  std::string seen_;         ///< identity of the file last read
  std::string script_;       ///< path of the script that it names; empty: none is needed
  std::string script_seen_;  ///< identity of that
  std::string people_problem_;
  const std::unique_ptr<Peers> peers_;
  std::string peers_problem_;
  std::chrono::steady_clock::time_point people_due_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  State state_;
  std::thread thread_;
};

}  // namespace bellows
