// SPDX-License-Identifier: Apache-2.0
#include "launcher/steer/steer_process.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <thread>

#include "launcher/base/job_paths.h"
#include "launcher/steer/control_step.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

// For what looks at the clock and at signals itself.
constexpr auto kGrace = 500ms;
constexpr auto kLook = 100ms;

volatile std::sig_atomic_t interrupted = 0;

void on_interrupt(int) { interrupted = 1; }

void print_time(std::FILE* to, const std::string& text) {
  fmt::print(to, "{:%H:%M:%S} {}\n", fmt::localtime(std::time(nullptr)), text);
  std::fflush(to);
}

}  // namespace

struct SteerProcess::Watch {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  Steering::Clock::time_point deadline;
  int exit_status = kUnreachable;
  std::string standing = "slurmctld does not answer; nothing was changed";

  void run(const std::string& name);
  void stop() {
    std::lock_guard lock(mutex);
    over = true;
    changed.notify_all();
  }
};

void SteerProcess::Watch::run(const std::string& name) {
  std::unique_lock lock(mutex);
  Steering::Clock::time_point last = deadline + kGrace;
  while (!over && Steering::Clock::now() < last) {
    changed.wait_for(lock, kLook);
    if (interrupted) last = std::min(last, Steering::Clock::now() + kGrace);
  }
  if (over) return;
  fmt::print(stderr, "bellows {}: {}: {}\n", name, interrupted ? "interrupted" : "time is up",
             standing);
  std::fflush(nullptr);
  // Nothing in this process can stop a call that waits.
  _exit(interrupted ? kInterrupted : exit_status);
}

SteerProcess::SteerProcess(std::string name, std::chrono::seconds timeout, bool json)
    : name_(std::move(name)), json_(json), watch_(std::make_shared<Watch>()) {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  watch_->deadline = Steering::Clock::now() + timeout;
  std::thread([watch = watch_, name = name_] { watch->run(name); }).detach();
}

SteerProcess::~SteerProcess() { watch_->stop(); }

Steering SteerProcess::steering(Slurm& slurm) const {
  std::FILE* progress = json_ ? stderr : stdout;
  auto standing = [watch = watch_](int exit_status, const std::string& text) {
    std::lock_guard lock(watch->mutex);
    watch->exit_status = exit_status;
    watch->standing = text;
  };
  return {slurm,
          call_by_step(own_program()),
          RoadTime::real(),
          [progress](const std::string& text) { print_time(progress, text); },
          [] { return interrupted != 0; },
          watch_->deadline,
          standing};
}

int SteerProcess::fail(const CommandFailure& failure) const {
  watch_->stop();
  fmt::print(stderr, "bellows {}: {}\n", name_, failure.text);
  return failure.exit_status;
}

}  // namespace bellows
