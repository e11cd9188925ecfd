// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/watcher.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <utility>

#include "common/fd.h"

namespace bellows {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

/// Differs whenever the file may have other content; also tells missing from unreadable.
std::string identity(const std::string& path) {
  struct stat s;
  if (::stat(path.c_str(), &s) != 0) return fmt::format("errno {}", errno);
  return fmt::format("{} {} {} {}.{} {}.{} {:o}", s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec,
                     s.st_mtim.tv_nsec, s.st_ctim.tv_sec, s.st_ctim.tv_nsec, s.st_mode);
}

/// One host's policy, for a sentence.
std::string told(const PolicyRecord& record) {
  if (record.digest.empty()) return fmt::format("controller {} has none in force", record.host);
  return fmt::format("controller {} has digest {} in force since {:%F %T}", record.host,
                     record.digest, fmt::localtime(static_cast<std::time_t>(record.since)));
}

/// A policy without names needs nobody: that is known at once.
std::shared_ptr<const People> nobody(const Policy& policy) {
  return People::named_in(policy) && policy.enabled ? nullptr : std::make_shared<const People>();
}

}  // namespace

PolicyWatcher::PolicyWatcher(std::string path, std::chrono::milliseconds period, Report report,
                             std::span<const LuaField> job_fields,
                             std::chrono::milliseconds people_period, std::unique_ptr<Peers> peers)
    : path_(std::move(path)),
      period_(period),
      people_period_(people_period),
      report_(std::move(report)),
      job_fields_(job_fields),
      peers_(std::move(peers)) {
  look(false);
  // Signals belong to the host process: its own threads wait for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PolicyWatcher::~PolicyWatcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

PolicyWatcher::State PolicyWatcher::current() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void PolicyWatcher::run() {
  std::unique_lock lock(mutex_);
  do {
    lock.unlock();
    look(true);
    lock.lock();
  } while (!wake_.wait_for(lock, period_, [this] { return stop_; }));
}

void PolicyWatcher::look(bool may_wait) {
  try {
    std::string now = identity(path_);
    if (now != seen_ || (!script_.empty() && identity(script_) != script_seen_)) {
      seen_ = std::move(now);
      read(may_wait);
    }
    if (may_wait) refresh_people();
    if (may_wait && peers_) meet_peers();
  } catch (const std::exception&) {
    // Out of memory. The old policy stays, and the next look tries again.
    seen_.clear();
  }
}

Result<PolicyWatcher::Loaded> PolicyWatcher::load() {
  auto text = read_file(path_, kMostBytes);
  if (!text) return text.error();
  auto policy = load_policy(*text, path_);
  if (!policy) return policy.error();
  // The kill switch must work with any script, even a broken one.
  script_ = policy->enabled ? policy->lua.path : "";
  if (script_.empty()) return Loaded{std::make_shared<const Policy>(*std::move(policy)), nullptr};
  // Before the read: what changes during it is seen the next time.
  script_seen_ = identity(script_);
  auto script = read_file(script_, kMostBytes);
  if (!script) return script.error();
  policy->lua.source = *std::move(script);
  auto hook = LuaHook::load(policy->lua, job_fields_);
  if (!hook) return hook.error();
  return Loaded{std::make_shared<const Policy>(*std::move(policy)),
                std::make_shared<LuaHook>(*std::move(hook))};
}

void PolicyWatcher::read(bool may_wait) {
  auto loaded = load();
  const std::string problem = loaded ? "" : loaded.error().text;
  std::shared_ptr<const People> people;
  if (loaded) {
    people = nobody(*loaded->policy);
    // Asked before the policy is in force, so that nobody is refused meanwhile.
    if (!people && may_wait) people = ask_people(*loaded->policy);
  }
  {
    const std::lock_guard lock(mutex_);
    if (loaded) {
      // The old ones go after the lock, for which slurmctld may be waiting.
      std::swap(state_.policy, loaded->policy);
      std::swap(state_.hook, loaded->hook);
      state_.people = people;
      state_.since = std::time(nullptr);
    }
    state_.problem = problem;
  }
  report_(path_, problem.empty() ? "" : problem + "; the policy before it, if any, stays in force");
}

void PolicyWatcher::refresh_people() {
  const State state = current();
  if (!state.policy || nobody(*state.policy)) return;
  if (state.people && std::chrono::steady_clock::now() < people_due_) return;
  auto people = ask_people(*state.policy);
  if (!people) return;
  const std::lock_guard lock(mutex_);
  state_.people = std::move(people);
}

void PolicyWatcher::meet_peers() {
  const State state = current();
  const std::string digest = state.policy ? state.policy->digest : "";
  const auto other = peers_->meet(digest, state.since);
  std::string problem;
  if (!other)
    problem = fmt::format("the policy of a second controller is unknown: {}", other.error().text);
  else if (*other)
    problem = fmt::format(
        "the controllers have different policies: {}; {}; a takeover changes what is admitted "
        "until "
        "both have the same file",
        told({peers_->host(), digest, state.since}), told(**other));
  if (problem != peers_problem_ && !problem.empty())
    report_(path_, fmt::format("{}: {}", path_, problem));
  peers_problem_ = problem;
  const std::lock_guard lock(mutex_);
  state_.other = other ? *other : nullptr;
}

std::shared_ptr<const People> PolicyWatcher::ask_people(const Policy& policy) {
  auto people = People::look_up(policy);
  people_due_ = std::chrono::steady_clock::now() + people_period_;
  const std::string problem = people ? "" : people.error().text;
  if (problem != people_problem_ && !problem.empty())
    report_(path_,
            fmt::format("{}: {}; what was known about users and groups, if anything, stays in "
                        "force",
                        path_, problem));
  people_problem_ = problem;
  return people ? std::make_shared<const People>(*std::move(people)) : nullptr;
}

}  // namespace bellows
