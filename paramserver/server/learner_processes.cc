// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/learner_processes.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string_view>
#include <utility>

#include "common/device_lists.h"
#include "common/text.h"

namespace bellows::ps {
namespace {

constexpr std::chrono::seconds kToEnd{5};
constexpr std::chrono::seconds kOutputWithin{3};
constexpr std::chrono::seconds kLook{1};
/// While somebody does not take what learners write.
constexpr std::chrono::milliseconds kOutputAgain{20};
/// As a shell says it of a program that is not there.
constexpr int kNotFound = 127;
constexpr const char* kThreads = "OMP_NUM_THREADS";
constexpr std::string_view kLearners = "BELLOWS_PS_LEARNERS";

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

bool is_device_list(std::string_view name) {
  return std::find(std::begin(kDeviceLists), std::end(kDeviceLists), name) !=
         std::end(kDeviceLists);
}

std::vector<std::string_view> devices_of(std::string_view entry) {
  const std::size_t begin = entry.find('=') + 1;
  if (begin == 0 || begin == entry.size()) return {};
  return split(entry.substr(begin), ',');
}

std::vector<std::string_view> devices_in(const char* const* environment, std::string_view list) {
  for (; *environment; ++environment)
    if (name_of(*environment) == list) return devices_of(*environment);
  return {};
}

/// NAME=VALUE of a list of devices, for one of the learners.
std::string own_devices(std::string_view entry, std::uint32_t learner, bool cuda, bool rocr) {
  const auto devices = devices_of(entry);
  const DeviceShare share = device_share(name_of(entry), cuda, rocr);
  if (devices.empty() || share == DeviceShare::whole) return std::string(entry);
  return fmt::format(
      "{}={}", name_of(entry),
      share == DeviceShare::first ? std::string_view("0") : devices[learner % devices.size()]);
}

std::uint32_t processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::uint32_t>(CPU_COUNT(&set));
}

/// At least as long as the server takes to note that what a learner pushed was applied.
std::chrono::seconds pause_after(std::uint32_t failures) {
  return std::chrono::seconds(std::min(1u << std::min(failures, 5u), 30u));
}

}  // namespace

std::uint32_t gpus_in(const char* const* environment) {
  for (const char* list : kDeviceLists)
    if (const auto devices = devices_in(environment, list); !devices.empty())
      return static_cast<std::uint32_t>(devices.size());
  return 0;
}

std::vector<std::string> learner_environment(const char* const* environment,
                                             const LearnerOptions& options, std::uint32_t learner) {
  std::vector<std::string> made;
  bool threads = false;
  const bool cuda = !devices_in(environment, "CUDA_VISIBLE_DEVICES").empty();
  const bool rocr = !devices_in(environment, "ROCR_VISIBLE_DEVICES").empty();
  for (; *environment; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = name_of(entry);
    // The agent's: this step has one rank, which is the server.
    if (name == "BELLOWS_SOCKET") continue;
    if (name == kSocketVariable || name == kLearnerVariable || name == kLearners ||
        name == LearnerRun::kVariable)
      continue;
    threads |= name == kThreads;
    if (is_device_list(name))
      made.push_back(own_devices(entry, learner, cuda, rocr));
    else
      made.emplace_back(entry);
  }
  made.push_back(fmt::format("{}={}", kSocketVariable, options.socket));
  made.push_back(fmt::format("{}={}", kLearnerVariable, learner));
  made.push_back(fmt::format("{}={}", kLearners, options.learners));
  if (options.run)
    made.push_back(fmt::format("{}={}", LearnerRun::kVariable, options.run->token()));
  // Without it each learner starts a thread for each processor.
  if (!threads)
    made.push_back(fmt::format("{}={}", kThreads, std::max(processors() / options.learners, 1u)));
  return made;
}

LearnerProcesses::LearnerProcesses(EventLoop& loop, LearnerOptions options,
                                   const LearnerBoard& board, Say say)
    : loop_(loop), options_(std::move(options)), board_(board), say_(std::move(say)) {
  for (std::uint32_t l = 0; l < options_.learners; ++l) {
    all_.push_back(std::make_unique<One>());
    all_.back()->number = l;
  }
}

void LearnerProcesses::start(One& one) {
  ChildOptions options;
  options.command = options_.command;
  options.environment = learner_environment(environ, options_, one.number);
  options.pipe_out = options.pipe_err = true;
  options.death_signal = SIGKILL;
  auto child = Child::start(options);
  if (!child) {
    one.code = kNotFound;
    return give_up(one, child.error().text);
  }
  one.child.emplace(std::move(*child));
  LearnerBoard::Place& place = board_[one.number];
  place.trained = 0;
  place.group = one.child->pid();
  const std::string label = fmt::format("[learner {}] ", one.number);
  one.output.push_back(
      std::make_unique<LearnerOutput>(loop_, one.child->take_out(), STDOUT_FILENO, label));
  one.output.push_back(
      std::make_unique<LearnerOutput>(loop_, one.child->take_err(), STDERR_FILENO, label));
  // Without it, the end is seen at the next look.
  one.process.reset(static_cast<int>(syscall(SYS_pidfd_open, one.child->pid(), 0)));
  auto watch =
      loop_.watch(one.process.get(), EPOLLIN, [this, &one](std::uint32_t) { on_end(one); });
  if (watch) one.watch = std::move(*watch);
}

void LearnerProcesses::on_end(One& one) {
  // While it is not reaped, its group can be no other's.
  siginfo_t info = {};
  if (!one.child ||
      waitid(P_PID, static_cast<id_t>(one.child->pid()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return;
  one.child->signal(SIGKILL);
  ended_.push_back(one.number);
  board_[one.number].group = 0;
  const ChildExit exit = one.child->poll_exit().value_or(ChildExit{});
  one.watch.end();
  one.process.reset();
  for (auto& output : one.output) output->finish();
  one.child.reset();
  one.finished = exit.ok();
  if (one.finished) board_[one.number].done = 1;
  if (exit.ok() || !starts_) return;
  one.last = exit.to_string();
  one.code = exit.code();
  const auto pause = pause_after(one.failures);
  one.again = Clock::now() + pause;
}

/// Also what has left their groups: it may have their places, of which each has one.
void LearnerProcesses::end_descendants() {
  if (options_.run && !ended_.empty()) options_.run->kill_all_of(ended_, LearnerRun::kBetween);
  ended_.clear();
}

/// Of one that has failed: another try, unless it had enough of them.
void LearnerProcesses::look_again(One& one) {
  if (!one.last.empty()) {
    one.failures = board_[one.number].trained.exchange(0) != 0 ? 1 : one.failures + 1;
    if (one.failures > options_.restarts)
      return give_up(one, one.failures == 1 ? one.last
                                            : fmt::format("{}; it failed {} times in a row without "
                                                          "an update between",
                                                          one.last, one.failures));
    say_(fmt::format("learner {} {}; it is started again", one.number, one.last));
    one.output.clear();
  }
  start(one);
}

void LearnerProcesses::give_up(const One& one, const std::string& text) {
  say_(fmt::format("gives up: learner {} {}", one.number, text));
  failure_ = one.code;
}

LearnerProcesses::Clock::time_point LearnerProcesses::settle() {
  const auto now = Clock::now();
  auto next = std::min(now + Clock::duration(kLook), kill_at_);
  for (const auto& one : all_) on_end(*one);
  end_descendants();
  for (const auto& one : all_) {
    if (!one->child && !one->finished && starts_ && !failure_) {
      if (one->again <= now) look_again(*one);
      if (!one->child) next = std::min(next, one->again);
    }
    for (const auto& output : one->output)
      if (output->flush()) next = std::min(next, now + Clock::duration(kOutputAgain));
  }
  if (now < kill_at_) return next;
  kill_at_ = Clock::time_point::max();
  for (const auto& one : all_)
    if (one->child) one->child->signal(SIGKILL);
  return now;
}

bool LearnerProcesses::have_finished() const {
  return std::all_of(all_.begin(), all_.end(), [](const auto& one) { return one->finished; });
}

bool LearnerProcesses::are_gone() const {
  return std::none_of(all_.begin(), all_.end(),
                      [](const auto& one) { return one->child.has_value(); });
}

void LearnerProcesses::end() {
  if (ends_) return;
  ends_ = true;
  start_none();
  kill_at_ = Clock::now() + kToEnd;
  for (const auto& one : all_)
    if (one->child) one->child->signal(SIGTERM);
}

void LearnerProcesses::close() {
  const auto until = Clock::now() + kOutputWithin;
  const auto waits = [this] {
    bool any = false;
    for (const auto& one : all_)
      for (const auto& output : one->output) any |= output->flush();
    return any;
  };
  while (waits() && Clock::now() < until) usleep(20'000);
}

}  // namespace bellows::ps
